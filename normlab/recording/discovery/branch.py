"""What a residual branch does between the stream and its update."""

from collections.abc import Iterator
from dataclasses import dataclass

from normlab.recording.discovery.graph import PRODUCTS, Flow, Value
from normlab.recording.discovery.mixing import SPECTRAL, mixes
from normlab.recording.discovery.steps import Norm, Tracks, Way, swaps_leading_axes


@dataclass(frozen=True)
class Scoring:
    """Where attention computes its logits.

    Attributes:
        query: the queries' value.
        key: the keys'.
        value: the values'.
        result: the logits, or the mixed values of a fused attention.
    """

    query: int
    key: int
    value: int | None
    result: int


@dataclass(frozen=True)
class Branch:
    """A residual branch.

    Attributes:
        base: the stream that it reads.
        update: what it gives.
        kind: ``attn`` if it mixes positions, ``cross`` if it also reads another sequence, else ``mlp``.
        products: its products of features and weights, in order.
        input: what the first of them takes, or where there is none the first operation.
        memory: what those take that do not see the stream; ``None`` outside cross-attention.
        before: the way from the stream to the input.
        after: the way from the last product to the update.
        scoring: where attention computes its logits, as far as it does.
        qk_norms: norms on queries and keys, with nothing but rotation between them and the logits.
        inner_norms: the other norms between the input and the last product.
        reads_stream: whether nothing but norms and factors stands before the first product.
        given: what the last product gives, before the update is made of it.
        reads_once: whether the same norms stand before all products that nothing else stands before, and before
            what multiplies their results.
        apart: whether what is added is this update, and not rescaled only together with another one's.
    """

    base: int
    update: int
    kind: str
    products: tuple[int, ...]
    input: int
    memory: int | None
    before: Way
    after: Way
    scoring: Scoring | None
    qk_norms: tuple[Norm, ...]
    inner_norms: tuple[Norm, ...]
    reads_stream: bool
    given: int
    reads_once: bool = True
    apart: bool = True


def branch_of(tracks: Tracks, base: int, update: int) -> Branch:
    """Describe the branch from ``base`` to ``update``."""
    flow = tracks.flow
    after = tracks.back(update)
    # Without what makes a factor of it.
    inside = list(flow.between(base, after.start)) or list(flow.between(base, update))
    products = [value.index for value in inside if flow.weighs[value.index]]
    taken = _as_given(tracks.back(_features_last(flow, products[0]) if products else _first_taken(flow, inside)))
    memories = _memories(tracks, base, update)
    scoring = _scoring(flow, inside)
    mixing = scoring is None and _mixing(flow, base, update, inside)
    kind = "attn" if scoring or mixing else "mlp"
    if memories and (mixing or (scoring and _attends(flow, scoring, base))):
        kind = "cross"
    before = until(tracks.back(taken), flow.same(base))
    outer = {norm.given for norm in (*before.norms, *after.norms)}
    own = [norm for norm in tracks.norms if _within(flow, norm, base, update) and norm.given not in outer]
    qk = [norm for norm in own if scoring and _scores(flow, norm, scoring)]
    return Branch(
        base,
        update,
        kind,
        tuple(products),
        taken,
        memories[0] if memories and kind == "cross" else None,
        before,
        after,
        scoring,
        tuple(qk),
        tuple(norm for norm in own if norm not in qk),
        before.start == flow.same(base),
        _given(tracks, after, products),
        len({*_entries(tracks, base, products), *_beside(tracks, base, update, products)}) <= 1,
    )


def _given(tracks: Tracks, after: Way, products: list[int]) -> int:
    """Return what the last product gives, also where that is multiplied by something that it did not make."""
    value = tracks.flow.values[after.start]
    made = [one for one in value.inputs if products and tracks.flow.depends(one, products[-1])]
    multiplied = value.op == "mul" and len(value.inputs) == 2 and len(made) == 1
    return tracks.back(made[0]).laid_out if multiplied else after.laid_out


