"""From a text to a batch: the same text gives the same windows for every model."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normlab import data
from normlab.errors import DataError, counted
from normlab.inspection.subject import Feed, Subject, masked
from normlab.models import Transformer
from normlab.recording.discovery.example import describes_itself

#: Characters that are read for a token at first, and at most.
_CHARACTERS, _MOST = 8, 512
_BYTES = 256


@dataclass(frozen=True)
class Windows:
    """Where a batch comes from.

    Attributes:
        batch: sequences.
        tokens: tokens in each.
        path: a UTF-8 file; the documentation of Python's standard library unless given.
        seed: of the places of the windows.

    Raises:
        DataError: one of them is of another kind.
    """

    batch: int = 2
    tokens: int = 128
    path: Path | str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        data.Text(self.batch, self.tokens)  # refuses what are no sizes
        if not isinstance(self.path, Path | str | None):
            raise DataError(f"text is {self.path!r}: give the path of a UTF-8 file")
        if not _is_seed(self.seed):
            raise DataError(f"seed is {self.seed!r}: give a whole number of at least 0")
        object.__setattr__(self, "path", None if self.path is None else Path(self.path))
        object.__setattr__(self, "seed", int(self.seed))

    def feed(self, subject: Subject) -> Feed:
        """Return the batch for a model, on the model's device.

        Raises:
            DataError: the text cannot be read, or is too short.
        """
        feed = self._of_bytes(subject) if subject.tokenizer is None else self._of_words(subject)
        _check_vocabulary(subject, feed)
        if subject.aim == "masked tokens" and subject.mask_token is not None:
            feed = masked(feed, subject.mask_token)
        device = next((parameter.device for parameter in subject.model.parameters()), torch.device("cpu"))
        return feed.on(device)

    def columns(self) -> dict[str, object]:
        """Return the table's columns ``data``, ``batch`` and ``tokens``."""
        return self._source().columns()

    def _source(self) -> data.Text:
        return data.Text(self.batch, self.tokens, None if self.path is None else str(self.path))

    def _of_bytes(self, subject: Subject) -> Feed:
        tokens, targets = self._source().draw(self.seed)
        words = tuple(tuple(chr(byte) for byte in row) for row in tokens.tolist())
        model = subject.model
        if isinstance(model, Transformer):
            both = model.spec.kind == "encoder-decoder"
            return Feed(tokens, targets, words, (tokens, targets) if both else (tokens,))
        return Feed(tokens, _targets(subject, tokens, targets), words, **_arguments(subject, tokens))

    def _of_words(self, subject: Subject) -> Feed:
        text = self._text()
        generator = torch.Generator().manual_seed(self.seed)
        places = torch.rand(self.batch, generator=generator).tolist()
        rows = [self._row(subject.tokenizer, text, place) for place in places]
        tokens = torch.tensor([row for row, _ in rows])
        following = torch.tensor([[*row[1:], last] for row, last in rows])
        words = tuple(tuple(_word(subject.tokenizer, number) for number in row) for row in tokens.tolist())
        return Feed(tokens, _targets(subject, tokens, following), words, **_arguments(subject, tokens))

    def _text(self) -> str:
        if self.path is None:
            from pydoc_data.topics import topics

            return "\n".join(topics[name] for name in sorted(topics))
        self._source().columns()  # reads it, with a sentence for each way in which a text cannot be used
        return Path(self.path).read_text(encoding="utf-8")

    def _row(self, tokenizer: Any, text: str, place: float) -> tuple[list[int], int]:
        """Return the tokens from a word's start at ``place`` in [0, 1) on, and the one that follows them.

        Whatever a model is to predict, its window is the same, so one more token is asked for of every text.
        """
        wanted = self.tokens + 1
        room = _CHARACTERS * wanted
        while True:
            start = _word_start(text, int(place * max(1, len(text) - room)))
            numbers, reach = _first(tokenizer, text, start, wanted)
            if len(numbers) == wanted:
                break
            if room >= len(text) or room > _MOST * wanted:
                raise DataError(
                    f"{self.path or 'the text'} gives {counted(len(numbers), 'token')} from character {start} on, and "
                    f"a window takes {wanted}: give a longer text or fewer tokens"
                )
            room *= 4  # the text ends too soon after this place
        tokens = _numbers(tokenizer, text[start : start + reach], self.tokens)
        # A tokenizer that closes each text with a token of its own closes this one earlier: nothing follows that.
        return tokens, numbers[-1] if numbers[:-1] == tokens else -100


