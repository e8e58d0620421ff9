"""Looking at the tensors of a site plan while a model runs without gradients."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from torch import Tensor, nn

from normlab.recording import Port
from normlab.recording.compiled import step_by_step
from normlab.recording.tensors import arranged, select

#: Called with a port and its tensor ``[sequence, token, feature]``, which may be changed as soon as it returns.
See: TypeAlias = Callable[[Port, Tensor], None]


@contextmanager
def reading(model: nn.Module, ports: Iterable[Port], tokens: tuple[int, int], see: See) -> Iterator[None]:
    """Call ``see`` with the tensor of each port in the order in which they appear.

    An argument is read before its module runs, a result after it, whatever changes them later in place. A port of one
    call of a module (``Port.call``) is read in that call alone.

    Args:
        model: the model.
        ports: what to read; with what is added to them (``Port.plus``), which must appear before.
        tokens: numbers of sequences and tokens, for flat tensors.
        see: what to do with them.
    """
    wanted = list(dict.fromkeys(ports))
    parts = [other for port in wanted for other in port.plus]
    kept: dict[Port, Tensor] = {}

    def show(port: Port, value: Any) -> None:
        if isinstance(value, Tensor):
            tensor = arranged(value.detach(), port.layout, tokens)
            if port in parts:
                kept[port] = tensor.clone()
            if port in wanted and all(other in kept for other in port.plus):
                for other in port.plus:
                    tensor = tensor + kept[other]
                see(port, tensor)

    handles = [handle for one in _by_module(model, [*parts, *wanted]).items() for handle in _hooks(*one, show)]
    try:
        with step_by_step():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _by_module(model: nn.Module, ports: list[Port]) -> Mapping[nn.Module, list[Port]]:
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[nn.Module, list[Port]] = defaultdict(list)
    for port in dict.fromkeys(ports):
        found[modules[port.module]].append(port)
    return found


def _hooks(module: nn.Module, ports: list[Port], show: Callable[[Port, Any], None]) -> Iterator[Any]:
    calls = 0

    def now(side: str) -> Iterator[Port]:
        return (port for port in ports if port.side == side and port.call in (None, calls - 1))

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        for port in now("input"):
            show(port, select(port.side, port.path, args, kwargs, None))

    def after(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        for port in now("output"):
            show(port, select(port.side, port.path, args, kwargs, result))

    yield module.register_forward_pre_hook(before, with_kwargs=True)
    yield module.register_forward_hook(after, with_kwargs=True)
