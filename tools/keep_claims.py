"""Keep what a run of all claims found: docs/claims.csv.gz, claims.json and claims.md.

    normlab claims run --all --full --out runs/claims
    python tools/keep_claims.py runs/claims
    python tools/keep_claims.py             # only write the page again

The table holds the rows that verdicts used, the JSON what the run was made with. The page is a function of the
catalogue and these two; a test writes it again and compares. A rule that the ledger of the tests does not have yet
is added to it.
"""

import csv
import json
import sys
from pathlib import Path

from normlab.claims import CLAIMS, judge_all, kept, measured_with, read, scoreboard
from normlab.table import read_csv, to_csv_bytes

ROOT = Path(__file__).parents[1]
TABLE, MADE, PAGE = (ROOT / "docs" / name for name in ("claims.csv.gz", "claims.json", "claims.md"))
LEDGER = ROOT / "tests" / "claims" / "rule_hashes.csv"


def page() -> str:
    """Return the page that the kept table gives."""
    rows, made = read_csv(TABLE), json.loads(MADE.read_text(encoding="utf-8"))
    verdicts = judge_all(rows, untested=True, own=True)
    return scoreboard(verdicts, seeds=made["seeds"], versions=made["versions"])


def keep(folder: Path) -> None:
    """Write the table of the run in ``folder`` and what it was made with."""
    rows = kept(read(folder))
    TABLE.write_bytes(to_csv_bytes(rows))
    made = {"seeds": sorted(int(seed) for seed in rows["model_seed"].unique()), "versions": measured_with(folder)}
    MADE.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    print(f"{len(rows)} rows, {TABLE.stat().st_size / 1e6:.2f} MB")


def add_to_ledger() -> None:
    """Add the rules of claims' versions that the ledger lacks; what it has stays."""
    with LEDGER.open(encoding="utf-8", newline="") as file:
        known = {(row["id"], row["version"]) for row in csv.DictReader(file)}
    with LEDGER.open("a", encoding="utf-8", newline="") as file:
        for id, claim in CLAIMS.items():
            if (id, str(claim.version)) not in known:
                file.write(f"{id},{claim.version},{claim.rule_hash}\n")


def main() -> None:
    """Keep the run in the folder that is given, if one is, and write the page."""
    for folder in sys.argv[1:2]:
        keep(Path(folder))
    PAGE.write_text(page(), encoding="utf-8")
    add_to_ledger()


if __name__ == "__main__":
    main()
