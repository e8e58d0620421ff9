"""Which implementation serves a norm, and that the modules hand over what they compute themselves."""

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.norms import NORMS, add_norm, backend

sys.path.insert(0, str(Path(__file__).parents[1]))

SERVED = ("rmsnorm", "layernorm", "l2norm", "scalenorm", "dyt", "derf")


def norm(name: str, **options: object) -> nn.Module:
    module = NORMS[name].build(24, eps=1e-5, **options)
    noise = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        with torch.no_grad():
            parameter.add_(torch.randn(parameter.shape, generator=noise) / 4)
    return module


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU tensors stand for CUDA tensors."""
    from cuemu.launching import EMULATED

    for name, value in (("OPERATORS", EMULATED), ("DEVICE", "cpu"), ("MISSING", "")):
        monkeypatch.setattr(backend, name, value)


def run(module: nn.Module, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    y = module(x)
    return [y, *torch.autograd.grad(y.sin().sum(), [x, *module.parameters()])]


@pytest.mark.needs("compiler")
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", SERVED)
@pytest.mark.parametrize("shape", [(3, 24), (2, 3, 4, 24)])
def test_the_kernels_give_what_torch_gives(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    one, other = (run(norm(name, backend=which), x) for which in ("cupy", "torch"))
    assert type(one[0].grad_fn).__name__.startswith("GeneratedBackwardFor_normlab_emulated")
    for found, expected in zip(one, other, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.needs("compiler")
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm"])
def test_rounding_before_the_gain(name: str) -> None:
    x = torch.randn(3, 24, generator=torch.Generator().manual_seed(0)).bfloat16()
    one, other = (norm(name, cast="before", backend=which).to(torch.float32)(x) for which in ("cupy", "torch"))
    torch.testing.assert_close(one, other, rtol=2.0**-8, atol=0)


@pytest.mark.needs("compiler")
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "dyt"])
def test_the_sum_and_the_norm_at_once(name: str) -> None:
    x, residual = torch.randn(2, 3, 24, generator=torch.Generator().manual_seed(0)).bfloat16().unbind()
    module = norm(name).bfloat16()
    y, z = add_norm(module, x, residual)
    assert z.equal(x + residual) and y.equal(module(z))


def test_a_cpu_gets_torch_to_the_bit() -> None:
    x = torch.randn(3, 24, generator=torch.Generator().manual_seed(0))
    module = norm("layernorm")
    y, z = add_norm(module, x, x)
    assert module(x).equal(nn.functional.layer_norm(x, (24,), module.gain, module.bias))
    assert z.equal(2 * x) and y.equal(module(2 * x))


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("x", "weights", "eps", "reason"),
    [
        (torch.zeros(2, 8).double(), (None,), 1.0, "no kernel for activations of torch.float64"),
        (torch.zeros(2, 8), (torch.zeros(8).half(),), 1.0, "no kernel for activations of f32"),
        (torch.zeros(2, 8), (torch.zeros(8), torch.zeros(8).half()), 1.0, "no kernel"),
        (torch.zeros(2, 8), (None,), 0.0, "its eps is 0, and the kernels need 1e-30"),
        (torch.zeros(2, 8, device="meta"), (None,), 1.0, "the tensor is on the device 'meta'"),
    ],
)
def test_what_the_kernels_do_not_serve(x: Tensor, weights: tuple[Tensor | None, ...], eps: float, reason: str) -> None:
    assert not backend.uses_kernels("auto", x, *weights, eps=eps)
    assert not backend.uses_kernels("torch", x, *weights, eps=eps)
    with pytest.raises(nl.NormlabError, match=reason):
        backend.uses_kernels("cupy", x, *weights, eps=eps)


@pytest.mark.usefixtures("emulated")
def test_transforms_and_autocast_get_torch() -> None:
    x, module = torch.randn(2, 24), norm("rmsnorm")
    with torch.autocast("cpu", torch.bfloat16):
        assert not backend.uses_kernels("auto", x)
    assert torch.func.vmap(module)(x).equal(norm("rmsnorm", backend="torch")(x))
    with torch.autograd.forward_ad.dual_level():
        assert not backend.uses_kernels("auto", x)


def test_what_cannot_run_here_is_said() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(nl.NormlabError, match="backend 'cupy' cannot serve this norm: .*; give backend 'auto'"):
            norm("rmsnorm", backend="cupy")(torch.zeros(2, 24))
        assert nl.kernels_info()["backend"] == "torch" and nl.kernels_info()["why"]


def test_a_backend_that_is_not_there() -> None:
    with pytest.raises(nl.NormlabError, match="did you mean 'cupy'"):
        norm("rmsnorm", backend="cupi")


def test_a_backend_is_no_part_of_a_spec() -> None:
    assert all("backend" not in NORMS[name].options for name in SERVED)


@pytest.mark.parametrize("name", ["norm", "squash"])
def test_second_derivatives_on_a_cpu(name: str) -> None:
    x, gain = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5), (5,)))
    number = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    calls = {
        "norm": lambda x, gain, number: torch.ops.normlab.norm(x, gain, None, "rms", 1e-3, False)[0] * number,
        "squash": lambda x, gain, number: torch.ops.normlab.squash(x, number, None, gain, None, "tanh"),
    }
    assert torch.autograd.gradcheck(calls[name], (x, gain, number))
    assert torch.autograd.gradgradcheck(calls[name], (x, gain, number))
