"""What a GPU would time, run on the CPU: the numbers that the claims read, of functions that compute the same."""

import math

import pytest
import torch

from normlab.benchmarks import Problem
from normlab.benchmarks.ways import fused_layer_norm, fused_rms_norm
from normlab.claims import CLAIMS
from normlab.claims.measured import gpu

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.needs("compiler")
@pytest.mark.parametrize("measure, claim", [
    (gpu.norm_times, "rms-faster-on-gpu"), (gpu.fused_add, "fused-add-norm-saves-a-read"),
])  # fmt: skip
def test_the_numbers_are_those_that_the_claims_read(measure, claim):
    found = measure(0, rows=8, width=64, device="cpu")
    assert [regime.statistic.query.split("'")[3] for regime in CLAIMS[claim].regimes] == [one.name for one in found]
    assert all(number.value > 0 or number.name == "gpu-ratio-kernels" for number in found)
    assert all(math.isnan(number.value) for number in found if number.name == "gpu-ratio-kernels")


@pytest.mark.parametrize("name, norm", [("layernorm", fused_layer_norm), ("rmsnorm", fused_rms_norm)])
def test_the_fused_add_computes_what_the_two_operations_do(name, norm):
    problem = Problem.draw(16, 64, dtype=torch.float32)
    for found, wanted in zip(gpu._written_out(name, problem)(), gpu._add_and(norm, problem)(), strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
