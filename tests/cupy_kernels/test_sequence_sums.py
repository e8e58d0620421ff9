"""The recorder's sums over the tokens of sequences, run by the emulator, against float64."""

from dataclasses import replace

import pytest
import torch
from cuemu.harness import Emulator
from cuemu.moments import draw, sequence_sums
from cuemu.norms import H100, TORCH, nan_like

from normlab.cupy_kernels import Device
from normlab.cupy_kernels.calls import moments_call

pytestmark = pytest.mark.needs("compiler")


@pytest.mark.parametrize(("shape", "dtype"), [((2, 200, 77), "f32"), ((3, 70, 520), "bf16"), ((1, 5, 1), "f16")])
def test_sums_over_sequences(shape: tuple[int, int, int], dtype: str) -> None:
    noise = torch.Generator().manual_seed(2)
    scales = torch.logspace(-20 if dtype != "f16" else -2, 20 if dtype != "f16" else 2, shape[1]).view(1, -1, 1)
    x = (torch.randn(shape, generator=noise) * scales).to(TORCH[dtype])
    x[0, 1] = 0
    norms = x.double().norm(dim=-1)
    norms[0, 2] = torch.nan
    exact = x.double()
    exact[0, 2] = 0
    directions = exact / norms.nan_to_num().where(norms > 0, 1).unsqueeze(-1)
    found = sequence_sums(x, norms)
    for number, terms in enumerate((exact, directions)):
        assert ((found[:, number] - terms.sum(1)).abs() <= 1e-14 * terms.abs().sum(1)).all()
    assert sequence_sums(x, norms, Emulator("random", seed=1)).equal(found)
    torch.testing.assert_close(sequence_sums(x, norms, device=Device(400, 0)), found, rtol=1e-12, atol=1e-12 * 1e21)


def test_sums_over_sequences_read_the_tensor_once() -> None:
    x = draw(128, 512, "bf16").view(2, 64, 512)
    call = moments_call({"x": x, "norms": torch.ones(128).double()}, length=64)
    parts = nan_like(x, 2, 1, 2, 512, dtype=torch.float64)
    done = Emulator(checked=True, counting=True).call(replace(call, values={**call.values, "parts": parts}), H100)
    traffic = done.traffic["sequence_sums.x"]
    assert traffic.read_sectors * 32 == traffic.read_bytes == x.numel() * 2
    assert done.traffic["sequence_sums.parts"].written_bytes == 2 * 2 * 512 * 8
