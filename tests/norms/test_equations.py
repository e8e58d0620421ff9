"""Every norm against its equation, written out by hand in float64, and its derivatives by finite differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor, nn

from normlab.norms import NORMS

WIDTH, EPS = 8, 0.3


def _root_mean_square(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + EPS)


def _standardized(x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    centred = x - x.mean(axis=axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=axis, keepdims=True) + EPS)


def _groups(x: np.ndarray) -> np.ndarray:
    return _standardized(x.reshape(*x.shape[:-1], 4, WIDTH // 4), axis=-1).reshape(x.shape)


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.sqrt((x**2).sum(axis=-1, keepdims=True)), np.sqrt(EPS))


EQUATIONS: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray]] = {
    "identity": lambda x, p: x,
    "layernorm": lambda x, p: p["gain"] * _standardized(x, axis=-1) + p["bias"],
    "rmsnorm": lambda x, p: p["gain"] * x / _root_mean_square(x),
    "groupnorm": lambda x, p: p["gain"] * _groups(x) + p["bias"],
    "scalenorm": lambda x, p: p["gain"] * _unit(x),
    "l2norm": lambda x, p: _unit(x),
    "dyt": lambda x, p: p["gain"] * np.tanh(p["alpha"] * x) + p["bias"],
    "derf": lambda x, p: p["gain"] * special.erf(p["alpha"] * x + p["shift"]) + p["bias"],
    "batchnorm": lambda x, p: p["gain"] * _standardized(x, axis=(0, 1)) + p["bias"],
    "powernorm": lambda x, p: p["gain"] * x / np.sqrt((x**2).mean(axis=(0, 1)) + EPS) + p["bias"],
}


def _norm(name: str) -> nn.Module:
    """Build a norm in float64 whose parameters are all different numbers."""
    norm = NORMS[name].make(WIDTH, eps=EPS).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.normal_(generator=generator)
    return norm


def _tokens() -> Tensor:
    """Tokens of different sizes and means; the last is nearly zero."""
    x = 3 * torch.randn(2, 3, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) + 1
    x[1, 2] *= 0.01
    return x


def test_every_norm_has_an_equation_here() -> None:
    assert {"identity", *EQUATIONS} == set(NORMS)


@pytest.mark.parametrize("name", EQUATIONS)
def test_forward_is_the_equation(name: str) -> None:
    norm, x = _norm(name), _tokens()
    parameters = {key: value.detach().numpy() for key, value in norm.named_parameters()}
    np.testing.assert_allclose(norm(x).detach(), EQUATIONS[name](x.numpy(), parameters), rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # inside torch's forward mode
@pytest.mark.parametrize("name", EQUATIONS)
def test_derivatives_are_those_of_the_forward_pass(name: str) -> None:
    norm, x = _norm(name), _tokens().requires_grad_()
    names = [key for key, _ in norm.named_parameters()]

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(norm, dict(zip(names, parameters, strict=True)), (x,))

    inputs = (x, *(parameter.detach().requires_grad_() for parameter in norm.parameters()))
    torch.autograd.gradcheck(run, inputs, check_forward_ad=True)


@pytest.mark.parametrize("name", EQUATIONS)
def test_the_shape_before_the_features_is_free(name: str) -> None:
    norm, x = _norm(name), _tokens()
    torch.testing.assert_close(norm(x.flatten(0, 1)), _norm(name)(x).flatten(0, 1))
    torch.testing.assert_close(norm(x.flip(-1).flip(-1)), norm(x))


@pytest.mark.parametrize("name", sorted(name for name in NORMS if "initial_gain" in NORMS[name].options))
def test_initial_gain_multiplies_what_a_gain_of_one_gives(name: str) -> None:
    x = _tokens()
    results = [NORMS[name].make(WIDTH, eps=EPS, gain=True, initial_gain=gain).double()(x) for gain in (1.0, 0.25, 0.0)]
    torch.testing.assert_close(results[1], 0.25 * results[0])
    assert not results[2].any()


@pytest.mark.parametrize("name", sorted(name for name in NORMS if "gain" in NORMS[name].options))
def test_gain_and_bias_can_be_left_out(name: str) -> None:
    off = {option: False for option in ("gain", "bias") if option in NORMS[name].options}
    norm, x = NORMS[name].make(WIDTH, eps=EPS, **off), _tokens()
    assert not {"gain", "bias"} & {key for key, _ in norm.named_parameters()}
    torch.testing.assert_close(norm.double()(x), NORMS[name].make(WIDTH, eps=EPS, gain=True).double()(x))
