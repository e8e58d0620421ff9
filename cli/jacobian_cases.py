"""What ``normlab jacobian`` measures: models of the zoo, or one that was loaded, each on a batch of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from normlab.inspection.subject import Subject
    from normlab.jacobian import Parts
    from normlab.spec import ModelSpec

#: Entries of the stream, beyond which singular values take minutes.
MOST_ENTRIES: Final = 2**17


@dataclass(frozen=True)
class Source:
    """Where batches come from.

    Attributes:
        batch: sequences.
        tokens: tokens in each.
        text: a UTF-8 file; random tokens unless given, and for a loaded model Python's documentation.
        stack: ``decoder`` or ``encoder``; the last one if empty.
    """

    batch: int
    tokens: int
    text: Path | None
    stack: str


@dataclass(frozen=True)
class Case:
    """One model on one batch.

    Attributes:
        name: the model, in words.
        spec: what it was built from; ``None`` for a model that is not of the zoo.
        seed: of the model, and with 10000 added of the batch.
        model: the module.
        batch: what it is called with.
        cell: the table's columns that say all this.
    """

    name: str
    spec: "ModelSpec | None"
    seed: int
    model: "nn.Module"
    batch: Any
    cell: dict[str, object]

    def parts(self, stack: str) -> "Parts":
        """Return the parts of the model on the batch.

        Raises:
            JacobianError: it has none, or too many entries.
        """
        from normlab.jacobian import JacobianError, parts

        found = parts(self.model, self.batch, stack=stack)
        if found.entries > MOST_ENTRIES:
            raise JacobianError(
                f"the stream has {found.entries} entries, tokens times features: normlab jacobian takes up to "
                f"{MOST_ENTRIES}; give fewer --tokens or a smaller --batch"
            )
        return found


def theory_of(cases: Sequence[Case]) -> "pd.DataFrame":
    """Return what theory expects of the Jacobians between layers; nothing for models that are not of the zoo."""
    from normlab.table import concat

    # Which tokens of a text are equal counts, so that every batch has a theory of its own.
    of_each = [case for case in cases[:1] if case.cell["data"] == _random(case)] or cases
    return concat(_theory(case) for case in of_each if case.spec is not None)


def _theory(case: Case) -> "pd.DataFrame":
    from normlab.table import normalise
    from normlab.theory import predict

    assert case.spec is not None
    batch, tokens = int(str(case.cell["batch"])), int(str(case.cell["tokens"]))
    if case.cell["data"] == _random(case):
        table = predict(case.spec, batch, tokens)
    else:
        table = normalise(predict(case.spec, case.batch, tokens).assign(data_seed=10_000 + case.seed))
    none = table["status"].str.startswith("no theory") & (table["quantity"] == "")
    return table[table["quantity"].isin(("apjn", "singular_value", "lyapunov")) | none].reset_index(drop=True)


def _random(case: Case) -> str:
    return "" if case.spec is None else f"random:{case.spec.vocab}"


def of_specs(specs: Sequence["ModelSpec"], seeds: range, source: Source) -> Iterator[list[Case]]:
    """Yield the cases of each spec."""
    for spec in specs:
        yield [_of_spec(spec, seed, source) for seed in seeds]


def _of_spec(spec: "ModelSpec", seed: int, source: Source) -> Case:
    from normlab.data import Random, Text
    from normlab.models import build

    text = None if source.text is None else str(source.text)
    batches = Random(source.batch, source.tokens, spec.vocab)
    data = batches if text is None else Text(source.batch, source.tokens, text)
    cell = spec.columns() | data.columns() | _seeds(seed)
    name = f"{spec.placement}, {spec.norm}, depth {spec.depth}, width {spec.width}"
    return Case(name, spec, seed, build(spec, seed=seed), data.draw(10_000 + seed), cell)


def of_name(name: str, seeds: range, source: Source) -> list[Case]:
    """Return the cases of a model that a user names: a saved spec has weights of every seed, others their own.

    Raises:
        DataError: it cannot be loaded, does not take text, or is too large.
    """
    import torch

    from normlab.inspection.feeding import Windows
    from normlab.inspection.loading import load_subject
    from normlab.models import Transformer

    subject = load_subject(name, seed=seeds[0])
    _check_size(subject)
    cases = []
    for seed in seeds:
        windows = Windows(source.batch, source.tokens, source.text, 10_000 + seed)
        data = windows.columns() | _seeds(seed)
        if isinstance(subject.model, Transformer):
            subject = load_subject(name, seed=seed)
            feed, spec = windows.feed(subject), cast(Transformer, subject.model).spec
            cases.append(Case(name, spec, seed, subject.model, (feed.tokens, feed.targets), spec.columns() | data))
            continue
        feed = windows.feed(subject)
        with torch.no_grad():
            subject.forward(feed)  # a model that does not take such tokens is refused before anything else
        cell = {"model": name} | data | {"model_seed": None}
        cases.append(Case(name, None, seed, subject.model, feed.kwargs or feed.args, cell))
    return cases


def _seeds(seed: int) -> dict[str, object]:
    return {"model_seed": seed, "data_seed": 10_000 + seed}


def _check_size(subject: "Subject") -> None:
    """Refuse a model whose copy in float64 does not fit into what memory is free."""
    import psutil

    from normlab.errors import DataError

    needed = 8 * sum(parameter.numel() for parameter in subject.model.parameters())
    free = psutil.virtual_memory().available
    if needed > free:
        raise DataError(
            f"{subject.name} takes {needed / 1e9:.1f} GB in float64 and {free / 1e9:.1f} GB of memory are free: "
            "give a smaller model"
        )
