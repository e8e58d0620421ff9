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


class Part(nn.Module):
    def __init__(self, operation: Callable[..., Tensor]) -> None:
        super().__init__()
        self.norm, self.operation = nn.LayerNorm(8), operation
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm(x)
        result: Tensor = x + self.o(self.operation(self.q(n), self.k(n), self.v(n)))
        return result


@pytest.mark.parametrize(("operation", "sublayer"), [(attend, "attn"), (bend, "mlp")])
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