def _first(tokenizer: Any, text: str, start: int, wanted: int) -> tuple[list[int], int]:
    """Return the first tokens from a character on, at most so many, and how many characters were read."""
    reach = _CHARACTERS * wanted
    while True:
        numbers = _numbers(tokenizer, text[start : start + reach], wanted)
        if len(numbers) == wanted or start + reach >= len(text) or reach > _MOST * wanted:
            return numbers, reach
        reach *= 4


def _numbers(tokenizer: Any, text: str, most: int) -> list[int]:
    return list(tokenizer(text, truncation=True, max_length=most)["input_ids"])


def _is_seed(value: object) -> bool:
    if isinstance(value, bool):  # which is a whole number to Python
        return False
    return isinstance(value, Integral) and 0 <= int(value) < 2**63


def _word_start(text: str, place: int) -> int:
    """Return where the word begins that follows ``place``, or 0."""
    if not place:
        return 0
    space = text.find(" ", place)
    return 0 if space < 0 else space + 1


def _word(tokenizer: Any, number: int) -> str:
    decode = getattr(tokenizer, "decode", None)
    return str(decode([number])) if decode is not None else str(number)


def _targets(subject: Subject, tokens: Tensor, following: Tensor) -> Tensor | None:
    """Return what is to be predicted of each token: itself, or the token that follows it."""
    match subject.aim:
        case "probe":
            return None
        case "masked tokens" | "same tokens":
            return tokens.clone()
    return following


def _arguments(subject: Subject, tokens: Tensor) -> dict[str, Any]:
    model = subject.model
    parameters = inspect.signature(model.forward).parameters
    if "input_ids" not in parameters:
        _check_takes_tokens(subject, parameters)
        return {"args": (tokens,)}
    kwargs: dict[str, Any] = {"input_ids": tokens}
    if "decoder_input_ids" in parameters:
        # Teacher forcing: the decoder sees each token one position later.
        start = getattr(model.config, "decoder_start_token_id", None) or 0
        kwargs["decoder_input_ids"] = torch.cat([torch.full_like(tokens[:, :1], start), tokens[:, :-1]], dim=1)
    if "use_cache" in parameters:
        kwargs["use_cache"] = False
    return {"kwargs": kwargs}


def _check_takes_tokens(subject: Subject, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Refuse a model whose forward takes something else than tokens, or more."""
    main = getattr(subject.model, "main_input_name", "input_ids") if describes_itself(subject.model) else "input_ids"
    if main != "input_ids":
        raise DataError(f"{subject.name} takes {main}, not tokens of text: give a model of text")
    named = [one for one in parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    needed = [one.name for one in named if one.default is one.empty]
    only_named = [one.name for one in named if one.default is one.empty and one.kind is one.KEYWORD_ONLY]
    if len(needed) > 1 or only_named or not parameters:
        raise DataError(
            f"the forward of {subject.name} takes {' and '.join(needed) or 'nothing'}: wrap it in a module whose "
            "forward takes the tokens [batch, token] alone"
        )


def _check_vocabulary(subject: Subject, feed: Feed) -> None:
    """Refuse tokens that the model has no embedding for, where it says how many it has."""
    known, largest = _vocabulary(subject.model), int(feed.tokens.max())
    if known is not None and largest >= known:
        source = "the text, read as bytes," if subject.tokenizer is None else "the tokenizer"
        raise DataError(
            f"{subject.name} knows the tokens 0 to {known - 1}, and {source} gives {largest}: give the tokenizer that "
            "belongs to the model"
        )


def notes_of(subject: Subject) -> tuple[str, ...]:
    """Return what should be known about how a model was loaded, and about what it reads."""
    known = _vocabulary(subject.model)
    if subject.tokenizer is not None or known is None or known <= _BYTES:
        return subject.notes
    return (
        *subject.notes,
        f"No tokenizer was given: the bytes of the text stand for {_BYTES} of the model's {known} tokens, which are no "
        "text to it; give the tokenizer that belongs to the model.",
    )


def _vocabulary(model: nn.Module) -> int | None:
    if isinstance(model, Transformer):
        return model.spec.vocab
    if not describes_itself(model):
        return None
    read: Any = getattr(model, "get_input_embeddings", None)
    try:
        table = read() if read is not None else None
    except NotImplementedError:
        return None
    weight = getattr(table, "weight", None)
    return int(weight.shape[0]) if isinstance(weight, Tensor) and weight.dim() == 2 else None
