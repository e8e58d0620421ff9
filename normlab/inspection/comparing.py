"""Comparing two models on the same input, or the tables of two runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd
import torch

from normlab import table as tables
from normlab.errors import DataError
from normlab.inspection.comparison import Comparison
from normlab.inspection.diverging import Broken, Worst, alone, apart, broken
from normlab.inspection.feeding import Windows, notes_of
from normlab.inspection.inspecting import evaluating, inspect_subject, plan_for
from normlab.inspection.loading import subject_of
from normlab.inspection.ratios import ratios
from normlab.inspection.run_checks import broken_in_both, check_streams, check_table, only_one, with_dtypes
from normlab.inspection.same_data import differing
from normlab.inspection.streams import fed, rounded, streams
from normlab.inspection.subject import Feed, Subject
from normlab.models import Transformer
from normlab.recording import Architecture
from normlab.sweeps import load

#: Two models part where a block of one adds more than this many roundings of the coarser dtype.
ROUNDINGS: Final = 8
#: Two runs part where their streams' rms differ by more than this share.
SHARE: Final = 0.05


class _Found(NamedTuple):
    """What the streams of two models show: rows of the table, worst tokens, places with NaN, and what only one has."""

    rows: list[dict[str, object]]
    worst: tuple[Worst, ...]
    broken: tuple[Broken, ...]
    alone: tuple[str, ...]


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

    Models run in evaluation mode. The gradients that they have are dropped.

    Args:
        a: a model: a module, a ``ModelSpec``, a :class:`Subject`, or what :func:`load_subject` takes; or a table, a
            run folder or a table's file.
        b: the other, of the same kind.
        text: for models, a UTF-8 file; the documentation of Python's standard library unless given.
        batch: sequences.
        tokens: tokens in each.
        seed: of the places of the windows, and of the weights of a spec.
        backward: whether gradients are compared too.
        tolerance: what a block may add to the median token's divergence; 8 roundings of the coarser dtype for models.
            For runs how much the rms of the streams may differ; 5 %.

    Raises:
        DataError: they cannot be compared.
        RecordingError: no residual stream was found.
    """
    one, two = _table(a), _table(b)
    if one is not None and two is not None:
        return compare_runs(one, two, _name(a), _name(b), tolerance)
    if one is not None or two is not None:
        raise DataError("one of the two is a run and the other is not: compare two models or two runs")
    windows = Windows(batch, tokens, text, seed)
    subjects = [subject_of(one, seed=windows.seed) for one in (a, b)]
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


def compare_runs(
    a: pd.DataFrame, b: pd.DataFrame, name_a: str, name_b: str, tolerance: float | None = None
) -> Comparison:
    """Compare the tables of two runs of one model each.

    Raises:
        DataError: a table holds several models, they have nothing in common, or one has a stream that the other lacks.
    """
    for table, name in ((a, name_a), (b, name_b)):
        check_table(table, name)
    check_streams(a, b)
    limit = _limit(tolerance, SHARE)
    table = tables.from_rows(ratios(a, b))
    broken = tuple(broken_in_both(a, b))
    names = with_dtypes((name_a, name_b), a, b)
    return Comparison(
        *names,
        of="runs",
        table=table,
        tolerance=limit,
        broken=broken,
        alone=only_one(a, b),
        differs=differing(a, b),
        partial=_nonfinite(a, b),
    )


