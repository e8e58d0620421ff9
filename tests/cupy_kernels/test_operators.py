"""The operators with everything that runs on CUDA tensors, launched on CPU tensors through the emulator."""

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from cuemu.launching import DRIVER, EMULATED, EmulatedDriver
from cuemu.norms import Norm, error_in_ulp, reference
from torch import Tensor
from torch.nn import functional as F

from normlab import NormlabError
from normlab.cupy_kernels import DEVICES, Device
from normlab.cupy_kernels.launch import CupyDriver, _Stream
from normlab.cupy_kernels.operations import Operations
from normlab.cupy_kernels.torch_ops import SCHEMAS
from normlab.norms import operators as cpu

pytestmark = pytest.mark.needs("compiler")


def draw(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).requires_grad_(grad)


def samples(grad: bool = True) -> dict[str, tuple[Any, ...]]:
    x, gain, bias, dy = draw(3, 2, 64, grad=grad), draw(64, grad=grad), draw(64, seed=1, grad=grad), draw(3, 2, 64)
    number = torch.tensor(0.7, requires_grad=grad)
    still = x.detach(), gain.detach(), bias.detach()
    _, shifts, rstds = EMULATED.norm(*still, "layer", 1e-5, False)
    mask = torch.tensor([[True, False], [True, True], [False, True]])
    return {
        "norm": (x, gain, bias, "layer", 1e-5, False),
        "norm scalar gain": (x, number, None, "l2", 1e-5, False),
        "norm alone": (x, None, None, "rms", 1e-5, False),
        "add_norm": (x, draw(3, 2, 64, seed=9, grad=grad), gain, None, "rms", 1e-5, False),
        "norm_backward": (dy, *still, shifts, rstds, dy, "layer", 1e-5, False, True, True),
        "norm_backward dx": (dy, *still, shifts, rstds, None, "layer", 1e-5, False, False, False),
        "squash": (x, number, None, gain, bias, "tanh"),
        "squash shift": (x, number, number.detach(), None, None, "erf"),
        "squash_backward": (dy, still[0], number.detach(), number.detach(), *still[1:], "erf"),
        "moments": (x.detach(), mask),
        "pair_moments": (x.detach(), dy, x.detach() + dy, None),
        "token_moments": (x.detach(), None),
        "sequence_sums": (x.detach(), x.detach().double().norm(dim=-1)),
    }


SAMPLES = list(SCHEMAS) + ["norm scalar gain", "norm alone", "norm_backward dx", "squash shift"]


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(EMULATED, name.split()[0]).default, samples()[name])


Function = Callable[..., Tensor]


def layer(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    y: Tensor = EMULATED.norm(x, gain, bias, "layer", 1e-5, False)[0]
    return y


def layer_in_torch(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), gain, bias)


