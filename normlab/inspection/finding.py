"""What is said about a model: a sentence with numbers, and the threshold that makes it worth a warning."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from normlab.recording import Address

#: Sub-layers in words.
SUBLAYER_WORDS: Mapping[str, str] = {
    "attn": "attention",
    "cross": "cross-attention",
    "mlp": "MLP",
    "embed": "embedding",
}

#: Those of a block.
OF_BLOCK: tuple[str, ...] = ("attn", "cross", "mlp")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for.

    Attributes:
        topic: what it is about.
        found: whether the threshold was passed.
        says: what was measured, in one or a few sentences with numbers.
        threshold: what had to be passed, in words.
        numbers: the numbers behind it, as plain values.
    """

    topic: str
    found: bool
    says: str
    threshold: str
    numbers: Mapping[str, Any]

    @property
    def mark(self) -> str:
        """``!`` if the threshold was passed, otherwise ``·``."""
        return "!" if self.found else "·"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON; a number that is not finite is null."""
        return {
            "topic": self.topic,
            "found": self.found,
            "says": self.says,
            "threshold": self.threshold,
            "numbers": plain(self.numbers),
        }


def plain(value: Any) -> Any:
    """Return nested values for JSON; numbers that are not finite become ``None``."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def place(address: Address, stacks: Iterable[str] = ()) -> str:
    """Return where something is, in words: ``the MLP of block 3``, ``attention 2 of block 1 of the decoder``."""
    stack = of_stack(address.stack, stacks)
    if address.sublayer == "embed":
        return f"the embedding{stack}"
    word = SUBLAYER_WORDS.get(address.sublayer, address.sublayer)
    # A block that has several sub-layers of a kind numbers them: attn 2.
    _, _, number = address.name.rpartition(" ")
    named = f"{word} {number}" if number.isdigit() else f"the {word}"
    return f"{named} of block {address.layer}{stack}"


def turns(names: pd.Series) -> pd.Series:
    """Return which of its kind in a block each sub-layer is, from 1: a block that has several numbers them, attn 2."""
    return names.astype(str).str.extract(r" (\d+)$", expand=False).fillna("1").astype(int)


def of_stack(stack: str, stacks: Iterable[str]) -> str:
    """Return `` of the decoder`` where there is more than one stack, or else nothing."""
    return f" of the {stack}" if len(set(stacks)) > 1 else ""


def by_stack(places: Iterable[tuple[str, int]], stacks: Iterable[str]) -> str:
    """Return the blocks of pairs of a stack and a block: ``blocks 1-2 of the encoder and block 3 of the decoder``."""
    found: dict[str, list[int]] = {}
    for stack, layer in places:
        found.setdefault(stack, []).append(layer)
    return listed(f"{blocks(layers)}{of_stack(stack, stacks)}" for stack, layers in found.items())


def ranges(numbers: Iterable[int]) -> str:
    """Return ``1-3, 5`` for 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for one in sorted(set(numbers)):
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def listed(words: Iterable[str]) -> str:
    """Return ``a, b and c``."""
    *first, last = [*words]
    return f"{', '.join(first)} and {last}" if first else last


def blocks(numbers: Iterable[int]) -> str:
    """Return ``block 3``, or ``blocks 1-3, 5``."""
    found = sorted(set(numbers))
    return f"block{'' if len(found) == 1 else 's'} {ranges(found)}"
