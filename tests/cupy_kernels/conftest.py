"""The emulator lies beside the tests and is imported as ``cuemu``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
