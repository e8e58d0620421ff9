"""What models are fed: windows of bytes from a text, or random tokens.

A batch is ``(tokens, targets)``, both int64 of the shape [batch, token]; a target is the token that
follows. Texts are read as bytes, so the vocabulary is 256 whatever the language. A source is a frozen
dataclass that draws batches from seeds: :class:`Text` and :class:`Random`.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from normlab.errors import DataError, counted, suggest

Batch: TypeAlias = tuple[Int64[Tensor, "batch token"], Int64[Tensor, "batch token"]]


@runtime_checkable
class Source(Protocol):
    """Anything that draws batches from seeds; it must be hashable, picklable and deterministic."""

    @property
    def batch(self) -> int:
        """Sequences in a batch."""

    @property
    def tokens(self) -> int:
        """Tokens in a sequence."""

    def needed_vocab(self) -> int:
        """Return one more than the largest token that can be drawn."""

    def draw(self, seed: int) -> Batch:
        """Return ``(tokens, targets)``; the same seed gives the same batch."""

    def columns(self) -> dict[str, object]:
        """Return the cell's columns ``data``, ``batch`` and ``tokens`` of a table."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values that say exactly what is drawn from."""


@dataclass(frozen=True)
class Text:
    """Windows of a text, at places drawn uniformly.

    Attributes:
        batch: sequences in a batch.
        tokens: bytes in a sequence; the text must have at least one more.
        path: a UTF-8 file; the documentation of Python's standard library unless given.

    Raises:
        DataError: ``batch`` or ``tokens`` is not a whole number of at least 1.
    """

    batch: int = 4
    tokens: int = 128
    path: str | None = None

    def __post_init__(self) -> None:
        _check_sizes(self.batch, self.tokens)
        if self.path is not None:
            object.__setattr__(self, "path", os.fspath(self.path))

    def needed_vocab(self) -> int:
        """Return one more than the largest byte of the text.

        Raises:
            DataError: the text cannot be used.
        """
        return int(_corpus(self.path).content.max()) + 1

    def draw(self, seed: int) -> Batch:
        """Return ``(tokens, targets)`` of windows that ``seed`` places.

        Raises:
            DataError: the text cannot be read, is empty, binary, not UTF-8, or shorter than a window.
        """
        content = _corpus(self.path).content
        if len(content) < self.tokens + 1:
            fewer = f" or at most {counted(len(content) - 1, 'token')}" if len(content) > 1 else ""
            raise DataError(
                f"{self.path or 'the text'} has {counted(len(content), 'byte')} and a window takes {self.tokens + 1}: "
                f"give a longer text{fewer}"
            )
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, len(content) - self.tokens, (self.batch, 1), generator=generator)
        windows = content[starts + torch.arange(self.tokens + 1)].long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def columns(self) -> dict[str, object]:
        """Return ``data`` (``text:pydoc``, or ``text:`` with the file's name and hash), ``batch`` and ``tokens``.

        Raises:
            DataError: the text cannot be used.
        """
        corpus = _corpus(self.path)
        name = corpus.name if self.path is None else f"{corpus.name}-{corpus.sha256[:8]}"
        return {"data": f"text:{name}", "batch": self.batch, "tokens": self.tokens}

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes, the path, and the name and hash of what stands there.

        Raises:
            DataError: the text cannot be used.
        """
        corpus = _corpus(self.path)
        path = None if self.path is None else os.path.abspath(self.path)
        sizes = {"batch": self.batch, "tokens": self.tokens}
        return {"source": "text", **sizes, "path": path, "name": corpus.name, "sha256": corpus.sha256}


@dataclass(frozen=True)
class Random:
    """Independent tokens, uniform over the vocabulary.

    Attributes:
        batch: sequences in a batch.
        tokens: tokens in a sequence.
        vocab: number of different tokens.

    Raises:
        DataError: a value is not a whole number of at least 1.
    """

    batch: int = 4
    tokens: int = 128
    vocab: int = 256

    def __post_init__(self) -> None:
        _check_sizes(self.batch, self.tokens, self.vocab)

    def needed_vocab(self) -> int:
        """Return the vocabulary."""
        return self.vocab

    def draw(self, seed: int) -> Batch:
        """Return ``(tokens, targets)``: one random sequence a row, and the same shifted by one."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(0, self.vocab, (self.batch, self.tokens + 1), generator=generator)
        return drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous()

    def columns(self) -> dict[str, object]:
        """Return ``data`` (``random:256``), ``batch`` and ``tokens``."""
        return {"data": f"random:{self.vocab}", "batch": self.batch, "tokens": self.tokens}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return {"source": "random", "batch": self.batch, "tokens": self.tokens, "vocab": self.vocab}


