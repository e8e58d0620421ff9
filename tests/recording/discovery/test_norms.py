"""Kinds of norms, told by what they compute."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normlab.norms.derf import Derf
from normlab.norms.dyt import DyT
from normlab.recording.discovery.norms import probed


class Plain(nn.Module):
    """LayerNorm with the unbiased deviation and ε outside the root, as nobody names it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.a * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b


class LayerNorm(nn.Module):
    """An RMSNorm by another name, with gain 1 + w, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(16))

    def forward(self, hidden: Tensor) -> Tensor:
        x = hidden.float()
        return ((1 + self.w.float()) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)).type_as(hidden)


class Unit(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / (x.norm(dim=-1, keepdim=True) + 1e-8)


KINDS = [
    (nn.LayerNorm(16), "layernorm, over 16, bias, eps 1e-05"),
    (nn.LayerNorm(16, eps=1e-12, bias=False), "layernorm, over 16, eps 1e-12"),
    (nn.LayerNorm(16, elementwise_affine=False), "layernorm, over 16, no gain, eps 1e-05"),
    (nn.RMSNorm(16, eps=1e-6), "rmsnorm, over 16, eps 1e-06"),
    (nn.RMSNorm(16), "rmsnorm, over 16, eps 1e-07"),  # that of float32
    (LayerNorm(), "rmsnorm, over 16, gain 1 + w, eps 1e-05"),
    (Plain(), "layernorm, over 16, bias, eps 1e-06, eps outside the root, unbiased variance"),
    (Unit(), "l2norm, over 16, no gain, eps 1e-08, eps outside the root"),
]


@pytest.mark.parametrize(("module", "words"), KINDS, ids=[type(module).__name__ for module, _ in KINDS])
def test_the_kind_is_what_it_computes(module: nn.Module, words: str) -> None:
    assert str(probed(module, (2, 5, 16))) == words


def test_weights_play_no_part_nor_does_their_absence() -> None:
    assert str(probed(LayerNorm().to("meta"), (2, 5, 16))) == str(probed(LayerNorm(), (2, 5, 16)))


def test_the_roles_of_its_parameters() -> None:
    kind = probed(Plain(), (5, 16))
    assert kind is not None and dict(kind.parameters) == {"a": "norm_gain", "b": "norm_bias"}


@pytest.mark.parametrize(
    "module", [nn.GELU(), nn.Identity(), nn.Softmax(-1), nn.Tanh(), nn.Dropout(), nn.ReLU(), nn.Linear(16, 16)]
)
def test_other_modules_are_none(module: nn.Module) -> None:
    assert probed(module, (2, 5, 16)) is None


class Bounded(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.g, self.b, self.function = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.g * self.function(x) + self.b


SQUASHES: dict[str, tuple[nn.Module, str]] = {
    "dyt": (DyT(8), "dyt, over 8, bias"),
    "dyt, no bias": (DyT(8, bias=False), "dyt, over 8"),
    "derf": (Derf(8), "derf, over 8, bias"),
    "tanh": (Bounded(lambda x: (0.3 * x + 0.1).tanh()), "dyt, over 8, bias"),
    "softsign": (Bounded(lambda x: x / (1 + x.abs())), "squash, over 8, a gain of another form, bias"),
}


@pytest.mark.parametrize("case", SQUASHES)
def test_a_squash_in_place_of_a_norm_is_known_by_what_it_computes(case: str) -> None:
    module, words = SQUASHES[case]
    kind = probed(module, (2, 5, 8))
    assert kind is not None and str(kind) == words
    assert case == "softsign" or {role for _, role in kind.parameters} >= {"norm_gain"}


@pytest.mark.parametrize("module", [nn.Tanh(), nn.GELU(), Bounded(torch.relu), Bounded(lambda x: x), nn.Linear(8, 8)])
def test_activations_are_no_norms(module: nn.Module) -> None:
    assert probed(module, (2, 5, 8)) is None
