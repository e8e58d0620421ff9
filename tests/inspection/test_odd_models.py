"""What is said of models that nobody planned for, each time the one sentence that is true."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Inspection

WIDTH, LENGTH = 16, 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def update(self, x: Tensor) -> Tensor:
        return self.down(self.up(self.norm(x)).relu())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.update(x)


class Scaled(Block):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5 * self.update(x)


class InPlace(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x += self.update(x)
        return x


class Mixed(Block):
    """Takes no other number of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.over = nn.Linear(LENGTH, LENGTH)

    def update(self, x: Tensor) -> Tensor:
        return self.over(self.norm(x).mT).mT


class Half(Block):
    """Works on the first tokens of each sequence only."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Block()

    def forward(self, x: Tensor) -> Tensor:
        first, rest = x.split(x.shape[1] // 2, 1)
        return torch.cat([self.inner(first), rest], 1)


class Model(nn.Module):
    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 256)
        self.blocks = nn.Sequential(*(block() for _ in range(3)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.table(tokens)))


def _said(found: Inspection, topic: str) -> str:
    return " ".join(one.says for one in found.findings if one.topic == topic)


def _inspected(block: Callable[[], nn.Module], backward: bool = True) -> Inspection:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Model(block)
    return nl.inspect(model, batch=2, tokens=LENGTH, backward=backward)


def test_an_update_that_no_module_shows_is_not_a_stream_that_was_not_seen() -> None:
    said = _said(_inspected(Scaled), "rounding of bf16")
    assert "the stream was seen at 4 places" in said and "both terms of a residual sum" in said


def test_a_model_of_one_number_of_tokens() -> None:
    found = _inspected(Mixed)
    assert "x ← x + Mix(LN(x))    blocks 1-3" in str(found)
    assert _said(found, "attention logits").startswith("Not seen: no softmax")


def test_a_backward_pass_that_the_model_does_not_have_is_one_sentence() -> None:
    with pytest.raises(DataError, match=r"the backward pass of Model failed .* \(--no-grad, backward=False\)"):
        _inspected(InPlace)
    assert "placement pre" in str(_inspected(InPlace, backward=False))


def test_a_stream_of_some_of_the_tokens_says_so() -> None:
    assert "The stream has 12 tokens, and the batch 24." in _said(_inspected(Half), "growth of the stream")
    assert "The stream has" not in _said(_inspected(Block), "growth of the stream")
