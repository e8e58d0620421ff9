"""Loops of a compiled kernel, and the best path through one trip of each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

Each = TypeVar("Each")
#: What a path costs, the more important first. Costs of a path's instructions are added.
Cost: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Block(Generic[Each]):
    """Instructions that are executed one after another, and the numbers of the blocks that may follow."""

    instructions: Sequence[Each]
    successors: Sequence[int]


def trips(blocks: Sequence[Block[Each]], cost: Callable[[Each], Cost]) -> list[list[Each]]:
    """Return of each loop without another loop inside the instructions of its cheapest trip.

    Args:
        blocks: of a kernel; the first is entered first.
        cost: of an instruction; costs are compared as tuples.
    """
    loops = dict(_loops(blocks))
    leaves = (head for head, body in loops.items() if not any(other in body for other in loops if other != head))
    return [_trip(blocks, head, loops[head], cost) for head in leaves]


def _loops(blocks: Sequence[Block[Each]]) -> Iterator[tuple[int, set[int]]]:
    """Find heads and bodies: a loop is what reaches an edge that leads back to its head."""
    order, back = _search(blocks)
    before: dict[int, set[int]] = {number: set() for number in order}
    for number in order:
        for following in blocks[number].successors:
            before[following].add(number)
    for head, ends in back.items():
        body, waiting = {head}, list(ends)
        while waiting:
            number = waiting.pop()
            if number not in body:
                body.add(number)
                waiting += before[number]
        yield head, body


def _search(blocks: Sequence[Block[Each]]) -> tuple[list[int], Mapping[int, list[int]]]:
    """Return reachable blocks, each before what follows it but for edges back, and those edges by where they lead."""
    back: dict[int, list[int]] = {}
    done: list[int] = []
    state = {0: True}  # True: what follows it is being searched
    stack = [(0, iter(blocks[0].successors))]
    while stack:
        number, rest = stack[-1]
        following = next(rest, None)
        if following is None:
            state[number] = False
            done.append(number)
            stack.pop()
        elif following not in state:
            state[following] = True
            stack.append((following, iter(blocks[following].successors)))
        elif state[following]:
            back.setdefault(following, []).append(number)
    return done[::-1], back


def _trip(blocks: Sequence[Block[Each]], head: int, body: set[int], cost: Callable[[Each], Cost]) -> list[Each]:
    order = [number for number in _search(blocks)[0] if number in body]
    best: dict[int, tuple[Cost, list[int]]] = {head: (_sum(map(cost, blocks[head].instructions)), [head])}
    for number in order:
        known, path = best[number]
        for following in blocks[number].successors:
            if following in body and following != head:
                total = _sum([known, *map(cost, blocks[following].instructions)])
                if following not in best or total < best[following][0]:
                    best[following] = total, [*path, following]
    ends = (best[number] for number in order if head in blocks[number].successors)
    return [each for number in min(ends)[1] for each in blocks[number].instructions]


def _sum(costs: Iterable[Cost]) -> Cost:
    return tuple(map(sum, zip(*costs, strict=True)))