_SOURCES: Final[Mapping[str, type[Text] | type[Random]]] = {"text": Text, "random": Random}


def from_dict(values: Mapping[str, Any]) -> Text | Random:
    """Build the source that ``to_dict`` of one describes.

    Raises:
        DataError: it names no source that normlab has.
    """
    name = str(values.get("source"))
    if name not in _SOURCES:
        raise DataError(f"unknown data source {name!r}: choose one of {', '.join(_SOURCES)}{suggest(name, _SOURCES)}")
    source = _SOURCES[name]
    return source(**{field.name: values[field.name] for field in fields(source) if field.name in values})


def text_batch(batch: int = 4, tokens: int = 128, seed: int = 0, path: str | Path | None = None) -> Batch:
    """Return ``(tokens, targets)`` of windows of a text: the standard library's documentation unless ``path`` is given.

    Example:
        >>> tokens, targets = text_batch(batch=2, tokens=16, seed=0)
        >>> tuple(tokens.shape), bool((tokens[:, 1:] == targets[:, :-1]).all())
        ((2, 16), True)

    Raises:
        DataError: the sizes or the text cannot be used.
    """
    return Text(batch, tokens, None if path is None else os.fspath(path)).draw(seed)


def random_batch(batch: int = 4, tokens: int = 128, seed: int = 0, vocab: int = 256) -> Batch:
    """Return ``(tokens, targets)`` of independent uniform tokens.

    Raises:
        DataError: the sizes cannot be used.
    """
    return Random(batch, tokens, vocab).draw(seed)


@dataclass(frozen=True, eq=False)
class _Corpus:
    name: str
    content: UInt8[Tensor, " byte"]
    sha256: str


def _corpus(path: str | None) -> _Corpus:
    """Read a text once per process, and again when the file has changed."""
    if path is None:
        return _documentation()
    try:
        found = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return _file(os.path.abspath(path), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _documentation() -> _Corpus:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DataError("this Python comes without its documentation (pydoc_data): give path, a UTF-8 file") from error
    return _checked("pydoc", "\n\n".join(topics[name] for name in sorted(topics)).encode())


@lru_cache(maxsize=4)
def _file(path: str, _modified: int, _size: int) -> _Corpus:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    return _checked(path, content)


def _checked(path: str, content: bytes) -> _Corpus:
    if not content:
        raise DataError(f"{path} is empty: give a UTF-8 text")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start} cannot be read): give a UTF-8 text") from error
    if b"\0" in content:
        raise DataError(f"{path} is binary (it has zero bytes): give a UTF-8 text")
    tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return _Corpus(Path(path).name, tensor, hashlib.sha256(content).hexdigest())


def _unreadable(path: str, error: OSError) -> DataError:
    return DataError(f"{path} cannot be read ({error.strerror or error}): give a UTF-8 text file")


def _check_sizes(batch: object, tokens: object, vocab: object = 256) -> None:
    for name, value in (("batch", batch), ("tokens", tokens), ("vocab", vocab)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DataError(f"{name} is {value!r}: give a whole number of at least 1")
