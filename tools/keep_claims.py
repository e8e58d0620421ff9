"""Keep what a run of all claims found: docs/claims.csv.gz, the rows that its verdicts used, and docs/claims.md.

    normlab claims run --all --full --out runs/claims
    python tools/keep_claims.py runs/claims

The page is a function of the catalogue and the kept rows alone; a test writes it again and compares.
"""

import sys
from pathlib import Path

from normlab.claims import judge_all, kept, read, scoreboard
from normlab.table import to_csv_bytes

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Keep the run in the folder that is given."""
    rows = kept(read(sys.argv[1]))
    (DOCS / "claims.csv.gz").write_bytes(to_csv_bytes(rows))
    (DOCS / "claims.md").write_text(scoreboard(judge_all(rows, untested=True, own=True)), encoding="utf-8")
    print(f"{len(rows)} rows, {(DOCS / 'claims.csv.gz').stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
