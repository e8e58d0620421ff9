"""From a text to a batch: the same text gives the same windows for every model."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normlab import data
from normlab.errors import DataError
from normlab.inspection.subject import Feed, Subject, masked
from normlab.models import Transformer

#: Characters that are read for a token at first, and at most.
_CHARACTERS, _MOST = 8, 512


@dataclass(frozen=True)
class Windows:
    """Where a batch comes from.

    Attributes:
        batch: sequences.
        tokens: tokens in each.
        path: a UTF-8 file; the documentation of Python's standard library unless given.
        seed: of the places of the windows.
    """

    batch: int = 2
    tokens: int = 128
    path: Path | None = None
    seed: int = 0

    def feed(self, subject: Subject) -> Feed:
        """Return the batch for a model, on the model's device.

        Raises:
            DataError: the text cannot be read, or is too short.
        """
        feed = self._of_bytes(subject.model) if subject.tokenizer is None else self._of_words(subject)
        device = next((parameter.device for parameter in subject.model.parameters()), torch.device("cpu"))
        return feed.on(device)

    def columns(self) -> dict[str, object]:
        """Return the table's columns ``data``, ``batch`` and ``tokens``."""
        return self._source().columns()

    def _source(self) -> data.Text:
        return data.Text(self.batch, self.tokens, None if self.path is None else str(self.path))

    def _of_bytes(self, model: nn.Module) -> Feed:
        tokens, targets = self._source().draw(self.seed)
        words = tuple(tuple(chr(byte) for byte in row) for row in tokens.tolist())
        both = isinstance(model, Transformer) and model.spec.kind == "encoder-decoder"
        return Feed(tokens, targets, words, (tokens, targets) if both else (tokens,))

    def _of_words(self, subject: Subject) -> Feed:
        text = self._text()
        generator = torch.Generator().manual_seed(self.seed)
        task, places = subject.task, torch.rand(self.batch, generator=generator).tolist()
        # Where the next token is the target, the last token has one too.
        wanted = self.tokens + (task == "next token")
        windows = torch.tensor([self._row(subject.tokenizer, text, place, wanted) for place in places])
        tokens, targets = windows[:, : self.tokens].contiguous(), windows[:, wanted - self.tokens :].contiguous()
        words = tuple(tuple(_word(subject.tokenizer, number) for number in row) for row in tokens.tolist())
        feed = Feed(tokens, None if task == "probe" else targets, words, **_arguments(subject.model, tokens))
        number = getattr(subject.tokenizer, "mask_token_id", None)
        return masked(feed, number) if task == "masked tokens" and number is not None else feed

    def _text(self) -> str:
        if self.path is None:
            from pydoc_data.topics import topics

            return "\n".join(topics[name] for name in sorted(topics))
        self._source().columns()  # reads it, with a sentence for each way in which a text cannot be used
        return self.path.read_text(encoding="utf-8")

    def _row(self, tokenizer: Any, text: str, place: float, wanted: int) -> list[int]:
        """Return so many tokens, from a word's start at ``place`` in [0, 1)."""
        reach = _CHARACTERS * wanted
        while True:
            start = _word_start(text, int(place * max(1, len(text) - reach)))
            numbers = list(tokenizer(text[start : start + reach], truncation=True, max_length=wanted)["input_ids"])
            if len(numbers) == wanted:
                return numbers
            if reach >= len(text) or reach > _MOST * wanted:
                raise DataError(
                    f"{self.path or 'the text'} gives {len(numbers)} tokens from character {start} on, and a window "
                    f"takes {wanted}: give a longer text or fewer tokens"
                )
            reach *= 4


def _word_start(text: str, place: int) -> int:
    """Return where the word begins that follows ``place``, or 0."""
    if not place:
        return 0
    space = text.find(" ", place)
    return 0 if space < 0 else space + 1


def _word(tokenizer: Any, number: int) -> str:
    decode = getattr(tokenizer, "decode", None)
    return str(decode([number])) if decode is not None else str(number)


def _arguments(model: nn.Module, tokens: Tensor) -> dict[str, Any]:
    parameters = inspect.signature(model.forward).parameters
    if "input_ids" not in parameters:
        return {"args": (tokens,)}
    kwargs: dict[str, Any] = {"input_ids": tokens}
    if "decoder_input_ids" in parameters:
        # Teacher forcing: the decoder sees each token one position later.
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        kwargs["decoder_input_ids"] = torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], dim=1)
    if "use_cache" in parameters:
        kwargs["use_cache"] = False
    return {"kwargs": kwargs}
