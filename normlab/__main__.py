"""``python -m normlab`` is the command ``normlab``."""

from normlab.cli import main

if __name__ == "__main__":
    main()
