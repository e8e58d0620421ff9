"""Compiles kernels for the architectures, without a GPU, and records registers, shared memory and instructions.

    python tools/kernel_costs.py                    # what the record lacks, or has of other sources
    python tools/kernel_costs.py --all              # everything; about three minutes on two cores
    python tools/kernel_costs.py --only sm_90       # one architecture; the others' records stay

It writes cupy_kernels/data/costs.json and needs what `pip install 'normlab[cuda]'` brings, and nvdisasm: from the CUDA
toolkit, or by `pip install nvidia-cuda-nvdisasm`. It ends with 1 if a kernel spills, uses a stack or local memory, or
moves a row by other widths than it promises.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from normlab.cupy_kernels import KernelSpec, every_kernel
from normlab.cupy_kernels.compile import ARCHITECTURES, Cost, compiled
from normlab.cupy_kernels.costs import Record, digests, recorded
from normlab.cupy_kernels.sass import Work, work
from normlab.errors import NormlabError
from normlab.files import write_whole

RECORD = Path(__file__).parents[1] / "cupy_kernels" / "data" / "costs.json"
BATCH = 40  # kernels a module: the source is parsed once for them


def main() -> int:
    """Compile, disassemble, record, and name what spills."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=ARCHITECTURES, action="append", help="an architecture; repeatable")
    parser.add_argument("--all", action="store_true", help="also what is recorded of these sources")
    parser.add_argument("--nvdisasm", type=Path, help="the disassembler, where it is not found by itself")
    options = parser.parse_args()
    record = recorded() if RECORD.exists() else {}
    try:
        nvdisasm = options.nvdisasm or disassembler()
        for architecture in options.only or ARCHITECTURES:
            kept = Record({}, {}, {}) if options.all or architecture not in record else current(record[architecture])
            record[architecture] = renewed(kept, architecture, nvdisasm)
            save(record)
    except NormlabError as error:
        print(error, file=sys.stderr)
        return 1
    spilled = [
        f"{architecture} {symbol}: {cost}"
        for architecture, of in record.items()
        for symbol, cost in of.costs.items()
        if cost.spill_bytes or cost.stack_bytes
    ]
    print(*spilled, sep="\n")
    return int(bool(spilled))


def disassembler() -> Path:
    """Return nvdisasm: that of PATH, or of a wheel.

    Raises:
        NormlabError: there is none.
    """
    wheel = find_spec("nvidia")
    folders = [Path(each) for each in wheel.submodule_search_locations or ()] if wheel else []
    known = [*folders, Path("/usr/local/cuda")]
    found = shutil.which("nvdisasm") or next((str(path) for each in known for path in each.glob("**/nvdisasm")), None)
    if found is None:
        raise NormlabError("nvdisasm is not here: pip install nvidia-cuda-nvdisasm, or name it by --nvdisasm")
    return Path(found)


def renewed(kept: Record, architecture: str, nvdisasm: Path) -> Record:
    """Return ``kept`` with what it lacks."""
    specs = [spec for spec in every_kernel() if spec.symbol not in kept.costs]
    batches = [specs[start : start + BATCH] for start in range(0, len(specs), BATCH)]
    costs, works = dict(kept.costs), dict(kept.works)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        each = pool.map(measured, batches, [architecture] * len(batches), [nvdisasm] * len(batches))
        for number, (found, done) in enumerate(each, 1):
            costs |= found
            works |= done
            print(f"\r{architecture} {number}/{len(batches)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return Record(digests(), costs, works)


def measured(
    specs: Iterable[KernelSpec], architecture: str, nvdisasm: Path
) -> tuple[Mapping[str, Cost], Mapping[str, Work]]:
    """Return cost and work of each of ``specs`` on ``architecture``."""
    made = compiled(specs, architecture)
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "kernels.cubin")
        binary.write_bytes(made.binary)
        listing = subprocess.run([nvdisasm, "-c", binary], capture_output=True, text=True)
    if listing.returncode:
        raise NormlabError(f"{nvdisasm} does not read the binary for {architecture}: {listing.stderr.strip()}")
    return made.costs, work(listing.stdout, specs)


def current(record: Record) -> Record:
    """Return of ``record`` what belongs to kernels and sources as they are now."""
    same = {name for name, digest in digests().items() if record.sources.get(name) == digest}
    symbols = [spec.symbol for spec in every_kernel() if spec.function in same and spec.symbol in record.costs]
    return Record(
        record.sources,
        {symbol: record.costs[symbol] for symbol in symbols},
        {symbol: record.works[symbol] for symbol in symbols},
    )


def save(record: Mapping[str, Record]) -> None:
    """Write the record, one line a kernel, so that a change shows as one line."""
    blocks = []
    for architecture, of in sorted(record.items()):
        lines = ",\n".join(
            f'  "{symbol}": {[*vars(cost).values(), of.works[symbol].elements, *of.works[symbol].counts]}'
            for symbol, cost in sorted(of.costs.items())
        )
        blocks.append(f'"{architecture}": {{\n"sources": {json.dumps(of.sources)},\n"costs": {{\n{lines}\n}}}}')
    write_whole(RECORD, "{\n" + ",\n".join(blocks) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
