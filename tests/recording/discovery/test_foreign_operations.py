"""Operations that torch does not know: whether they mix positions is found by trying them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

import normlab as nl


@torch.library.custom_op("normlab_tests::attend", mutates_args=())
def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return scaled_dot_product_attention(query[:, None], key[:, None], value[:, None], is_causal=True)[:, 0].clone()


@torch.library.custom_op("normlab_tests::bend", mutates_args=())
def bend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return gelu(query) * key + value


@torch.library.custom_op("normlab_tests::shake", mutates_args=())
def shake(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return query + key + value + torch.randn_like(query)


@torch.library.custom_op("normlab_tests::attend_where", mutates_args=())
def attend_where(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    return (query @ key.mT).masked_fill(~seen, -torch.inf).softmax(-1) @ value


@torch.library.custom_op("normlab_tests::attend_within", mutates_args=())
def attend_within(query: Tensor, key: Tensor, value: Tensor, starts: Tensor) -> Tensor:
    result = torch.zeros_like(query)
    for first, last in zip(starts.tolist(), starts.tolist()[1:], strict=False):
        own = slice(first, last)
        result[:, own] = (query[:, own] @ key[:, own].mT).softmax(-1) @ value[:, own]
    return result


def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    places = query.shape[1]
    return attend_where(query, key, value, torch.ones(places, places, dtype=torch.bool).tril())


def packed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend_within(query, key, value, torch.tensor([0, 2, query.shape[1]]))


def alone(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend_within(query, key, value, torch.arange(query.shape[1] + 1))


class Part(nn.Module):
    def __init__(self, operation: Callable[..., Tensor]) -> None:
        super().__init__()
        self.norm, self.operation = nn.LayerNorm(8), operation
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm(x)
        result: Tensor = x + self.o(self.operation(self.q(n), self.k(n), self.v(n)))
        return result


@pytest.mark.parametrize(
    ("operation", "sublayer"), [(attend, "attn"), (bend, "mlp"), (masked, "attn"), (packed, "attn"), (alone, "mlp")]
)
def test_whether_it_mixes_positions_is_tried(operation: Callable[..., Tensor], sublayer: str) -> None:
    torch.manual_seed(0)
    found = nl.discover(nn.Sequential(*(Part(operation) for _ in range(3))), torch.randn(2, 5, 8))
    assert {one.sublayer for stack in found.stacks for one in stack.sublayers} == {sublayer}


def test_trying_leaves_random_numbers_as_they_were() -> None:
    model, batch = nn.Sequential(*(Part(shake) for _ in range(3))), torch.randn(2, 5, 8)
    torch.manual_seed(1)
    nl.discover(model, batch)
    found = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(found, torch.rand(3))
