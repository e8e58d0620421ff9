"""Half precision, the order of rounding and gain, ε, and tokens that are zero."""

import math

import pytest
import torch
from torch import Tensor

from normlab.norms import NORMS, frozen_statistics

HALVES = [torch.float16, torch.bfloat16]
TRAINED = sorted(set(NORMS) - {"identity"})
CAST = sorted(name for name in NORMS if "cast" in NORMS[name].options)
D = 64


def _tokens(dtype: torch.dtype) -> Tensor:
    x = 4 * torch.randn(2, 8, D, generator=torch.Generator().manual_seed(0))
    return x.to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", TRAINED)
def test_half_precision_rounds_once(name: str, dtype: torch.dtype) -> None:
    norm, x = NORMS[name].make(D, eps=1e-5).to(dtype), _tokens(dtype)
    exact = NORMS[name].make(D, eps=1e-5).double()(x.double())
    assert norm(x).dtype == dtype
    # Half a unit in the last place, and what float32 loses before the rounding.
    torch.testing.assert_close(norm(x).double(), exact, rtol=0.501 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted({"layernorm", "rmsnorm", "groupnorm", "scalenorm", "l2norm", "powernorm"}))
def test_squares_beyond_the_largest_half_do_not_overflow(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([300.0, -300.0] * 4).repeat(2, 1).to(dtype)
    result = NORMS[name].make(8, eps=1e-5).to(dtype)(x)
    expected = 1 / math.sqrt(8) if name == "l2norm" else 1.0
    torch.testing.assert_close(result.abs().float(), torch.full((2, 8), expected), rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CAST)
def test_cast_says_whether_rounding_comes_before_the_gain(name: str, dtype: torch.dtype) -> None:
    norms = {cast: NORMS[name].make(D, eps=1e-5, gain=True, cast=cast).to(dtype) for cast in ("before", "after")}
    gain = torch.full_like(norms["before"].gain, 1.37)
    for norm in norms.values():
        norm.gain.data.copy_(gain)
    x = _tokens(dtype)
    plain = NORMS[name].make(D, eps=1e-5).double()(x.double()) / (math.sqrt(D) if name == "scalenorm" else 1)
    expected = {"before": plain.to(dtype) * gain, "after": (plain * gain).to(dtype)}
    agree = {(ours, theirs): (norms[ours](x) == expected[theirs]).float().mean() for ours in norms for theirs in norms}
    # A tie between two halves can fall either way when the statistics are float32.
    assert min(agree["before", "before"], agree["after", "after"]) > 0.995
    assert max(agree["before", "after"], agree["after", "before"]) < 0.9


@pytest.mark.parametrize("name", CAST)
def test_cast_changes_nothing_in_single_precision(name: str) -> None:
    x = _tokens(torch.float32)
    torch.testing.assert_close(*(NORMS[name].make(D, eps=1e-5, cast=cast)(x) for cast in ("before", "after")))


@pytest.mark.parametrize("name", NORMS)
def test_zero_tokens_stay_zero_and_pass_a_finite_gradient(name: str) -> None:
    x = torch.zeros(2, 3, D, requires_grad=True)
    y = NORMS[name].make(D, eps=1e-5)(x)
    y.sum().backward()
    assert not y.any()
    assert x.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # inside torch's forward mode
@pytest.mark.parametrize(
    ("name", "slope"), [("rmsnorm", 1.0), ("l2norm", 1.0), ("scalenorm", math.sqrt(D)), ("powernorm", 1.0)]
)
def test_at_zero_the_slope_is_one_over_root_eps(name: str, slope: float) -> None:
    norm, x = NORMS[name].make(D, eps=0.04).double(), torch.zeros(2, D, dtype=torch.float64)
    direction = torch.ones_like(x)
    with frozen_statistics():
        _, change = torch.func.jvp(norm, (x,), (direction,))
    torch.testing.assert_close(change, slope / 0.2 * direction)


@pytest.mark.parametrize("name", ["scalenorm", "l2norm"])
def test_a_clamped_length_changes_no_longer_token(name: str) -> None:
    x = _tokens(torch.float64)
    torch.testing.assert_close(NORMS[name].make(D, eps=1.0).double()(x), NORMS[name].make(D, eps=0.0).double()(x))


def test_constant_tokens_are_zero_for_layernorm_and_not_for_rmsnorm() -> None:
    x = torch.full((2, D), 7.0)
    assert not NORMS["layernorm"].make(D, eps=1e-5)(x).any()
    torch.testing.assert_close(NORMS["rmsnorm"].make(D, eps=0.0)(x), torch.ones(2, D))
