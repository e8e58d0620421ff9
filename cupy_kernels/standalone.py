"""Every kernel as a file of its own, for other harnesses and for reading."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from normlab.cupy_kernels.catalogue import every_kernel
from normlab.cupy_kernels.functions import FUNCTIONS, parameters
from normlab.cupy_kernels.source import concrete, render
from normlab.cupy_kernels.spec import KernelSpec
from normlab.errors import NormlabError
from normlab.files import write_whole


def export(folder: Path, specs: Iterable[KernelSpec] | None = None) -> tuple[Path, ...]:
    """Write ``<symbol>.cu`` and ``<symbol>.json`` for each kernel; return the ``.cu`` files.

    Each ``.cu`` file stands alone and is compiled by ``nvcc -std=c++17 -arch=sm_90``. Its ``.json`` says how the
    kernel is launched (:func:`description`). Neither CuPy nor a compiler is needed.

    Args:
        folder: where to; it is made where it is missing.
        specs: which kernels; all that dispatch may choose where absent.

    Raises:
        NormlabError: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return tuple(_write(folder, spec) for spec in (every_kernel() if specs is None else specs))
    except OSError as error:
        raise NormlabError(
            f"kernels cannot be written to {folder} ({error.strerror}): choose another folder"
        ) from error


def description(spec: KernelSpec) -> dict[str, object]:
    """Return what a launch needs: symbol, arguments in order, block, grid and dynamic shared memory."""
    function = FUNCTIONS[spec.function]
    return {
        "symbol": spec.symbol,
        **asdict(spec),
        "arguments": [{**asdict(each), "type": concrete(each.type, spec)} for each in parameters(spec)],
        "block": spec.threads,
        "grid": function.grid.format(
            rows_per_block=spec.rows_per_block, width=spec.vec * spec.team, tile=spec.vec * 32
        ),
        "dynamic_shared_bytes": f"{spec.itemsize} * d" if spec.per == 0 else "0",
        "longest_row": spec.columns if spec.function in ("norm_forward", "norm_backward") and spec.per else None,
        "alignment_bytes": min(16, spec.vec * spec.itemsize),
    }


def _write(folder: Path, spec: KernelSpec) -> Path:
    target = folder / f"{spec.symbol}.cu"
    write_whole(target.with_suffix(".json"), json.dumps(description(spec), indent=2) + "\n")
    write_whole(target, render([spec], lines=False))
    return target
