"""NVRTC without a GPU: what a kernel costs on an architecture, and whether it compiles there at all."""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from normlab.cupy_kernels.source import render
from normlab.cupy_kernels.spec import KernelSpec
from normlab.errors import NormlabError

#: Architectures that the kernels are compiled for.
ARCHITECTURES: Final = ("sm_80", "sm_90", "sm_100", "sm_120")
#: The release of CuPy whose compiler interface, which is private, is used below.
CUPY_SERIES: Final = "14.2."
_ENTRY: Final = re.compile(
    r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Cost:
    """What ptxas reports of a kernel: registers a thread; bytes of stack, of spills and of static shared memory."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


def missing() -> str:
    """Say what NVRTC lacks on this machine; nothing if all is there."""
    if find_spec("cupy") is None:
        return "missing: cupy-cuda13x==14.2.*, nvidia-cuda-nvrtc and nvidia-cuda-runtime (pip install 'normlab[cuda]')"
    version = str(import_module("cupy").__version__)
    if not version.startswith(CUPY_SERIES):
        return f"CuPy is {version}: {CUPY_SERIES}* is needed"
    try:
        import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc")
    except RuntimeError:
        return "missing: nvidia-cuda-nvrtc and nvidia-cuda-runtime"
    return ""


def compiled(specs: Iterable[KernelSpec], architecture: str) -> tuple[bytes, dict[str, Cost]]:
    """Compile ``specs`` for ``architecture`` as a launch would; return the binary, and each symbol's cost.

    Raises:
        NormlabError: NVRTC is not here, or refuses the source.
    """
    binary, log = _nvrtc(render(specs), f"-arch={architecture}", "cubin")
    return binary, {found[1]: _cost(found) for found in _ENTRY.finditer(log)}


def ptx(specs: Iterable[KernelSpec], architecture: str) -> str:
    """Return the PTX of ``specs``.

    Raises:
        NormlabError: NVRTC is not here, or refuses the source.
    """
    return _nvrtc(render(specs), f"-arch={architecture.replace('sm', 'compute')}", "ptx")[0].decode()


def _nvrtc(source: str, target: str, method: str) -> tuple[bytes, str]:
    if reason := missing():
        raise NormlabError(f"kernels cannot be compiled here; {reason}")
    compiler, core = import_module("cupy.cuda.compiler"), import_module("cupy._core.core")
    log = io.StringIO()
    options = (*core.assemble_cupy_compiler_options(()), "-ftz=true", "-Xptxas", "-v", target)
    program = compiler._NVRTCProgram(source, "norms.cu", (), (), name_expressions=None, method=method)
    try:
        binary, _ = program.compile((*options, "--device-as-default-execution-space"), log)
    except compiler.CompileException as error:
        raise NormlabError(f"NVRTC refuses the kernels for {target}: {error}") from error
    return bytes(binary), log.getvalue()


def _cost(found: re.Match[str]) -> Cost:
    stack, stores, loads, registers, shared = (int(found[i] or 0) for i in range(2, 7))
    return Cost(registers, stack, stores + loads, shared)
