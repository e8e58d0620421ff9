"""Compiled models: they run uncompiled while they are recorded, since nobody hears of compiled code."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar, cast
from weakref import finalize

import torch
from torch import nn

from normlab.errors import RecordingError
from normlab.recording.called import compiled_code
from normlab.recording.plan import Address, Parameter, Port, Residual, Scores, SitePlan
from normlab.recording.tree import Tree

_Model = TypeVar("_Model", bound=nn.Module)

#: What torch puts between the path of a compiled module and that of what it compiled.
_WRAPPED: Final = "_orig_mod"


@contextmanager
def step_by_step() -> Iterator[None]:
    """Keep compiled code, and torch's fused encoder layers, from standing in for the modules."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    eager: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    try:
        with eager:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def uncompiled(model: _Model) -> _Model:
    """Return the module that ``torch.compile`` wrapped, or the model itself."""
    found: Any = model
    while isinstance(found, _wrappers()):
        found = found._orig_mod
    return cast(_Model, found)


def is_compiled(model: nn.Module) -> bool:
    """Whether a model, or a module in it, is compiled."""
    return any(
        isinstance(module, _wrappers())
        or compiled_code(module) is not None
        or hasattr(module.forward, "_torchdynamo_orig_callable")
        for module in model.modules()
    )


def is_traced() -> bool:
    """Whether what runs is being written down, by ``torch.jit.trace``, ``make_fx`` or ``torch.export``.

    What is done with its tensors would be written down too.
    """
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) or torch._C._get_tracing_state():
        return True
    # Older versions of torch do not tell.
    exporting = getattr(torch.compiler, "is_exporting", None)
    return exporting is not None and bool(exporting())


def _wrappers() -> tuple[type[nn.Module], ...]:
    """Return the class of compiled modules, without loading the compiler where nothing is compiled."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return () if frames is None else (frames.OptimizedModule,)


def plain(path: str) -> str:
    """Return the path of a module or a parameter as if nothing on its way were compiled."""
    return path if _WRAPPED not in path else ".".join(part for part in path.split(".") if part != _WRAPPED)


def through_wrappers(plan: SitePlan, tree: Tree) -> SitePlan:
    """Return ``plan`` with the paths that modules and parameters have where some of the modules are compiled."""
    wrappers = _wrappers()
    if not wrappers or not any(isinstance(module, wrappers) for module in tree.modules.values()):
        return plan
    modules = {plain(path): path for path in tree.modules}
    names = {plain(name): name for name in tree.places}

    def port(one: Port) -> Port:
        return replace(one, module=modules.get(one.module, one.module), plus=tuple(port(other) for other in one.plus))

    return replace(
        plan,
        observed=tuple(replace(one, address=_named(one.address), port=port(one.port)) for one in plan.observed),
        residuals=tuple(_residual(one, port) for one in plan.residuals),
        scores=tuple(_scores(one, port) for one in plan.scores),
        parameters=tuple(_parameter(one, names) for one in plan.parameters),
        loss=None if plan.loss is None else port(plan.loss),
    )


def _residual(one: Residual, port: Callable[[Port], Port]) -> Residual:
    total = None if one.total is None else port(one.total)
    return replace(one, skip=port(one.skip), update=port(one.update), total=total)


def _scores(one: Scores, port: Callable[[Port], Port]) -> Scores:
    return replace(one, query=port(one.query), key=port(one.key))


def _parameter(one: Parameter, names: dict[str, str]) -> Parameter:
    return replace(one, name=names.get(one.name, one.name), address=_named(one.address))


def _named(address: Address) -> Address:
    return address._replace(name=", ".join(plain(name) for name in address.name.split(", ")))


class _Uncompiled:
    """Counts the recordings that are going on; compiled code runs as it is written while there is one.

    The setting is the process's, so that recordings that overlap, also in threads, share one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = 0
        self._before: Any = None

    def enter(self) -> None:
        """Begin a recording."""
        with self._lock:
            if not self._count:
                self._before = _stance("force_eager")
            self._count += 1

    def leave(self) -> None:
        """End a recording."""
        with self._lock:
            self._count -= 1
            if not self._count:
                _stance(self._before)


def _stance(stance: Any) -> Any:
    """Set torch's stance towards compiled code, and return the one before."""
    from torch._dynamo import eval_frame

    if isinstance(stance, str):
        stance = eval_frame.DynamoStance(stance)
    return eval_frame._set_stance(stance)


_UNCOMPILED: Final = _Uncompiled()


class Eager:
    """Lets compiled code run uncompiled from :meth:`check`, as soon as there may be any, to :meth:`leave`."""

    def __init__(self) -> None:
        self.forced, self._early = False, False

    def refuse_missed(self) -> None:
        """Refuse a step of which nothing was seen where code was compiled since :meth:`check` for the first time.

        Raises:
            RecordingError: such code ran past whoever listens.
        """
        dynamo = sys.modules.get("torch._dynamo")
        if self._early and dynamo is not None and dynamo.utils.counters["frames"]["total"]:
            raise RecordingError(
                "nothing of the model was seen, and code was compiled for the first time inside the block: if it was "
                "the model's, call torch.compile before the with block of record(), else run the model there"
            )

    def check(self) -> None:
        """Look whether something may be compiled by now.

        Raises:
            RecordingError: a compiled function is running already.
        """
        self._early = "torch._dynamo" not in sys.modules
        if self.forced or self._early:
            return
        if _compiling():
            raise RecordingError(
                "compiled code is running, which runs past whoever listens: call torch.compile before the with block "
                "of record(), and let the block stand outside of compiled functions"
            )
        _UNCOMPILED.enter()
        self.forced = True
        # A recording that is given up without an end lets go too.
        self._leave = finalize(self, _UNCOMPILED.leave)
        self._leave.atexit = False

    def leave(self) -> None:
        """Let compiled code run again, unless another recording goes on."""
        if self.forced:
            self._leave()
            self.forced = False


def _compiling() -> bool:
    """Whether compiled code is running, or being compiled."""
    if torch.compiler.is_compiling():
        return True
    callback = torch._C._dynamo.eval_frame.get_eval_frame_callback()
    return callback is not None and callback is not False
