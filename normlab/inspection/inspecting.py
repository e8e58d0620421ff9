"""Inspecting a model: one recorded pass, one pass that looks closer, and what both show."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pandas as pd
import torch
from torch import Tensor, nn

from normlab import table as tables
from normlab.errors import DataError, NormlabError, RecordingError
from normlab.inspection.blocks import idle
from normlab.inspection.feeding import Windows, notes_of
from normlab.inspection.gradients import gradients
from normlab.inspection.growth import growth
from normlab.inspection.inspection import Inspection
from normlab.inspection.loading import subject_of
from normlab.inspection.logits import logits
from normlab.inspection.looking import look
from normlab.inspection.massive import massive
from normlab.inspection.nonfinite import nonfinite
from normlab.inspection.precision import head_room, rounding
from normlab.inspection.rows import rows_of
from normlab.inspection.sharing import shared_by
from normlab.inspection.subject import LOSSES, Feed, Subject, Task, short, task_of
from normlab.models import Transformer
from normlab.recording import Architecture, SitePlan, record
from normlab.recording.discovery.example import describes_itself
from normlab.recording.planning import plan_of
from normlab.spec import ModelSpec
from normlab.sweeps.header import versions

_FROZEN: Final = "No backward pass was run: nothing in the loss requires a gradient (is every parameter frozen?)."


def inspect(
    model: nn.Module | ModelSpec | str | Path,
    *,
    text: Path | str | None = None,
    tokenizer: Any = None,
    batch: int = 2,
    tokens: int = 128,
    seed: int = 0,
    dtype: torch.dtype | str | None = None,
    backward: bool = True,
) -> Inspection:
    """Run a model on text, forward and backward, and say what it does to the scale of its activations.

    The model runs in evaluation mode. The gradients that it has are dropped.

    Args:
        model: a module; a ``ModelSpec``, which is built; or a folder or file that transformers loads,
            ``package.module:function``, or a saved spec.
        text: a UTF-8 file; the documentation of Python's standard library unless given.
        tokenizer: turns text into tokens, as those of transformers; a module without one reads bytes.
        batch: sequences.
        tokens: tokens in each.
        seed: of the places of the windows in the text, and of the weights of a spec.
        dtype: of the weights, where the model is loaded or built; float32 unless given.
        backward: whether to run backward too. Where nothing requires a gradient only the forward pass runs, and
            a note says so.

    Raises:
        DataError: the model or the text cannot be used.
        RecordingError: no residual stream was found.
    """
    windows = Windows(batch, tokens, text, seed)
    subject = subject_of(model, tokenizer=tokenizer, seed=windows.seed, dtype=dtype)
    return inspect_subject(subject, windows, backward=backward)


def inspect_subject(subject: Subject, windows: Windows, *, backward: bool = True) -> Inspection:
    """Inspect a model that was loaded.

    Raises:
        DataError: the model does not take the text.
        RecordingError: no residual stream was found.
    """
    if not isinstance(backward, bool):
        raise DataError(f"backward is {backward!r}: give True or False")
    feed = windows.feed(subject)
    model = subject.model
    with evaluating(model):
        architecture = _architecture(subject, feed)
        plan, task = plan_for(subject, architecture), task_of(subject, architecture)
        recorded, loss, ran = _recorded(subject, feed, plan, task, backward)
        batch, tokens = feed.tokens.shape
        seen = look(model, plan, lambda: subject.forward(feed), (batch, tokens))
    data = windows.columns()
    known = bool((recorded["quantity"] == "loss").any())  # the recorder sees it where a module computes it
    rows = [*rows_of(seen), *([] if known else [_loss_row(loss)])]
    seeded = {**data, "data_seed": windows.seed, "fed": feed.digest}
    table = _with_data(tables.concat([recorded, tables.from_rows(rows)]), subject.name, seeded)
    return Inspection(
        name=subject.name,
        architecture=architecture,
        table=table,
        findings=(
            nonfinite(seen, table, loss, ran),
            *growth(seen),
            massive(seen, feed.words),
            idle(seen),
            gradients(table, ran, shared_by(plan, architecture.borrowed)),
            logits(seen),
            head_room(seen),
            rounding(seen),
        ),
        loss=loss,
        loss_says=LOSSES[task],
        backward=ran,
        dtype=str(next(model.parameters()).dtype).removeprefix("torch."),
        data=data,
        seed=windows.seed,
        versions=_versions(model),
        notes=(*notes_of(subject), *([] if ran or not backward else [_FROZEN])),
        look=seen,
    )


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module of a model into evaluation mode, and back into its own afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def plan_for(subject: Subject, found: Architecture) -> SitePlan:
    """Return the plan with which a model is observed: the zoo's own, or what discovery found."""
    return plan_of(subject.model) if isinstance(subject.model, Transformer) else found.plan


def _architecture(subject: Subject, feed: Feed) -> Architecture:
    with torch.no_grad():
        subject.forward(feed)  # a model that does not take such tokens is refused before anything else
    found = subject.architecture(feed)
    if not found.stacks:
        raise RecordingError(f"no residual stream was found in {subject.name}: {found.reason}; give a transformer")
    return found


def _recorded(
    subject: Subject, feed: Feed, plan: SitePlan, task: Task, backward: bool
) -> tuple[pd.DataFrame, float, bool]:
    """Return the recorder's table, the loss, and whether a backward pass ran; the gradients are dropped again."""
    subject.model.zero_grad(set_to_none=True)
    # The logits are looked at by themselves: given as somebody's own, the zoo's plan would have them recorded too.
    sites = None if isinstance(subject.model, Transformer) else plan
    with record(subject.model, sites=sites) as recorder, nullcontext() if backward else torch.no_grad():
        loss = subject.loss(feed, task)
        if loss.requires_grad:
            _backward(loss, subject.name)
    table = recorder.table()
    subject.model.zero_grad(set_to_none=True)
    return table, float(loss.detach()), loss.requires_grad


def _backward(loss: Tensor, name: str) -> None:
    try:
        loss.backward()
    except NormlabError:
        raise
    except Exception as error:  # whatever autograd says of a stranger's model
        raise DataError(
            f"the backward pass of {name} failed ({short(error)}): inspect it forward only (--no-grad, backward=False)"
        ) from error


def _versions(model: nn.Module) -> dict[str, str]:
    found = versions()
    if describes_itself(model):
        found["transformers"] = str(import_module("transformers").__version__)
    return found


def _loss_row(loss: float) -> dict[str, object]:
    return {"quantity": "loss", "value": loss, "status": "ok" if math.isfinite(loss) else "nonfinite"}


def _with_data(table: pd.DataFrame, name: str, data: Mapping[str, object]) -> pd.DataFrame:
    # Constant columns, which tables.normalise gives their dtypes.
    columns: dict[str, Any] = {"model": name, **data}
    return tables.normalise(table.assign(**columns))
