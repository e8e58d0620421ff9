"""What a norm's entry says about it, against what the norm does; and the invariances of a layer that it follows."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normlab.norms import NORMS

WIDTH = 12


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def _positive(*shape: int) -> Tensor:
    return _random(*shape).exp()


def _plain(name: str) -> nn.Module:
    """Build a norm without gain, bias and ε."""
    off = {option: False for option in ("gain", "bias") if option in NORMS[name].options}
    return NORMS[name].make(WIDTH, eps=0.0, **off).double()


def _unchanged(name: str, change: Callable[[Tensor], Tensor]) -> bool:
    x = _random(2, 3, WIDTH)
    return torch.allclose(_plain(name)(change(x)), _plain(name)(x), rtol=1e-9, atol=1e-9)


def _mixes_tokens(name: str) -> bool:
    x = _random(2, 3, WIDTH)
    return not torch.allclose(_plain(name)(x)[0, 0], _plain(name)(x * (1 + torch.arange(3.0))[:, None])[0, 0])


def _mixes_features(name: str) -> bool:
    jacobian = torch.autograd.functional.jacobian(_plain(name), _random(1, 3, WIDTH)).reshape(3 * WIDTH, 3 * WIDTH)
    return bool((jacobian - torch.diag(jacobian.diagonal())).abs().max() > 1e-9)


MEASURED: dict[str, Callable[[str], bool]] = {
    "per-token": lambda name: not _mixes_tokens(name),
    "pointwise": lambda name: not _mixes_features(name),
    "scale-invariant": lambda name: _unchanged(name, lambda x: 3 * x),
    "shift-invariant": lambda name: _unchanged(name, lambda x: x + 2),
    "feature-scale-invariant": lambda name: _unchanged(name, lambda x: x * _positive(WIDTH)),
    "feature-shift-invariant": lambda name: _unchanged(name, lambda x: x + _random(WIDTH)),
}


@pytest.mark.parametrize("name", NORMS)
def test_an_entry_lists_exactly_the_properties_that_hold(name: str) -> None:
    assert {key for key, holds in MEASURED.items() if holds(name)} == NORMS[name].properties


def _layer(weight: Tensor, x: Tensor) -> Tensor:
    return x @ weight.T


#: The six changes of the invariance table of Zhang and Sennrich 2019: what they do to a layer W and its inputs X,
#: and the properties that make N(W X) invariant to them.
CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], set[str]]] = {
    "weight matrix re-scaled": (lambda w: 3 * w, lambda x: x, {"scale-invariant"}),
    "weight matrix re-centred": (lambda w: w + _random(5), lambda x: x, {"shift-invariant", "per-token"}),
    "weight vector re-scaled": (lambda w: w * _positive(WIDTH, 1), lambda x: x, {"feature-scale-invariant"}),
    "data re-scaled": (lambda w: w, lambda x: 3 * x, {"scale-invariant"}),
    "data re-centred": (lambda w: w, lambda x: x + _random(5), {"feature-shift-invariant"}),
    "single case re-scaled": (lambda w: w, lambda x: x * _positive(2, 3, 1), {"scale-invariant", "per-token"}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "batchnorm", "scalenorm", "groupnorm", "powernorm", "dyt"])
def test_the_six_invariances_follow_from_the_properties(name: str, change: str) -> None:
    weights, data, needed = CHANGES[change]
    weight, x = _random(WIDTH, 5), _random(2, 3, 5)
    before, after = (_plain(name)(z) for z in (_layer(weight, x), _layer(weights(weight), data(x))))
    assert torch.allclose(before, after, rtol=1e-9, atol=1e-9) == (needed <= NORMS[name].properties)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("layernorm", "yes yes no yes no yes"),
        ("rmsnorm", "yes no no yes no yes"),
        ("batchnorm", "yes no yes yes yes no"),
    ],
)
def test_the_rows_of_the_published_table(name: str, row: str) -> None:
    held = ["yes" if needed <= NORMS[name].properties else "no" for _, _, needed in CHANGES.values()]
    assert " ".join(held) == row
