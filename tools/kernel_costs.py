"""Compiles every kernel for every architecture, without a GPU, and records registers, spills and shared memory.

    python tools/kernel_costs.py                    # all architectures; writes cupy_kernels/data/costs.json
    python tools/kernel_costs.py --only sm_90       # one of them; the others' records stay

It needs cupy-cuda13x==14.2.*, nvidia-cuda-nvrtc and nvidia-cuda-runtime. It ends with 1 if a kernel spills or uses a
stack on an architecture that is required.
"""

import argparse
import json
import sys
from pathlib import Path

from normlab.cupy_kernels.catalogue import every_kernel
from normlab.cupy_kernels.compile import ARCHITECTURES, Cost, compiled

RECORD = Path(__file__).parents[1] / "cupy_kernels" / "data" / "costs.json"
REQUIRED = ARCHITECTURES[:-1]
BATCH = 40  # kernels a module: the source is parsed once for them


def costs(architecture: str) -> dict[str, Cost]:
    """Return the cost of every kernel on ``architecture``."""
    specs, found = every_kernel(), dict[str, Cost]()
    for start in range(0, len(specs), BATCH):
        found |= compiled(specs[start : start + BATCH], architecture)[1]
        print(f"\r{architecture} {len(found)}/{len(specs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def main() -> int:
    """Compile, record, and name what spills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=ARCHITECTURES, action="append")
    chosen = parser.parse_args().only or ARCHITECTURES
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    spilled = False
    for architecture in chosen:
        found = costs(architecture)
        record[architecture] = {symbol: [*vars(cost).values()] for symbol, cost in sorted(found.items())}
        for symbol, cost in found.items():
            if cost.spill_bytes or cost.stack_bytes:
                spilled |= architecture in REQUIRED
                print(f"{architecture} {symbol}: {cost}")
        save(record)
    return int(spilled)


def save(record: dict[str, dict[str, list[int]]]) -> None:
    """Write the record, one line a kernel, so that a change shows as one line."""
    blocks = []
    for architecture, kernels in sorted(record.items()):
        lines = ",\n".join(f'  "{symbol}": {numbers}' for symbol, numbers in kernels.items())
        blocks.append(f'"{architecture}": {{\n{lines}\n}}')
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.with_suffix(".new").write_text("{\n" + ",\n".join(blocks) + "\n}\n")
    RECORD.with_suffix(".new").replace(RECORD)


if __name__ == "__main__":
    sys.exit(main())
