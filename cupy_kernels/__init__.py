"""CUDA C sources of the norms, which of them serves a given row, and what a launch passes.

Nothing here imports cupy: the tables, the sources and the export need no GPU. The one exception is
``normlab.cupy_kernels.compile``, which asks CuPy's compiler what a kernel costs.
"""

from normlab.cupy_kernels.arguments import pack
from normlab.cupy_kernels.catalogue import dispatch_table, every_kernel
from normlab.cupy_kernels.dispatch import plan, widest_vector
from normlab.cupy_kernels.functions import FUNCTIONS, parameters
from normlab.cupy_kernels.plans import DEVICES, Device, Launch, Plan, Request
from normlab.cupy_kernels.source import render
from normlab.cupy_kernels.spec import KernelSpec, Parameter
from normlab.cupy_kernels.standalone import description, export

__all__ = [
    # which kernel serves a row
    "Request",
    "Device",
    "DEVICES",
    "Plan",
    "Launch",
    "plan",
    "widest_vector",
    # what a kernel is
    "KernelSpec",
    "Parameter",
    "FUNCTIONS",
    "parameters",
    "render",
    "pack",
    # all of them, and as files
    "every_kernel",
    "dispatch_table",
    "description",
    "export",
]
