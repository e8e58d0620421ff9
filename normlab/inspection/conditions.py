"""Conditions such as ``stream.median_rms@last < 100``: reading them, and what can be said before anything runs.

The grammar::

    condition := subject ("<" | "<=" | ">" | ">=" | "==" | "!=") number
    subject   := "loss" | what "." quantity [":" sublayer] ["@" [stack ":"] blocks]
    what      := a site of nl.SITES, or a parameter's role (down, q, norm_gain, ...)
    stack     := "encoder" | "decoder"
    blocks    := "all" | "first" | "last" | number | number "-" number

Blocks are numbered from 1; 0 is the embedding; without ``@`` every block is meant, and every row must meet the
condition. Without ``:`` every sub-layer is meant, and of the stream only what it is after the whole block. Where
a model has two stacks, the first, last and numbered blocks are those of the stack that is named.
"""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from normlab.errors import DataError, suggest
from normlab.schema import SUBLAYERS
from normlab.vocabulary import QUANTITIES, SITES

_MATRICES: Final = ("q", "k", "v", "o", "up", "gate", "down", "router", "head", "q_latent", "k_latent", "v_latent",
                    "kv_latent")  # fmt: skip
#: The roles of parameters; ``all`` are all of a sub-layer.
ROLES: Final = (
    "all", "embed", "position", "embed+head", *_MATRICES, *(f"{name}_bias" for name in _MATRICES), "norm_gain",
    "norm_bias", "branch_scale", "alpha", "shift", "other",
)  # fmt: skip
#: The sites that an inspection records.
_RECORDED: Final = tuple(site.name for site in SITES.values() if site.default or site.name == "logits")
_OF_PARAMETERS: Final = ("grad_norm", "grad_rms", "param_rms", "nonfinite")
_FORM: Final = re.compile(
    r"\s*(?P<what>\w+(?:\+\w+)?)(?:\.(?P<quantity>\w+))?(?::(?P<sublayer>\w+))?"
    r"(?:@(?:(?P<stack>[A-Za-z][\w-]*):)?(?P<blocks>\w+(?:-\w+)?))?"
    r"\s*(?P<op><=|>=|==|!=|<|>)\s*(?P<limit>[-+.\w]+)\s*"
)
_STACK: Final = re.compile(r"(encoder|decoder)(-\d+)?")
_EXAMPLE: Final = "write it as in 'stream.median_rms@last < 100' or 'loss < 5'"


@dataclass(frozen=True)
class Condition:
    """A condition that was read.

    Attributes:
        text: as it was written.
        what: a site, a role, or ``loss``.
        quantity: the quantity.
        sublayer: only this sub-layer; all if empty.
        blocks: first and last block; ``None`` stands for all, and -1 for the last.
        op: how to compare.
        limit: with what.
        stack: only this stack; all if empty.
    """

    text: str
    what: str
    quantity: str
    sublayer: str
    blocks: tuple[int, int] | None
    op: str
    limit: float
    stack: str = ""

    @property
    def of_gradient(self) -> bool:
        """Whether it speaks of what only a backward pass gives."""
        return self.what.endswith("_grad") or self.quantity in ("grad_norm", "grad_rms")


def parse(text: str) -> Condition:
    """Read a condition.

    Raises:
        DataError: it does not follow the grammar, or names what does not exist.
    """
    form = _FORM.fullmatch(text) if isinstance(text, str) else None
    if form is None:
        raise DataError(f"the condition {text!r} cannot be read: {_EXAMPLE}")
    what, quantity, sublayer = form["what"], form["quantity"] or "", form["sublayer"] or ""
    if what == "loss" and not quantity:
        quantity = "loss"
    _check_names(text, what, quantity)
    if sublayer and sublayer not in SUBLAYERS:
        raise _unknown(text, "sub-layer", sublayer, SUBLAYERS)
    stack = form["stack"] or ""
    if stack and not _STACK.fullmatch(stack):
        raise _unknown(text, "stack", stack, ("encoder", "decoder"))
    blocks = _blocks(text, form["blocks"])
    return Condition(text, what, quantity, sublayer, blocks, form["op"], _limit(text, form["limit"]), stack)


def check_recorded(condition: Condition, *, backward: bool) -> None:
    """Refuse a condition on what no inspection records, before one runs.

    Raises:
        DataError: it speaks of such a site, or of a gradient where no backward pass runs.
    """
    if condition.what in SITES and condition.what not in _RECORDED:
        raise DataError(
            f"the condition {condition.text!r} speaks of the site {condition.what!r}, which an inspection does not "
            f"record: choose one of {', '.join(_RECORDED)}"
        )
    if condition.of_gradient and not backward:
        raise DataError(f"the condition {condition.text!r} speaks of a gradient, and no backward pass is run")


def roles() -> tuple[str, ...]:
    """Return the roles that parameters can have, with those of the norms that are registered."""
    from normlab.norms import NORMS  # those of plugins among them

    found: dict[str, None] = dict.fromkeys(ROLES)
    for _, norm in NORMS.items():
        with suppress(Exception):  # somebody else's norm may not be built with 8 features
            found |= dict.fromkeys(name.rpartition(".")[2] for name, _ in norm.make(8, eps=1e-5).named_parameters())
    return tuple(name for name in found if name not in ("gain", "bias"))  # they are norm_gain and norm_bias


def _check_names(text: str, what: str, quantity: str) -> None:
    """Refuse names that do not exist, and quantities of something else."""
    if what not in SITES and what != "loss" and what not in (known := roles()):
        raise DataError(
            f"the condition {text!r} names {what!r}, which is neither a site ({', '.join(_RECORDED)}), nor a "
            f"parameter's role ({', '.join(name for name in known if not name.endswith('_bias'))}; also q_bias and "
            f"so on), nor loss{suggest(what, (*SITES, *known, 'loss'))}"
        )
    if not quantity:
        raise DataError(f"the condition {text!r} names no quantity: {_EXAMPLE}")
    allowed = _quantities(what)
    if quantity not in allowed:
        raise _unknown(text, f"quantity of {what}", quantity, allowed)


def _quantities(what: str) -> tuple[str, ...]:
    """Return the quantities that a site, a role or the loss has."""
    if what == "loss":
        return ("loss",)
    if what not in SITES:
        return _OF_PARAMETERS
    kinds = {"tensor", *(("gradient",) if SITES[what].gradient_of else ("activation", what))}
    return tuple(name for name, one in QUANTITIES.items() if one.of in kinds)


def _unknown(text: str, kind: str, name: str, allowed: Iterable[str]) -> DataError:
    names = tuple(allowed)
    return DataError(
        f"the condition {text!r} names the {kind} {name!r}: choose one of {', '.join(names)}{suggest(name, names)}"
    )


def _limit(text: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise DataError(f"the condition {text!r} compares with {word!r}, which is no number: {_EXAMPLE}")
    return value


def _blocks(text: str, word: str | None) -> tuple[int, int] | None:
    if word is None or word == "all":
        return None
    if word in ("first", "last"):
        return (1, 1) if word == "first" else (-1, -1)
    first, _, last = word.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) < int(first):
        raise DataError(
            f"the condition {text!r} asks for blocks {word!r}: give all, first, last, 3 or 2-5, "
            "and the stack before it, as decoder:last, where the model has two"
        )
    return int(first), int(last or first)
