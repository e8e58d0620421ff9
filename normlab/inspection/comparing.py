"""Comparing two models on the same input, or the tables of two runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch

from normlab import table as tables
from normlab.errors import DataError
from normlab.inspection.comparison import Comparison
from normlab.inspection.feeding import Windows
from normlab.inspection.inspecting import inspect_subject, plan_for
from normlab.inspection.loading import load_subject
from normlab.inspection.ratios import ratios
from normlab.inspection.streams import Stream, fed, streams
from normlab.inspection.subject import Feed, Subject
from normlab.inspection.tokens import median_share
from normlab.models import Transformer
from normlab.recording import Address, Architecture
from normlab.sweeps import load

#: Two models part where a block of one adds more than this many roundings of the coarser dtype.
ROUNDINGS: Final = 8
#: Two runs part where their streams' rms differ by more than this share.
SHARE: Final = 0.05


def compare(
    a: Any,
    b: Any,
    *,
    text: Path | str | None = None,
    batch: int = 2,
    tokens: int = 128,
    seed: int = 0,
    backward: bool = True,
    tolerance: float | None = None,
) -> Comparison:
    """Say where two models part on the same input, or two runs.

    Args:
        a: a model: a module, a :class:`Subject`, or what :func:`load_subject` takes; or a table, a run folder or a
            table's file.
        b: the other, of the same kind.
        text: for models, a UTF-8 file; the documentation of Python's standard library unless given.
        batch: sequences.
        tokens: tokens in each.
        seed: of the places of the windows, and of the weights of a spec.
        backward: whether gradients are compared too.
        tolerance: what a block may add to the divergence; 8 roundings of the coarser dtype for models. For runs how
            much the rms of the streams may differ; 5 %.

    Raises:
        DataError: they cannot be compared.
        RecordingError: no residual stream was found.
    """
    one, two = _table(a), _table(b)
    if one is not None and two is not None:
        return compare_runs(one, two, _name(a), _name(b), tolerance)
    if one is not None or two is not None:
        raise DataError("one of the two is a run and the other is not: compare two models or two runs")
    subjects = [_subject(one, seed) for one in (a, b)]
    windows = Windows(batch, tokens, None if text is None else Path(text), seed)
    return compare_subjects(subjects[0], subjects[1], windows, backward=backward, tolerance=tolerance)


def run_at(path: Path) -> Path | None:
    """Return what :func:`normlab.load` takes, if a path is a run folder, that of an inspection, or a table's file."""
    if (path / "run.json").is_file() or path.name.endswith((".csv", ".csv.gz", ".parquet")):
        return path
    return path / "results.csv.gz" if (path / "inspection.json").is_file() else None


def _table(one: Any) -> pd.DataFrame | None:
    if isinstance(one, pd.DataFrame):
        return one
    path = run_at(Path(one)) if isinstance(one, str | Path) else None
    return None if path is None else load(path)


def _name(one: Any) -> str:
    return "a table" if isinstance(one, pd.DataFrame) else str(one)


def _subject(one: Any, seed: int) -> Subject:
    if isinstance(one, Subject):
        return one
    return Subject(type(one).__name__, one) if isinstance(one, torch.nn.Module) else load_subject(str(one), seed=seed)


def compare_runs(
    a: pd.DataFrame, b: pd.DataFrame, name_a: str, name_b: str, tolerance: float | None = None
) -> Comparison:
    """Compare the tables of two runs of one model each.

    Raises:
        DataError: a table holds several models, or they have nothing in common.
    """
    limit = SHARE if tolerance is None else tolerance
    table = tables.from_rows(ratios(a, b))
    return Comparison(name_a, name_b, "runs", table, limit)