def _entries(tracks: Tracks, base: int, products: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield for each product that only norms and factors stand before which norms these are."""
    flow, stream = tracks.flow, tracks.flow.same(base)
    for product in products:
        way = until(tracks.back(_features_last(flow, product)), stream)
        if way.start == stream:
            yield tuple(norm.given for norm in way.norms)


def _beside(tracks: Tracks, base: int, update: int, products: list[int]) -> Iterator[tuple[int, ...]]:
    """Yield the norms before what is added to a product's result, or multiplies it, where no product made that."""
    flow = tracks.flow
    for value in flow.between(base, update):
        if value.op not in ("add", "mul", "div", "addcmul", "addcdiv"):
            continue
        made = [any(flow.depends(one, product) for product in products) for one in value.inputs]
        for one, of_product in zip(value.inputs, made, strict=True):
            if not any(made) or of_product or not flow.depends(one, base):
                continue
            # A gate that a matrix of its own makes is known as one.
            if not any(flow.weighs[other.index] for other in flow.between(base, one)):
                yield tuple(norm.given for norm in tracks.norms if _within(flow, norm, base, one))


def _first_taken(flow: Flow, inside: list[Value]) -> int:
    """Return what the operation takes that mixes positions without weights."""
    return next(value.inputs[0] for value in inside if value.op in SPECTRAL)


def _mixing(flow: Flow, base: int, update: int, inside: list[Value]) -> bool:
    found = mixes(flow, base, update)
    return any(_mixes(flow, value) for value in inside) if found is None else found


def _as_given(way: Way) -> int:
    """Return what a product takes, before its first axes changed places and its dtype, as a router's may."""
    last = len(way.steps)
    while last and way.steps[last - 1].what in ("layout", "cast"):
        last -= 1
    return way.values[last]


def data_of(flow: Flow, product: int) -> int:
    """Return the features that a product takes."""
    return _factor_of(flow, product, live=True)


def _features_last(flow: Flow, product: int) -> int:
    """Return the features that a product takes, before the axis that they lie along changed, as for a convolution."""
    data = data_of(flow, product)
    value = flow.values[flow.same(data)]
    turned = value.op in ("transpose", "permute") and not swaps_leading_axes(value)
    return value.inputs[0] if turned else data


def weight_of(flow: Flow, product: int) -> int:
    """Return the weights that a product takes."""
    return _factor_of(flow, product, live=False)


def _factor_of(flow: Flow, product: int, *, live: bool) -> int:
    value = flow.values[product]
    first = PRODUCTS.get(value.op, 0)
    one, two = value.inputs[first : first + 2]
    return one if flow.live[one] == live else two


def _within(flow: Flow, norm: Norm, base: int, update: int) -> bool:
    return flow.depends(norm.taken, base) and flow.depends(update, norm.given)


def until(way: Way, base: int) -> Way:
    """Cut a way off at the stream, which may be a norm's result itself."""
    if base not in way.values:
        return way
    place = way.values.index(base)
    return Way(base, way.steps[place:], way.values[place:])


def _memories(tracks: Tracks, base: int, update: int) -> list[int]:
    """Return the features that products of the branch take without having seen the stream."""
    flow = tracks.flow
    found: dict[int, None] = {}
    for index in (value.index for value in flow.made_of(update) if flow.weighs[value.index]):
        if not flow.depends(index, base):
            data = _as_given(tracks.back(_features_last(flow, index)))
            if not flow.depends(base, index) and _leads_in(flow, index, base, update):
                found[data] = None
    return list(found)


def _attends(flow: Flow, scoring: Scoring, base: int) -> bool:
    """Whether keys are made of what has not seen the stream by the last product before them."""
    last = [value.index for value in flow.made_of(scoring.key) if flow.weighs[value.index]]
    last = [one for one in last if not any(flow.weighs[value.index] for value in flow.between(one, scoring.key))]
    return any(not flow.depends(one, base) and not flow.depends(base, one) for one in last)


def _leads_in(flow: Flow, index: int, base: int, update: int) -> bool:
    """Whether a product's result gets into the branch without passing another product."""
    seen, stack = {index}, list(flow.uses[index])
    while stack:
        one = stack.pop()
        if one in seen or one > update or not flow.depends(update, one):
            continue
        seen.add(one)
        if flow.depends(one, base):
            return True
        if not flow.weighs[one]:
            stack += flow.uses[one]
    return False


def _scoring(flow: Flow, inside: list[Value]) -> Scoring | None:
    for value in inside:
        if "scaled_dot_product" in value.op and not value.output:
            query, key, values = value.inputs[:3]
            return Scoring(query, key, values, value.index)
        if value.op in PRODUCTS:
            first = PRODUCTS[value.op]
            query, key = value.inputs[first : first + 2]
            if flow.live[query] and flow.live[key] and _softmaxed(flow, value.index):
                return Scoring(query, key, _values(flow, value.index, inside), value.index)
    return None


def _softmaxed(flow: Flow, index: int) -> bool:
    """Whether a softmax over its last axis follows, with no other product before it."""
    stack, seen = list(flow.uses[index]), set()
    while stack:
        one = stack.pop()
        if one in seen:
            continue
        seen.add(one)
        if flow.values[one].op in ("_softmax", "_safe_softmax"):
            return True
        if flow.values[one].op not in PRODUCTS:
            stack += flow.uses[one]
    return False


def _values(flow: Flow, scores: int, inside: list[Value]) -> int | None:
    for value in inside:
        if value.op in PRODUCTS and value.index > scores:
            first = PRODUCTS[value.op]
            weights, values = value.inputs[first : first + 2]
            if flow.depends(weights, scores) and flow.live[values]:
                return values
    return None


def _mixes(flow: Flow, value: Value) -> bool:
    """Whether an operation other than attention may mix positions, where it cannot be told which it does."""
    if value.function is None or not value.floating or not any(flow.live[one] for one in value.inputs):
        return False
    args = value.function[1]
    if value.op == "convolution":
        return any(extent > 1 for extent in flow.values[value.inputs[1]].shape[2:])
    rank = len(flow.values[value.inputs[0]].shape)
    if value.op == "cumsum":
        return bool(args[1] % rank != rank - 1)
    return value.op == "mean" and len(args) > 1 and any(axis % rank != rank - 1 for axis in args[1] or ())


def _scores(flow: Flow, norm: Norm, scoring: Scoring) -> bool:
    """Whether a norm's result becomes queries or keys without another product."""
    for end in (scoring.query, scoring.key):
        if flow.depends(end, norm.given) and not any(flow.weighs[one.index] for one in flow.between(norm.given, end)):
            return True
    return False
