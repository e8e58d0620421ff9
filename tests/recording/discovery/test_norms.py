"""Kinds of norms, told by what they compute."""

import pytest
import torch
from torch import Tensor, nn

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