def compare_subjects(
    a: Subject, b: Subject, windows: Windows, *, backward: bool = True, tolerance: float | None = None
) -> Comparison:
    """Compare two models that were loaded, on the same batch.

    Raises:
        DataError: they do not read the same tokens, or have no stream of the same name and width.
        RecordingError: no residual stream was found.
    """
    a, b = _same_tokenizer(a, b), _same_tokenizer(b, a)
    feeds = windows.feed(a), windows.feed(b)
    if not torch.equal(*(feed.tokens.cpu() for feed in feeds)):
        raise DataError(
            f"{a.name} and {b.name} turn the text into different tokens: inspect each with --out and compare the tables"
        )
    looks = [inspect_subject(one, windows, backward=backward) for one in (a, b)]
    limit = ROUNDINGS * max(_eps(one) for one in (a, b)) if tolerance is None else tolerance
    rows = list(_divergences((a, b), feeds, [one.architecture for one in looks]))
    table = tables.from_rows([*rows, *ratios(looks[0].table, looks[1].table)])
    return Comparison(
        _label(a), _label(b), "models", table, limit, losses=(looks[0].loss, looks[1].loss), notes=_notes(a, b)
    )


def _same_tokenizer(one: Subject, other: Subject) -> Subject:
    """Let a model that reads tokens of its own choice read those of the other."""
    if one.tokenizer is not None or other.tokenizer is None or isinstance(one.model, Transformer):
        return one
    return replace(one, tokenizer=other.tokenizer, task=other.task)


def _eps(subject: Subject) -> float:
    return torch.finfo(next(parameter.dtype for parameter in subject.model.parameters())).eps


def _notes(a: Subject, b: Subject) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{one.name}: {note}" for one in (a, b) for note in one.notes))


def _label(subject: Subject) -> str:
    """Return a model's name with what tells it from the same model loaded otherwise."""
    dtype = str(next(subject.model.parameters()).dtype).removeprefix("torch.")
    attention = getattr(getattr(subject.model, "config", None), "_attn_implementation", None)
    return f"{subject.name} ({dtype}{f', {attention} attention' if attention else ''})"


def _divergences(subjects: tuple[Subject, Subject], feeds: tuple[Feed, Feed], found: list[Architecture]) -> Any:
    """Yield the rows of divergence, inherited and added."""
    batch, length = feeds[0].tokens.shape
    seen = []
    for subject, feed, each in zip(subjects, feeds, found, strict=True):
        run = _runner(subject, feed)
        seen.append(streams(subject.model, plan_for(subject, each), run, (batch, length)))
    common = [name for name in seen[0] if name in seen[1]]
    if not common:
        raise DataError(
            f"{subjects[0].name} has the stacks {', '.join(seen[0])} and {subjects[1].name} {', '.join(seen[1])}"
        )
    for name in common:
        one, two = seen[0][name], seen[1][name]
        if next(iter(one.values.values())).shape != next(iter(two.values.values())).shape:
            raise DataError("the two streams differ in width: inspect each with --out and compare the tables")
        yield from _of_stream(one, two)
        own = fed(subjects[1].model, found[1], name, _runner(subjects[1], feeds[1]), two, one)
        yield from _split(one, two, own.after, own.reason)


def _runner(subject: Subject, feed: Feed) -> Any:
    return lambda: subject.forward(feed)


def _of_stream(one: Stream, two: Stream) -> Any:
    for at, x in one.values.items():
        if at in two.values:
            yield _row(at, "divergence", median_share(two.values[at].to(x.device).double() - x.double(), x))


def _split(one: Stream, two: Stream, after: Any, reason: str) -> Any:
    for layer, at in one.ends.items():
        if not layer or layer not in two.ends:
            continue
        if layer not in after:
            for quantity in ("inherited", "added"):
                yield _row(at, quantity, float("nan"), reason or "the block before has no stream to feed")
            continue
        x, y = one.after(layer), after[layer].double()
        yield _row(at, "inherited", median_share(two.after(layer).double() - y, x))
        yield _row(at, "added", median_share(y - x.double(), x))


def _row(at: Address, quantity: str, value: float, status: str = "") -> dict[str, object]:
    known = status or ("undefined" if value != value else "exact-zero" if value == 0 else "ok")
    place = {"stack": at.stack, "layer": at.layer, "sublayer": at.sublayer, "site": at.site}
    return {**place, "quantity": quantity, "value": value, "status": known}
