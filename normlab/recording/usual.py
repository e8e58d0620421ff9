"""Modules that compiled code reads without the interpreter: those whose tensors are as most are."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from normlab.recording.awaiting import on_base
from normlab.recording.native import library
from normlab.recording.tokens import Wanted
from normlab.recording.watches import Pair, PortWatch, Prepared, Watch, Watches

if TYPE_CHECKING:
    from normlab.recording._native import Reader


def reader_of(watches: Watches, wanted: Wanted, known: tuple[Any, ...]) -> "Reader | None":
    """Return compiled code that takes the usual calls of modules, where there is any.

    Args:
        watches: what is read at each module.
        wanted: which numbers are computed.
        known: an observer's containers of what is known of a pass: tensors found and remembered, ports that are
            awaited, numbers of calls, modules that ran.
    """
    compiled = library()
    if compiled is None:
        return None
    described = dict(zip(watches.by_module, _descriptions(watches.prepared), strict=True))
    vectors = wanted.total or wanted.direction
    reader: Reader = compiled.Reader(described, *known, on_base, watches.once, watches.in_place, vectors)
    return reader


@lru_cache(maxsize=4)
def _descriptions(prepared: Prepared) -> list[tuple[Any, ...] | None]:
    """Return what :func:`_described` says of every module."""
    watches = prepared.by_number.values()
    # What is flat has the tokens of a tensor before it.
    flat = any(port.port.layout == "flat" for watch in watches for port in watch.ports.values())
    return [_described(watch, flat) for watch in watches]


def _described(watch: Watch, flat: bool) -> tuple[Any, ...] | None:
    """Return a module's ports and sums for the reader, or ``None`` if it needs the interpreter.

    Args:
        watch: what is read at the module.
        flat: whether anybody asks for the numbers of sequences and tokens of what was read.
    """
    ports = list(watch.ports.values())
    if watch.scores or watch.loss is not None or not ports or not all(map(_is_usual, ports)):
        return None
    return tuple(_port(port, flat) for port in ports), tuple(_sum(pair) for pair in watch.pairs)


def _is_usual(watch: PortWatch) -> bool:
    port = watch.port
    place = port.path == () if port.side == "output" else len(port.path) == 1 and isinstance(port.path[0], int)
    return place and port.layout == "sequences first" and port.call is None and not (watch.others or watch.heads)


def _port(watch: PortWatch, flat: bool) -> tuple[Any, ...]:
    argument = watch.port.path[0] if watch.port.side == "input" else -1
    asked = flat and watch.planned
    return argument, watch, watch.forward, watch.backward, watch.reduced, asked, watch.remembered


def _sum(pair: Pair) -> tuple[Any, ...]:
    update, skip = (
        (port.index if here else -1, port) for port, here in zip((pair.update, pair.skip), pair.here, strict=True)
    )
    return pair, (pair.slot,), update, skip, pair.last.index, pair.residual.total is not None
