import pytest
import torch

from normlab.benchmarks import WAYS, Problem
from normlab.benchmarks.ways import EPS, NORMS, both_of, forward_of, kernel_norm

PROBLEM = Problem.draw(5, 48, seed=3)


def reference(norm: str) -> tuple[torch.Tensor, ...]:
    """Both norms by their definition in float64, differentiated by autograd."""
    x, gain, bias, dy = (getattr(PROBLEM, name).double() for name in ("x", "gain", "bias", "dy"))
    x, gain, bias = (each.requires_grad_() for each in (x, gain, bias))
    if norm == "layernorm":
        y = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + EPS).sqrt() * gain + bias
        return (y, *torch.autograd.grad(y, (x, gain, bias), dy))
    y = x / (x.pow(2).sum(-1, keepdim=True) / x.shape[-1] + EPS).sqrt() * gain
    return (y, *torch.autograd.grad(y, (x, gain), dy))


def close(found: object, wanted: torch.Tensor) -> bool:
    return torch.allclose(torch.as_tensor(found).double(), wanted, atol=2e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", [
    "numpy", "eager", pytest.param("compiled", marks=pytest.mark.needs("compiler")), "fused",
])  # fmt: skip
def test_every_way_computes_the_same_norm_and_the_same_gradients(name: str, norm: str) -> None:
    way, (y, *gradients) = WAYS[name], reference(norm)
    assert way.missing("cpu", torch.float32) == ""
    assert close(way.forward(norm, PROBLEM)(), y)
    found = way.both(norm, PROBLEM)()
    found = found[1:] if name == "numpy" else found  # NumPy also returns y
    assert [close(*pair) for pair in zip(found, gradients, strict=True)] == [True] * len(gradients)


@pytest.mark.parametrize("norm", NORMS)
def test_the_operator_of_the_kernels_computes_the_same_on_a_cpu(norm: str) -> None:
    y, *gradients = reference(norm)
    assert close(forward_of(kernel_norm(norm), PROBLEM)(), y)
    found = both_of(kernel_norm(norm), norm, PROBLEM)()
    assert [close(*pair) for pair in zip(found, gradients, strict=True)] == [True] * len(gradients)
    assert "GPU" in WAYS["kernels"].missing("cpu", torch.float32)


def test_numpy_is_for_float32_on_the_cpu() -> None:
    assert "float32" in WAYS["numpy"].missing("cpu", torch.bfloat16)
    assert "CPU" in WAYS["numpy"].missing("cuda", torch.float32)
