"""The recorder: what is observed while a model runs forward and backward, as a table."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any

import pandas as pd
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from normlab.errors import RecordingError
from normlab.recording.attachment import Attachment, Calls
from normlab.recording.awaiting import SEVERAL_BACKWARD
from normlab.recording.compiled import through_wrappers, uncompiled
from normlab.recording.coverage import coverage_of, missing_of, unobserved
from normlab.recording.ended import Ended
from normlab.recording.ledger import Entry, Ledger
from normlab.recording.observer import Observer
from normlab.recording.parameters import Parameters
from normlab.recording.plan import SitePlan
from normlab.recording.planning import plan_of
from normlab.recording.refusals import (
    check_arguments,
    checked_mask,
    refuse_changed,
    refuse_stale,
    refuse_unobserved,
    warn_if_cleared,
    warn_of_nothing,
)
from normlab.recording.rows import table_of
from normlab.recording.selection import select
from normlab.recording.state import Expected, SiteKey, State, StepState
from normlab.recording.tensors import dtype_name, recomputing
from normlab.recording.tree import Tree
from normlab.recording.watches import Watches


def record(
    model: nn.Module,
    mask: Shaped[Tensor, "batch token"] | None = None,
    loss_scale: float = 1.0,
    sites: Iterable[str] | SitePlan | None = None,
    quantities: Iterable[str] | None = None,
    every: int = 1,
    strict: bool = False,
) -> "Recorder":
    """Record a model while it runs inside a ``with`` block.

    ::

        with nl.record(model) as recorder:
            model.loss(tokens, targets).backward()
        table = recorder.table()

    A model that is compiled, as a whole or in parts, runs uncompiled inside the block, as any compiled code
    of the process does: compiled code runs past whoever listens. Its numbers are those of the code as it is written.

    Tensors are reduced while the model runs and none is kept. Several forward and backward passes are
    micro-batches of one step, and merge as if all their tokens had been one batch. No bit of the model's
    outputs and gradients changes (:func:`check_transparent`). In a training loop call
    :meth:`Recorder.step` after each backward pass, before the optimizer changes or clears the gradients.

    Args:
        model: a model of the zoo or of transformers, whose residual streams are known or found (see
            :func:`normlab.discover`), or any module: then the output of every module without children or
            with parameters of its own, and every parameter, are recorded by name.
        mask: bool, True where a token is real; the others count nowhere.
        loss_scale: what the loss was multiplied by before the backward pass; gradients are divided by it.
        sites: names from ``SITES``, those of gradients too; or a plan of your own, of which all sites that it
            names are recorded. The default ones unless given.
        quantities: names from ``QUANTITIES``; all that can be recorded unless given.
        every: in a training loop, record each ``every``-th step.
        strict: whether a site that was expected and not observed is an error.

    Returns:
        A recorder, to be used in a ``with`` statement.

    Raises:
        NormlabError: a site or a quantity that does not exist, or an argument out of range; inside the block,
            a parameter that changed between two passes of one step.

    Warns:
        RecordingWarning: nothing ran inside the block, or gradients were cleared before :meth:`Recorder.step`.
    """
    return Recorder(model, mask, loss_scale, sites, quantities, every, strict)


class Recorder:
    """What :func:`record` returns; its arguments are described there."""

    def __init__(
        self,
        model: nn.Module,
        mask: Shaped[Tensor, "batch token"] | None,
        loss_scale: float,
        sites: Iterable[str] | SitePlan | None,
        quantities: Iterable[str] | None,
        every: int,
        strict: bool,
    ) -> None:
        check_arguments(loss_scale, every)
        model = uncompiled(model)
        own = sites if isinstance(sites, SitePlan) else None
        tree = Tree.of(model)
        self.plan = through_wrappers(own or plan_of(model, tree), tree)
        self._selection = select(self.plan, own.own_sites if own else sites, quantities)  # type: ignore[arg-type]
        self._watches = Watches(tree.modules, self.plan, self._selection)
        self._mask = checked_mask(mask)
        self._observer = Observer(self._watches, self._selection.wanted, self._mask)
        self._attachment = Attachment(model, self._watches.watched)
        self._model, self._loss_scale, self._every, self._strict = model, loss_scale, every, strict
        self._step, self._stepped, self._used, self._fresh = 0, False, False, True
        self._ended: dict[int, Ended] = {}
        self._steps: dict[int, StepState] = {}
        self._keys: dict[Entry, SiteKey] = {}
        self._anything, self._ran, self._graph, self._warned = False, False, False, False
        self._parameters = Parameters(model, self.plan.parameters, tree)
        self._marks: list[tuple[int, int, int]] = []

    @property
    def mask(self) -> Shaped[Tensor, "batch token"] | None:
        """Which tokens are real; set it before a micro-batch that has another mask."""
        return self._mask

    @mask.setter
    def mask(self, mask: Shaped[Tensor, "batch token"] | None) -> None:
        self._mask = self._observer.mask = checked_mask(mask)

    def __enter__(self) -> "Recorder":
        """Attach to the model.

        Raises:
            RecordingError: a parameter has a gradient already, this recorder was used before, or compiled code is
                running.
        """
        if self._used:
            raise RecordingError("this recorder has recorded already: call record(model) again for a new one")
        self._used = True
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Read the gradients of parameters and let go of the model.

        Raises:
            RecordingError: ``strict`` was asked for and an expected site was not observed; or all that ran was
                compiled code that had not been there before.
        """
        self._attachment.detach()
        try:
            if self._observer.ledger is not None and (self._observer.ran or not self._stepped):
                self._ended[self._step] = self._closed()
        except RecordingError:
            # What went wrong in the block says more.
            if kind is None:
                raise
        finally:
            self._observer.close()
        if kind is None and not (self._observer.ran or self._stepped):
            self._attachment.eager.refuse_missed()
        if kind is None and self._strict:
            for step, state in self._read().items():
                refuse_unobserved(unobserved(state), step)
        elif kind is None and self._watches.by_module and not self._anything:
            warn_of_nothing(ran=self._ran)

    def step(self) -> None:
        """End a step of a training loop: gradients of parameters are read now.

        Raises:
            RecordingError: the recorder is not inside its ``with`` block; or all that ran was compiled code that
                had not been there before.
        """
        if not self._used or (self._observer.ledger is None and not self._pausing):
            raise RecordingError("step() ends a step inside the with block of record(model): call it there")
        if self._observer.ledger is not None:
            if not self._observer.ran:
                self._attachment.eager.refuse_missed()
            self._ended[self._step] = self._closed()
            self._observer.close()
            if self._graph and not self._warned and self._selection.quantities & {"grad_norm", "grad_rms"}:
                self._warned = warn_if_cleared(parameter for _, parameter in self._parameters.standing.every())
        self._stepped = True
        self._step += 1
        if self._pausing:
            self._attachment.detach()
        else:
            self._open()

    def state(self) -> State:
        """Return what was recorded as plain data, to be pickled and merged with others by :func:`merge`."""
        steps = dict(self._read())
        if self._observer.ledger is not None and (self._observer.ran or not self._stepped):
            steps[self._step] = self._state_of(self._closed())
        return State(steps, self._selection.sites, self._selection.quantities)

    def table(self) -> pd.DataFrame:
        """Return the table: a row for each quantity of each site and parameter, also where there is no value."""
        return table_of(self.state())

    def coverage(self) -> pd.DataFrame:
        """Return a line for each expected site and parameter: whether it was observed, and if not, why.

        The columns are ``stack, layer, sublayer, site, role, name, expected, observed, status``. A site
        that the model does not have is not expected; the status says why.
        """
        return coverage_of(self.state())

    @property
    def _pausing(self) -> bool:
        return self._step % self._every != 0

    def _open(self) -> None:
        self._fresh, self._graph = True, False
        self._arm()
        self._marks = []
        # First of all this refuses compiled code, in which nothing else may run.
        self._attachment.attach(Calls(self._pass_starts, self._module_ran, self._pass_ended), self._observer.reader)
        try:
            self._observer.begin(Ledger(self._loss_scale))
            if not self._step:
                refuse_stale(self._parameters.stale())
        except BaseException:
            self._attachment.detach()
            self._observer.close()
            raise

    def _pass_starts(self) -> None:
        if recomputing():
            return
        self._ran = True
        self._arm()
        if self._marks:
            refuse_changed(self._parameters.standing.changed(self._marks))
        else:
            self._parameters.standing.hold()
        # Of its own, since gradients of this pass may come when the mask is another one already.
        self._observer.mask = None if self._mask is None else self._mask.clone()
        self._observer.start_pass()

    def _pass_ended(self, failed: bool) -> None:
        if recomputing():
            return
        self._arm()
        # A model may change its parameters itself while it runs, as embeddings of a largest norm do.
        self._marks = self._parameters.standing.marks()
        self._observer.end_pass(failed)

    def _module_ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if self._fresh:
            # In a loop gradients are cleared after step(), so this can be known only now.
            refuse_stale(self._parameters.stale())
            self._fresh, self._anything, self._graph = False, True, torch.is_grad_enabled()
            self._arm()
        self._observer.module_ran(module, args, kwargs, result)

    def _arm(self) -> None:
        """Let compiled code take calls of modules if it may: after the first of a step, while the model runs."""
        if self._observer.reader is not None:
            self._observer.reader.armed = not self._fresh and self._attachment.running > 0

    def _closed(self) -> Ended:
        """Return what the current step left so far."""
        observer = self._observer
        return Ended(
            observer.books(),
            frozenset(slot for slot, reason in observer.reasons.items() if reason == SEVERAL_BACKWARD),
            missing_of(self._watches, observer),
            self._parameters.measure(self._loss_scale),
        )

    def _read(self) -> dict[int, StepState]:
        """Return the states of the steps that ended."""
        while self._ended:
            step = next(iter(self._ended))
            self._steps[step] = self._state_of(self._ended[step])
            del self._ended[step]
        return self._steps

    def _state_of(self, ended: Ended) -> StepState:
        ended.ledger.settle()
        return StepState(
            {self._key(entry): one for entry, one in ended.ledger.totals.items() if entry.slot not in ended.spoilt},
            ended.missing,
            {Expected(absent.address, absent.kind): absent.reason for absent in self.plan.absent},
            ended.parameters.by_role(),
        )

    def _key(self, entry: Entry) -> SiteKey:
        """Return what an entry is called outside; the same object in every step."""
        key = self._keys.get(entry)
        if key is None:
            slot = self._watches.slots[entry.slot]
            address = slot.address if entry.head is None else slot.address._replace(head=entry.head)
            key = self._keys[entry] = SiteKey(address, entry.call, dtype_name(entry.dtype), slot.kind)
        return key
