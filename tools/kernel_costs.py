"""Compiles kernels for the architectures, without a GPU, and records registers, spills and shared memory.

    python tools/kernel_costs.py                    # what the record lacks, or has of other sources
    python tools/kernel_costs.py --all              # everything; about two minutes an architecture
    python tools/kernel_costs.py --only sm_90       # one architecture; the others' records stay

It writes cupy_kernels/data/costs.json and needs what `pip install 'normlab[cuda]'` brings. It ends with 1 if a kernel
spills or uses a stack.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from normlab.cupy_kernels import KernelSpec, every_kernel
from normlab.cupy_kernels.compile import ARCHITECTURES, Cost, compiled
from normlab.cupy_kernels.costs import Record, digests, recorded

RECORD = Path(__file__).parents[1] / "cupy_kernels" / "data" / "costs.json"
BATCH = 40  # kernels a module: the source is parsed once for them


def costs(specs: Sequence[KernelSpec], architecture: str) -> dict[str, Cost]:
    """Return the cost of each of ``specs`` on ``architecture``."""
    found = dict[str, Cost]()
    for start in range(0, len(specs), BATCH):
        found |= compiled(specs[start : start + BATCH], architecture)[1]
        print(f"\r{architecture} {len(found)}/{len(specs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def main() -> int:
    """Compile, record, and name what spills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ARCHITECTURES, action="append", help="an architecture; repeatable")
    parser.add_argument("--all", action="store_true", help="also what is recorded of these sources")
    options = parser.parse_args()
    record = recorded() if RECORD.exists() else {}
    spilled = False
    for architecture in options.only or ARCHITECTURES:
        kept = {} if options.all or architecture not in record else current(record[architecture])
        found = costs([spec for spec in every_kernel() if spec.symbol not in kept], architecture)
        record[architecture] = Record(digests(), {**kept, **found})
        save(record)
        for symbol, cost in record[architecture].costs.items():
            if cost.spill_bytes or cost.stack_bytes:
                spilled = True
                print(f"{architecture} {symbol}: {cost}")
    return int(spilled)


def current(record: Record) -> dict[str, Cost]:
    """Return those costs that belong to kernels and sources as they are now."""
    same = {name for name, digest in digests().items() if record.sources.get(name) == digest}
    return {
        spec.symbol: record.costs[spec.symbol]
        for spec in every_kernel()
        if spec.function in same and spec.symbol in record.costs
    }


def save(record: Mapping[str, Record]) -> None:
    """Write the record, one line a kernel, so that a change shows as one line."""
    blocks = []
    for architecture, of in sorted(record.items()):
        lines = ",\n".join(f'  "{symbol}": {[*vars(cost).values()]}' for symbol, cost in sorted(of.costs.items()))
        blocks.append(f'"{architecture}": {{\n"sources": {json.dumps(of.sources)},\n"costs": {{\n{lines}\n}}}}')
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.with_suffix(".new").write_text("{\n" + ",\n".join(blocks) + "\n}\n")
    RECORD.with_suffix(".new").replace(RECORD)


if __name__ == "__main__":
    sys.exit(main())