def compare_subjects(
    a: Subject, b: Subject, windows: Windows, *, backward: bool = True, tolerance: float | None = None
) -> Comparison:
    """Compare two models that were loaded, on the same batch.

    Raises:
        DataError: they do not read the same tokens, have no stream of the same name and width, or nothing to learn.
        RecordingError: no residual stream was found.
    """
    limit = _limit(tolerance, ROUNDINGS * max(_eps(one) for one in (a, b)))
    a, b = _same_tokenizer(a, b), _same_tokenizer(b, a)
    feeds = windows.feed(a), windows.feed(b)
    if not torch.equal(*(feed.tokens.cpu() for feed in feeds)):
        raise DataError(
            f"{a.name} and {b.name} turn the text into different tokens: inspect each with --out and compare the tables"
        )
    if not torch.equal(*(feed.shown.cpu() for feed in feeds)):
        one_masks = a.name if a.aim == "masked tokens" else b.name
        raise DataError(
            f"{one_masks} alone reads every seventh token as a mask, for its loss: compare two models with a head of "
            "masked tokens, or two without"
        )
    one, two = (inspect_subject(subject, windows, backward=backward) for subject in (a, b))
    for subject, each in ((a, one), (b, two)):
        if backward and not each.backward:
            raise DataError(
                f"{subject.name} has no parameter that wants a gradient (all are frozen): compare forward only, with "
                "backward=False or --no-grad"
            )
    with evaluating(a.model), evaluating(b.model):
        found = _apart((a, b), feeds, (one.architecture, two.architecture))
    return Comparison(
        a=_label(a),
        b=_label(b),
        of="models",
        table=tables.from_rows([*found.rows, *ratios(one.table, two.table, strict=False)]),
        tolerance=limit,
        losses=(one.loss, two.loss),
        notes=_notes(a, b),
        worst=found.worst,
        broken=found.broken,
        alone=found.alone,
        partial=_nonfinite(one.table, two.table),
    )


def _nonfinite(one: pd.DataFrame, two: pd.DataFrame) -> bool:
    """Say whether a number of two tables is not finite, so that some ratios are missing."""
    return any(bool((table["status"].astype(str) == "nonfinite").any()) for table in (one, two))


def _limit(tolerance: Any, usual: float) -> float:
    if tolerance is None:
        return usual
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance < float("inf"):
        raise DataError(f"tolerance is {tolerance!r}: give a finite number of at least 0")
    return float(tolerance)


def _same_tokenizer(one: Subject, other: Subject) -> Subject:
    """Let a model that reads tokens of its own choice read those of the other."""
    if one.tokenizer is not None or other.tokenizer is None or isinstance(one.model, Transformer):
        return one
    return replace(one, tokenizer=other.tokenizer, task=other.task)


def _eps(subject: Subject) -> float:
    return torch.finfo(next(parameter.dtype for parameter in subject.model.parameters())).eps


def _notes(a: Subject, b: Subject) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{one.name}: {note}" for one in (a, b) for note in notes_of(one)))


def _label(subject: Subject) -> str:
    """Return a model's name with what tells it from the same model loaded otherwise."""
    dtype = str(next(subject.model.parameters()).dtype).removeprefix("torch.")
    attention = getattr(getattr(subject.model, "config", None), "_attn_implementation", None)
    return f"{subject.name} ({dtype}{f', {attention} attention' if attention else ''})"


def _apart(
    subjects: tuple[Subject, Subject], feeds: tuple[Feed, Feed], found: tuple[Architecture, Architecture]
) -> _Found:
    """Run both models and compare their streams."""
    batch, length = feeds[0].tokens.shape
    runs = [_runner(subject, feed) for subject, feed in zip(subjects, feeds, strict=True)]
    ones, twos = (
        streams(subject.model, plan_for(subject, each), run, (batch, length))
        for subject, each, run in zip(subjects, found, runs, strict=True)
    )
    common = [name for name in ones if name in twos]
    if not common:
        raise DataError(
            f"{subjects[0].name} has the stacks {', '.join(ones)} and {subjects[1].name} {', '.join(twos)}: "
            "compare models that have a stack of the same name"
        )
    rows: list[dict[str, object]] = []
    worst: list[Worst] = []
    odd: list[Broken] = []
    for name in common:
        one, two = ones[name], twos[name]
        if next(iter(one.values.values())).shape != next(iter(two.values.values())).shape:
            raise DataError("the two streams differ in width: inspect each with --out and compare the tables")
        its = fed(subjects[1].model, found[1], name, runs[1], two, one)
        # A's stream is rounded when it enters a block of another dtype: A's own block is fed with that as well.
        entering = rounded(one, two)
        own = None if entering is None else fed(subjects[0].model, found[0], name, runs[0], one, entering)
        both = apart(one, two, its, feeds[0].words, own)
        rows += both.rows
        worst += both.worst
        odd += broken(one, two)
    return _Found(rows, tuple(worst), tuple(odd), alone(ones, twos))


def _runner(subject: Subject, feed: Feed) -> Callable[[], Any]:
    return lambda: subject.forward(feed)
