"""Which tokens the result of an operation that torch does not know depends on: found by trying it."""

from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from normlab.recording.discovery.graph import Flow, Ref, Value

#: An entry that depends on no token, and one that depends on several.
NONE: Final = -1
SEVERAL: Final = -2
#: Tokens that are tried one by one.
_MOST: Final = 256


def is_foreign(function: Any) -> bool:
    """Whether an operation is somebody's own, as one of ``torch.library.custom_op`` is."""
    return getattr(function, "namespace", "aten") not in ("aten", "prims", "prim")


def probed(flow: Flow, value: Value, labels: dict[int, Tensor]) -> Tensor | None:
    """Return for each entry of an operation's result the token that it changes with, or nothing if it cannot be told.

    That is so where it cannot be run, writes into what it takes, or does not give the same twice. It is run on random
    numbers, with the masks and places that it had, and again for each token with other numbers in that token's
    entries. An entry that follows a token by less than rounding is not seen to.

    Args:
        flow: the data flow.
        value: what the operation gives.
        labels: the token of each entry of what it takes.
    """
    assert value.function is not None
    operation, args, kwargs = value.function
    function: Any = operation
    taken = {one: labels[one] for one in value.inputs if one in labels}
    tokens = torch.cat([one.unique() for one in taken.values()]).unique()
    tokens = tokens[tokens >= 0]
    several = any(bool((one == SEVERAL).any()) for one in taken.values())
    if function._schema.is_mutable or len(tokens) > _MOST or several:
        return None
    generator = torch.Generator().manual_seed(0)

    def drawn(one: Any) -> Any:
        if not isinstance(one, Ref):
            return one
        of = flow.values[one.number]
        dtype = getattr(torch, of.dtype.removeprefix("torch."))
        if not of.floating:  # a mask, or places
            return one.number, flow.entries.get(one.number, torch.zeros(of.shape, dtype=dtype))
        return one.number, torch.randn(of.shape, generator=generator).to(dtype)

    def is_ref(one: Any) -> bool:
        return isinstance(one, Ref)

    def is_drawn(one: Any) -> bool:
        return isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], Tensor)

    numbers = tree_map(drawn, (args, kwargs), is_leaf=is_ref)

    def run(token: int) -> Tensor:
        def changed(one: Any) -> Any:
            if not is_drawn(one):
                return one
            number, entries = one
            if number not in taken or not flow.values[number].floating:
                return entries.clone()
            return entries.where(taken[number] != token, 1 - entries)

        own, named = tree_map(changed, numbers, is_leaf=is_drawn)
        result = function(*own, **named)
        found: Tensor = result[value.output] if isinstance(result, tuple | list) else result
        return found

    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            before = run(NONE)
            if bool(_differs(run(NONE), before).any()):
                return None
            found = torch.full(before.shape, NONE)
            for token in tokens.tolist():
                moved = _differs(run(token), before)
                found = found.where(~moved, torch.where(found == NONE, token, SEVERAL))
    except Exception:  # it has no kernel here, or refuses such numbers
        return None
    return found


def _differs(one: Tensor, other: Tensor) -> Tensor:
    """Say of each entry whether it differs; one that is not a number, as where a mask leaves nothing, may stay so."""
    return (one != other) & ~(one.isnan() & other.isnan())
