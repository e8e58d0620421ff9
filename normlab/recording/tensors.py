"""Reading tensors out of a running module without disturbing it."""

import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from normlab.recording.plan import Layout

_NOTHING: Final = nullcontext()

#: Keys of containers that names have as they are: no number, and without dots and what is put around keys.
_PLAIN: Final = re.compile(r"""(?!-?\d+$)[^.'"\[\]\\]+""")
#: Containers inside one another that are looked into: some make what they hold when they are asked, without end.
_DEEPEST: Final = 500


class Seen:
    """A tensor at one moment of its life, held weakly."""

    __slots__ = ("ref", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.ref = weakref.ref(tensor)
        self.version = version(tensor)

    def is_still(self, tensor: Tensor) -> bool:
        """Say whether this is ``tensor``, unchanged since."""
        return self.ref() is tensor and self.version == version(tensor) >= 0

    def tensor(self) -> Tensor | None:
        """Return the tensor if it is alive and unchanged."""
        tensor = self.ref()
        return tensor if tensor is not None and self.is_still(tensor) else None


def version(tensor: Tensor) -> int:
    """Return the number of in-place changes so far, or -1 where torch does not count them."""
    return -1 if tensor.is_inference() else tensor._version


def select(side: str, path: Sequence[int | str], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Return what stands at a place of a module's arguments or result; ``None`` where there is nothing."""
    if side == "output":
        return _inside(result, path)
    first, *rest = path
    if isinstance(first, int):
        return _inside(args[first], rest) if first < len(args) else None
    return _inside(kwargs.get(first), rest)


def _inside(value: Any, path: Sequence[int | str]) -> Any:
    for step in path:
        if isinstance(value, Tensor):
            # The same module may give a tensor in one version of a library and a tuple of it in another.
            value = value if step == 0 else None
            continue
        try:
            value = value[step]
        except Exception:
            container, value = value, None
            with suppress(Exception):
                value = getattr(container, step) if isinstance(step, str) else None
    return value


def tensors_in(value: Any) -> Iterator[tuple[tuple[int | str, ...], Tensor]]:
    """Yield every tensor in nested containers and dataclasses, with the way to it.

    A container that stands inside itself is walked once, and what raises when it is looked at is passed over.
    """
    if isinstance(value, Tensor):
        yield (), value
        return
    entered: list[tuple[Any, tuple[int | str, ...], Iterator[tuple[Any, Any]]]] = [(value, (), _held(value))]
    while entered:
        _, path, held = entered[-1]
        for key, item in held:
            if not isinstance(key, int | str):
                continue
            if isinstance(item, Tensor):
                yield (*path, key), item
            elif len(entered) < _DEEPEST and not any(item is outer for outer, _, _ in entered):
                entered.append((item, (*path, key), _held(item)))
                break
        else:
            entered.pop()


def shown(key: int | str) -> str:
    """Return a key as a name has it: in quotes where it would read as another one, or as several."""
    if isinstance(key, int):
        return int.__repr__(key)
    text = str.__str__(key)
    return text if _PLAIN.fullmatch(text) else repr(text)


def _held(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a container holds, each with its key."""
    with suppress(Exception):
        if isinstance(value, dict):
            # A lookup may change a dictionary that counts them.
            yield from value.items()
        elif isinstance(value, Mapping):
            yield from _each(value, value.__getitem__)
        elif isinstance(value, tuple | list):
            yield from enumerate(value)
        elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
            yield from _each(value.__dataclass_fields__, partial(getattr, value))


def _each(keys: Iterable[Any], look: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    for key in keys:
        with suppress(Exception):
            yield key, look(key)


def arranged(x: Tensor, layout: Layout, tokens: tuple[int, int]) -> Tensor:
    """Return ``x`` with sequences along its first axis and tokens along its second.

    Args:
        x: a tensor.
        layout: the order of its axes now.
        tokens: numbers of sequences and of tokens in each, for a flat tensor.
    """
    if layout == "flat":
        return x.reshape(*tokens, x.shape[-1])
    return x.transpose(0, 1) if layout == "tokens first" else x


def by_head(x: Tensor, heads: bool) -> Iterator[tuple[int | None, Tensor]]:
    """Yield ``x``, or each head of ``[batch, head, token, feature]`` with its number."""
    if heads:
        yield from enumerate(x.unbind(1))
    else:
        yield None, x


def recomputing() -> bool:
    """Say whether a module runs because activation checkpointing repeats it during the backward pass."""
    # Grad mode tells only one of the two kinds of checkpointing.
    return bool(torch._C._current_graph_task_id() != -1)


def quiet() -> AbstractContextManager[Any]:
    """Return a context in which nothing is recorded for autograd, or cast by autocast."""
    if not (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")):
        return torch.no_grad() if torch.is_grad_enabled() else _NOTHING
    stack = ExitStack()
    stack.enter_context(torch.no_grad())
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype, as the table's column ``dtype`` has it."""
    return _NAMES[dtype]


_NAMES: Final = {
    value: str(value).removeprefix("torch.") for value in vars(torch).values() if isinstance(value, torch.dtype)
}
