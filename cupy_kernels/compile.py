"""NVRTC without a GPU: what a kernel costs on an architecture, and whether it compiles there at all."""

import io
import re
from collections.abc import Iterable, Mapping
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


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of kernels: the binary, the PTX that it was made from, and each symbol's cost."""

    binary: bytes
    ptx: str
    costs: Mapping[str, Cost]


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


def compiled(specs: Iterable[KernelSpec], architecture: str) -> Compiled:
    """Compile ``specs`` for ``architecture`` as a launch would.

    Raises:
        NormlabError: NVRTC is not here, or refuses the source.
    """
    if reason := missing():
        raise NormlabError(f"kernels cannot be compiled here; {reason}")
    compiler, core = import_module("cupy.cuda.compiler"), import_module("cupy._core.core")
    log = io.StringIO()
    options = (*core.assemble_cupy_compiler_options(()), "-ftz=true", "-Xptxas", "-v", f"-arch={architecture}")
    program = compiler._NVRTCProgram(render(specs), "norms.cu", (), (), name_expressions=None, method="cubin")
    try:
        binary, _ = program.compile((*options, "--device-as-default-execution-space"), log)
        ptx = import_module("cupy_backends.cuda.libs.nvrtc").getPTX(program.ptr)
    except compiler.CompileException as error:
        raise NormlabError(f"NVRTC refuses the kernels for {architecture}: {error}") from error
    # CuPy takes the binary's last byte, a zero, for the end of a string.
    costs = {found[1]: _cost(found) for found in _ENTRY.finditer(log.getvalue())}
    return Compiled(bytes(binary) + b"\0", ptx.decode(), costs)


def _cost(found: re.Match[str]) -> Cost:
    stack, stores, loads, registers, shared = (int(found[i] or 0) for i in range(2, 7))
    return Cost(registers, stack, stores + loads, shared)
