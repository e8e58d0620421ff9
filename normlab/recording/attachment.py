"""Who is told while a model runs, without a trace on it afterwards.

What other threads run is not seen: only the thread that attached, and those in which autograd repeats its
checkpointed modules.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakMethod, finalize

from torch import nn

from normlab.recording.called import is_heard, leave, listen
from normlab.recording.compiled import Eager, is_traced
from normlab.recording.tensors import recomputing

if TYPE_CHECKING:
    from normlab.recording._native import Reader

Ran = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]

_UNSEEN: Final[ContextVar[bool]] = ContextVar("unseen", default=False)


class Calls(NamedTuple):
    """Who is told.

    Attributes:
        starts: called without arguments before the model itself runs.
        ran: called when a module has run with it, its positional and keyword arguments, and its result.
        ended: called when the model itself is over, with whether an exception ended it.
    """

    starts: Callable[[], None]
    ran: Ran
    ended: Callable[[bool], None]


@contextmanager
def unseen() -> Iterator[None]:
    """Let a model run without any recorder taking note of it."""
    token = _UNSEEN.set(True)
    try:
        yield
    finally:
        _UNSEEN.reset(token)


def _weakly(method: Any) -> Callable[..., None]:
    """Return what calls a method as long as somebody else holds its object: the model does not."""
    held = WeakMethod(method)

    def call(*args: Any) -> None:
        if (found := held()) is not None:
            found(*args)

    return call


class Attachment:
    """Says when a model starts and ends, and when some of its modules have run.

    Args:
        model: the model.
        modules: the modules to read.

    Attributes:
        reader: compiled code that takes the usual calls.
        eager: keeps compiled code from standing in for modules.
        running: how many calls of the model are going on.
    """

    def __init__(self, model: nn.Module, modules: Sequence[nn.Module]) -> None:
        self._model, self._read = model, {id(module) for module in modules}
        self._modules = [model, *modules]
        self._calls: Calls | None = None
        self._thread = 0
        self._given_up: finalize[..., Any] | None = None
        self.reader: Reader | None = None
        self.eager = Eager()
        self.running = 0
        # Whether a pass goes on whose end nobody will say, since the model was compiled after the last one.
        self._endless = False

    def attach(self, calls: Calls, reader: "Reader | None" = None) -> None:
        """Start calling, or begin anew, until :meth:`detach`, or until nobody else holds the object that is told.

        Args:
            calls: who is told: methods of one object.
            reader: compiled code that takes calls in place of ``calls.ran``, where it can.

        Raises:
            RecordingError: compiled code is running, which runs past whoever listens.
        """
        self.eager.check()
        if self._calls is None:
            self._calls = Calls(*map(_weakly, calls))
            self._given_up = finalize(calls.ran.__self__, _weakly(self.detach))  # type: ignore[attr-defined]
            self._given_up.atexit = False
            listen(self._modules, self)
        self.running, self.reader, self._thread, self._endless = 0, reader, get_ident(), False
        if reader is not None:
            reader.listen(self._thread, self._model, _UNSEEN)

    def detach(self) -> None:
        """Stop calling."""
        if self._given_up is not None:
            self._given_up.detach()
        leave(self._modules, self)
        self._calls = self.reader = None
        self.eager.leave()

    def hears(self) -> bool:
        """Whether what runs now is seen."""
        here = self._calls is not None and not _UNSEEN.get() and (get_ident() == self._thread or recomputing())
        return here and not is_traced()

    def starts(self, module: nn.Module) -> None:
        """Say that the model starts, if it does.

        Raises:
            RecordingError: compiled code is running, or whoever is told refuses the pass.
        """
        if not self.eager.forced:
            self.eager.check()
        if module is self._model:
            self.running, self._endless = self.running + 1, False
            if self.eager.forced:
                # Modules may have been compiled since.
                listen(self._modules, self)
        elif self.running or is_heard(self._model, self):
            return
        else:
            # The model was compiled since, and so may others have been.
            listen(self._modules, self)
            self._endless = True
        calls = self._calls
        if calls is not None:
            try:
                calls.starts()
            except BaseException:
                self.running = 0
                raise

    def ran(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Say that a module has run."""
        calls = self._calls
        if calls is not None and id(module) in self._read:
            calls.ran(module, args, kwargs, result)

    def ended(self, module: nn.Module, failed: bool) -> None:
        """Say that the model has ended, if it has."""
        if module is self._model:
            # A step that ended inside of the call began to count anew.
            self.running = max(0, self.running - 1)
            calls = self._calls
            if calls is not None:
                calls.ended(failed)
        elif failed and self._endless and self._calls is not None:
            # What a module raises that a model calls most likely ends the model too.
            self._endless = False
            self._calls.ended(True)
