"""The text that is compiled: the files that a kernel needs, then a wrapper with a plain name for each kernel."""

import re
from collections.abc import Iterable
from importlib.resources import files

from normlab.cupy_kernels.functions import FUNCTIONS, parameters
from normlab.cupy_kernels.signature import Function
from normlab.cupy_kernels.spec import STORAGE, KernelSpec

_HEAD = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern __shared__ __align__(16) unsigned char dynamic_shared[];
"""


def render(specs: Iterable[KernelSpec], *, lines: bool = True) -> str:
    """Return CUDA C that defines every kernel of ``specs`` under its symbol.

    NVRTC, nvcc and the emulator compile the same text.

    Args:
        specs: the kernels.
        lines: whether ``#line`` keeps the sources' own names and line numbers in messages.
    """
    wanted = tuple(specs)
    names = dict.fromkeys(name for spec in wanted for name in FUNCTIONS[spec.function].files)
    mark = '#line 1 "{}"' if lines else "// ---- {} ----"
    parts = [(name, _text(name)) for name in names] + [("wrappers", "\n".join(map(_wrapper, wanted)))]
    return "\n".join([_HEAD, *(f"{mark.format(name)}\n{text}" for name, text in parts)])


def _text(name: str) -> str:
    return files("normlab.cupy_kernels").joinpath("cu", name).read_text(encoding="utf-8")


def _wrapper(spec: KernelSpec) -> str:
    function, own = FUNCTIONS[spec.function], parameters(spec)
    arguments = ", ".join(f"{concrete(each.type, spec)} {each.name}" for each in own)
    # The 1 says that one resident block is enough. Without it ptxas spills a few bytes to fit more of them.
    return (
        f'extern "C" __global__ void __launch_bounds__({spec.threads}, 1)\n'
        f"{spec.symbol}({arguments}) {{\n"
        f"  {spec.function}<{_fill(function.template, spec)}>({_call(function, spec)});\n}}\n"
    )


def _call(function: Function, spec: KernelSpec) -> str:
    own = {each.name for each in parameters(spec)}
    absent = {each.name: "nullptr" if "*" in each.type else "0" for each in function.parameters if each.name not in own}
    return ", ".join(absent.get(argument, _fill(argument, spec)) for argument in function.call)


def _fill(text: str, spec: KernelSpec) -> str:
    if "{" not in text or text.startswith("Rows{"):
        return text
    return text.format(
        T=STORAGE[spec.dtype][0],
        W=STORAGE[spec.weight][0],
        STATISTIC=spec.statistic.upper(),
        ADD=int(spec.add),
        vec=spec.vec,
        per=spec.per,
        team=spec.team,
    )


def concrete(type: str, spec: KernelSpec) -> str:
    """Return ``type`` with the storage types of ``spec`` in place of ``T`` and ``W``."""
    return re.sub(r"\b[TW]\b", lambda found: STORAGE[spec.dtype if found[0] == "T" else spec.weight][0], type)
