"""Parts of a model by a few words, as a command line gives them."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from normlab.jacobian.evaluating import UnknownPart
from normlab.jacobian.part import Part, TokenPart

if TYPE_CHECKING:
    from normlab.jacobian.model_parts import Parts

_IN_BLOCK: Final = r"block (\d+) (attn|cross|mlp)"

#: How each kind of part is written, and which method gives it.
GRAMMAR: Final[Mapping[str, Callable[..., Part]]] = {
    r"all|end to end": lambda parts: parts.end_to_end(),
    r"block (\d+)": lambda parts, layer: parts.block(int(layer)),
    r"blocks (\d+)(?:-|\.\.)(\d+)": lambda parts, first, last: parts.blocks(int(first), int(last)),
    _IN_BLOCK: lambda parts, layer, name: parts.sublayer(int(layer), name),
    rf"{_IN_BLOCK} branch": lambda parts, layer, name: parts.branch(int(layer), name),
    rf"{_IN_BLOCK} norm": lambda parts, layer, name: parts.norm(int(layer), name),
    rf"{_IN_BLOCK} (\w+) norm": lambda parts, layer, name, position: parts.norm(int(layer), name, position),
    r"final norm": lambda parts: parts.final_norm(),
    r"module (\S+)": lambda parts, path: parts.module(path),
}

#: One token's own block, ∂y_to/∂x_token.
_TOKEN: Final = r"(.+) token (\d+)(?: to (\d+))?(?: sequence (\d+))?"


def part_named(parts: "Parts", text: str) -> Part | TokenPart:
    """Return the part that a text names, in one of the forms of :data:`GRAMMAR`, or a block of tokens of one.

    Raises:
        UnknownPart: the text names no part.
    """
    if token := re.fullmatch(_TOKEN, text.strip()):
        whole, position, of, sequence = token.groups()
        of = None if of is None else int(of)
        return _whole(parts, whole).token(int(position), of=of, sequence=int(sequence or 0))
    return _whole(parts, text)


def _whole(parts: "Parts", text: str) -> Part:
    for pattern, part in GRAMMAR.items():
        match = re.fullmatch(pattern, text.strip())
        if match:
            return part(parts, *match.groups())
    raise UnknownPart(
        f"{text!r} names no part: give all, block 3, blocks 2-5, block 3 attn, block 3 attn branch, "
        f"block 3 attn norm, final norm or module PATH, each also with token 5, or token 5 to 7, after it"
    )
