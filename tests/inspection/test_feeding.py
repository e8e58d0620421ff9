"""From a text to a batch."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Subject, Windows


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("one two three four five six seven eight nine ten " * 30)
    return path


def subject(checkpoints: ModuleType, kind: str) -> Subject:
    task = {"llama": "next token", "bert": "masked tokens", "t5": "same tokens"}[kind]
    return Subject(kind, checkpoints.model(kind), checkpoints.tokenizer(), task)  # type: ignore[arg-type]


def test_bytes_are_the_windows_of_data(text: Path) -> None:
    model = nl.build(nl.ModelSpec(depth=1, width=8, heads=2))
    feed = Windows(3, 10, text, seed=4).feed(Subject("m", model))
    tokens, targets = nl.data.Text(3, 10, str(text)).draw(4)
    assert torch.equal(feed.tokens, tokens) and feed.targets is not None and torch.equal(feed.targets, targets)
    assert "".join(feed.words[0]) in text.read_text()


@pytest.mark.needs("transformers")
def test_tokens_are_words_of_the_text_and_targets_follow(checkpoints: ModuleType, text: Path) -> None:
    feed = Windows(2, 12, text).feed(subject(checkpoints, "llama"))
    assert feed.targets is not None and torch.equal(feed.tokens[:, 1:], feed.targets[:, :-1])
    for row, target in zip(feed.tokens.tolist(), feed.targets.tolist(), strict=True):
        window = "".join(map(chr, [*row, target[-1]]))
        assert window in text.read_text() and window[0] != " "


@pytest.mark.needs("transformers")
def test_masked_tokens_are_the_only_targets(checkpoints: ModuleType, text: Path) -> None:
    feed = Windows(2, 15, text).feed(subject(checkpoints, "bert"))
    hidden = feed.kwargs["input_ids"] == 129
    assert feed.targets is not None and hidden.sum() == 4
    assert torch.equal(feed.targets[hidden], feed.tokens[hidden]) and (feed.targets[~hidden] == -100).all()


@pytest.mark.needs("transformers")
def test_a_decoder_sees_each_token_one_position_later(checkpoints: ModuleType, text: Path) -> None:
    feed = Windows(2, 9, text).feed(subject(checkpoints, "t5"))
    shown = feed.kwargs["decoder_input_ids"]
    assert torch.equal(shown[:, 1:], feed.tokens[:, :-1]) and not shown[:, 0].any()


@pytest.mark.needs("transformers")
def test_the_same_seed_is_the_same_batch_and_another_is_not(checkpoints: ModuleType, text: Path) -> None:
    first, again, other = (Windows(2, 9, text, seed).feed(subject(checkpoints, "llama")).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.needs("transformers")
@pytest.mark.parametrize(("content", "says"), [("short", "gives 5 tokens"), ("", "empty")])
def test_a_text_that_is_too_short_is_said(tmp_path: Path, checkpoints: ModuleType, content: str, says: str) -> None:
    path = tmp_path / "short.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=says):
        Windows(1, 9, path).feed(subject(checkpoints, "llama"))