def fused(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    y, z, *_ = EMULATED.add_norm(x, bias.expand(x.shape).contiguous(), gain, None, "rms", 1e-5, False)
    return y * z.sin()


def fused_in_torch(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    z = x + bias
    return F.rms_norm(z, (x.shape[-1],), gain, 1e-5) * z.sin()


def squashed(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    y: Tensor = EMULATED.squash(x, gain[0], bias[0], gain, bias, "erf")
    return y


def squashed_in_torch(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return torch.erf(gain[0] * x + bias[0]) * gain + bias


PAIRS = [(layer, layer_in_torch), (fused, fused_in_torch), (squashed, squashed_in_torch)]


def gradients(function: Function, *inputs: Tensor, twice: bool = False) -> list[Tensor]:
    leaves = [each.detach().clone().requires_grad_() for each in inputs]
    y = function(*leaves)
    found = torch.autograd.grad(y.sin().sum(), leaves, create_graph=twice)
    if twice:
        total = sum((each * each.detach().sin()).sum() for each in found)
        found = (*found, *torch.autograd.grad(total, leaves, materialize_grads=True))
    return [y.detach(), *(each.detach() for each in found)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("twice", [False, True])
def test_derivatives(ours: Function, theirs: Function, twice: bool) -> None:
    inputs = draw(4, 3, 40), draw(40), draw(40, seed=2)
    exact = gradients(theirs, *(each.double() for each in inputs), twice=twice)
    for found, expected in zip(gradients(ours, *inputs, twice=twice), exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("backend", "pairs"), [("aot_eager", PAIRS), ("inductor", PAIRS[1:2])], ids=["aot_eager", "inductor"]
)
def test_compiled_whole_for_all_shapes(backend: str, pairs: list[tuple[Function, Function]]) -> None:
    for ours, _ in pairs:
        torch._dynamo.reset()
        compiled = torch.compile(ours, backend=backend, fullgraph=True, dynamic=True)
        for rows in (4, 6):
            inputs = draw(rows, 3, 40), draw(40), draw(40, seed=2)
            for found, expected in zip(gradients(compiled, *inputs), gradients(ours, *inputs), strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_a_formula_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normlab.cupy_kernels.torch_ops._FORMULAS", {})
    with pytest.raises(NormlabError, match="second derivative of norm needs its formula: import normlab.norms"):
        gradients(layer, draw(2, 40), draw(40), draw(40), twice=True)


@pytest.mark.parametrize("name", [name for name in samples(grad=False) if not name.endswith(("moments", "sums"))])
def test_the_same_operators_on_a_cpu(name: str) -> None:
    """What torch does in place of the kernels gives the same, in the same shapes and types."""
    given = samples(grad=False)[name]
    one, other = (getattr(ops, name.split()[0])(*given) for ops in (EMULATED, torch.ops.normlab))
    pairs = [(one, other)] if isinstance(one, Tensor) else list(zip(one, other, strict=True))
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def launched(run: Callable[[], Any]) -> list[Any]:
    DRIVER.cupy.log.clear()
    run()
    return list(DRIVER.cupy.log)


@pytest.mark.parametrize(
    ("shape", "dtype", "kernels", "shared"),
    [
        ((5, 64), torch.bfloat16, ["norm_forward_rms_bf16_bf16_v8_p1_t8"], 0),
        ((5, 61), torch.float32, ["norm_forward_rms_f32_f32_v1_p8_t32"], 0),
        ((200, 16_400), torch.bfloat16, ["norm_forward_rms_bf16_bf16_v8_p0_t512"], 32_800),
        ((40, 30_000), torch.float32, ["norm_forward_rms_f32_f32_v4_p0_t512"], 120_000),
        ((1, 65_536), torch.float32, ["norm_moments_rms_f32_f32_v4_p4_t256", "norm_apply_rms_f32_f32_v4_p1_t256"], 0),
    ],
)
def test_what_is_launched(shape: tuple[int, int], dtype: torch.dtype, kernels: list[str], shared: int) -> None:
    x = draw(*shape).to(dtype)
    log = launched(lambda: EMULATED.norm(x, None, None, "rms", 1e-5, False))
    assert [each.symbol.removeprefix("normlab_") for each in log] == kernels
    assert log[0].shared_bytes == shared and log[0].arguments[0] == np.uint64(x.data_ptr())
    y = EMULATED.norm(x, None, None, "rms", 1e-5, False)[0]
    assert error_in_ulp(y, reference(Norm("rms"), x)[0]) <= (8 if dtype == torch.float32 else 0.52)


def test_heads_of_a_packed_projection_are_not_copied() -> None:
    packed = draw(2, 5, 3, 4, 32).bfloat16()
    keys = packed[:, :, 1]
    (log,) = launched(lambda: EMULATED.norm(keys, None, None, "rms", 1e-5, False))
    assert log.arguments[0] == np.uint64(keys.data_ptr())
    y = EMULATED.norm(keys, None, None, "rms", 1e-5, False)[0]
    assert y.is_contiguous() and y.equal(EMULATED.norm(keys.contiguous(), None, None, "rms", 1e-5, False)[0])


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(0, 1),
        lambda x: x.transpose(0, 2),
        lambda x: x[:, ::2, 1:],
        lambda x: x[0, 0].expand(3, 4, 24),
        lambda x: x.permute(2, 0, 1)[::2],
    ],
)
def test_any_layout(view: Callable[[Tensor], Tensor]) -> None:
    x, other = view(draw(4, 6, 24)), view(draw(4, 6, 24, seed=1))
    ends = x.contiguous(), other.contiguous()
    for found, expected in zip(
        EMULATED.add_norm(x, other, None, None, "layer", 1e-5, False),
        EMULATED.add_norm(*ends, None, None, "layer", 1e-5, False),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(EMULATED.moments(x, None), EMULATED.moments(ends[0], None), rtol=1e-6, atol=1e-9)


def test_channels_and_all_elements() -> None:
    x = draw(6, 40)
    channels, whole = EMULATED.moments(x.T, None), EMULATED.moments(x.reshape(1, -1), None)
    torch.testing.assert_close(channels[:, 1], x.double().mean(0), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(whole[0, 2], x.double().var(correction=0) * 240, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0, 8), (2, 0)])
def test_nothing_to_do(shape: tuple[int, ...]) -> None:
    x, gain = torch.empty(shape, requires_grad=True), torch.ones(shape[-1], requires_grad=True)
    y = EMULATED.norm(x, gain, None, "rms", 1e-5, False)[0]
    y.sum().backward()
    assert y.shape == x.shape and gain.grad is not None and gain.grad.eq(0).all()
    assert EMULATED.moments(x.detach(), None).shape == (*shape[:-1], 8)
    number = torch.ones((), requires_grad=True)
    EMULATED.squash(x, number, None, None, None, "tanh").sum().backward()
    assert number.grad == 0


def test_a_type_without_kernels_is_refused() -> None:
    with pytest.raises(NormlabError, match="no kernel for torch.float64: give one of torch.float32"):
        EMULATED.norm(draw(2, 8).double(), None, None, "rms", 1e-5, False)


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_every_device_gives_the_same(device: Device) -> None:
    x = draw(3, 30_000)
    y = Operations(EmulatedDriver(device)).norm(x, None, None, "layer", 1e-5, False)[0]
    assert error_in_ulp(y, reference(Norm("layer"), x)[0], 1.0) <= 8


def test_launches_go_to_the_stream_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[object] = []

    @contextmanager
    def entering(what: object) -> Any:
        entered.append(what)
        yield

    cupy = EmulatedDriver().cupy
    cuda = type("cuda", (), {"Stream": type("Stream", (), {"from_external": staticmethod(entering)})})
    monkeypatch.setattr(type(cupy), "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "device", entering)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: type("Stream", (), {"cuda_stream": 0x50 + index}))
    with CupyDriver(lambda: cupy).current(3):
        assert entered == [3, _Stream(0x53)] and _Stream(0x53).__cuda_stream__() == (0, 0x53)


@pytest.mark.needs("nvrtc")
def test_cupy_takes_the_stream_and_the_source() -> None:
    import cupy

    from normlab.cupy_kernels import every_kernel, render

    spec = every_kernel()[0]
    assert cupy.cuda.Stream.from_external(_Stream(0x50)).ptr == 0x50
    assert cupy.RawModule(code=render([spec])).code == render([spec])
    assert {"MaxSharedMemoryPerBlockOptin", "MultiProcessorCount"} <= {
        name.removeprefix("cudaDevAttr") for name in dir(cupy.cuda.runtime)
    }


def test_without_cupy_the_error_says_what_to_install() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(NormlabError, match="the CUDA kernels cannot run here: "), CupyDriver().current(0):
            nullcontext()


def test_the_reference_is_what_the_modules_compute() -> None:
    x, gain, bias = draw(3, 64), draw(64), draw(64, seed=1)
    y = cpu.norm_formula(x, gain, bias, "layer", 1e-5, False)
    assert y.equal(F.layer_norm(x, (64,), gain, bias)) and torch.ops.normlab.norm(x, gain, bias, "layer", 1e-5, False)[
        0
    ].equal(y)
