"""Whether the values of a spec describe a model: one sentence for each way in which they do not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from normlab.activations import ACTIVATIONS
from normlab.errors import SpecError, suggest, unknown_name
from normlab.inits import INITS
from normlab.norms import NORMS
from normlab.options import Options, OptionValue, as_declared, check_options
from normlab.placements import PLACEMENTS, Wiring
from normlab.spec.inner_norms import check_norms
from normlab.where import Where

if TYPE_CHECKING:
    from normlab.spec.model_spec import ModelSpec


def check_names(given: Iterable[str], names: Sequence[str]) -> None:
    """Check that a spec has the fields ``given``.

    Raises:
        SpecError: it has not.
    """
    for name in given:
        if name not in names:
            raise SpecError(
                f"a model spec has no field {name!r}: its fields are {', '.join(names)}{suggest(name, names)}"
            )


def check(
    spec: "ModelSpec", *, kinds: tuple[str, ...], attentions: tuple[str, ...], positions: tuple[str, ...]
) -> None:
    """Check that ``spec`` describes a model.

    Raises:
        SpecError: it does not.
    """
    for what, name, allowed in (
        ("kind", spec.kind, kinds),
        ("attention", spec.attention, attentions),
        ("position", spec.position, positions),
    ):
        if name not in allowed:
            raise unknown_name(what, str(name), allowed)
    _check_sizes(spec)
    _check_numbers(spec)
    _check_registered(spec)
    _check_options(spec)
    check_norms(spec)
    _check_kind(spec)
    _check_attention(spec)
    _check_wirings(spec)


def plain_options(spec: "ModelSpec", name: str) -> Options:
    """Accept a mapping or pairs in the field ``name``; return sorted pairs of plain values, so that it can be hashed.

    A whole number becomes a float where the option's default is one.

    Raises:
        SpecError: the field is neither, or a value is not plain.
    """
    given = getattr(spec, name)
    pairs: Any = given.items() if isinstance(given, Mapping) else given
    try:
        options = sorted((str(key), value) for key, value in pairs)
    except (TypeError, ValueError) as error:
        raise SpecError(f"{name} is {given!r}: give pairs such as (('gain', False),) or a dictionary") from error
    for key, value in options:
        if not isinstance(value, OptionValue):
            raise SpecError(f"{name} gives {key!r} the value {value!r}: a number, a string, True or False is allowed")
    return tuple(as_declared(_defaults(spec, name), dict(options)).items())  # type: ignore[arg-type]


def _defaults(spec: "ModelSpec", name: str) -> dict[str, object]:
    match name:
        case "norm_options":
            return dict(NORMS[spec.norm].options) if spec.norm in NORMS else {}
        case "init_options":
            return dict(INITS[spec.init].options) if spec.init in INITS else {}
    known = [PLACEMENTS[placement] for placement in _placements(spec) if placement in PLACEMENTS]
    return {key: default for placement in known for key, default in placement.options.items()}


def plain_placement(given: object) -> str | tuple[str, ...]:
    """Accept a name or a sequence of names; return a name or a tuple.

    Raises:
        SpecError: ``given`` is neither.
    """
    if isinstance(given, str):
        return given
    if isinstance(given, Sequence) and all(isinstance(name, str) for name in given):
        return tuple(given)
    raise SpecError(f"placement is {given!r}: give the name of a placement, or a tuple with one name a block")


def _check_sizes(spec: "ModelSpec") -> None:
    required = ("depth", "width", "heads", "vocab", "context")
    for name in (*required, "kv_heads", "head_width", "mlp_width", "encoder_depth"):
        value = getattr(spec, name)
        if value is None and name not in required:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SpecError(f"{name} is {value!r}: give a whole number of at least 1")
    if spec.head_width is None and spec.width % spec.heads:
        raise SpecError(
            f"width {spec.width} is not divisible by {spec.heads} heads: "
            f"give a multiple of {spec.heads}, another number of heads, or head_width"
        )
    if spec.heads % spec.key_value_heads:
        raise SpecError(
            f"{spec.heads} heads cannot share {spec.kv_heads} key and value heads: give a divisor of {spec.heads}"
        )


def _check_numbers(spec: "ModelSpec") -> None:
    for name, high in (("norm_eps", float("inf")), ("dropout", 1.0), ("embed_std", float("inf"))):
        value = getattr(spec, name)
        if value is None and name == "embed_std":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < high:
            raise SpecError(f"{name} is {value!r}: give a number of at least 0" + (" and below 1" if high == 1 else ""))
    for name in ("final_norm", "embed_norm", "bias", "tie_embeddings", "parallel"):
        value = getattr(spec, name)
        if not isinstance(value, bool) and not (value is None and name.endswith("norm")):
            raise SpecError(f"{name} is {value!r}: give True or False")


def _check_registered(spec: "ModelSpec") -> None:
    for name in _placements(spec):
        PLACEMENTS[name]
    NORMS[spec.norm]
    INITS[spec.init]
    ACTIVATIONS[spec.activation]
    if isinstance(spec.placement, str):
        return
    for depth in spec.stacks.values():
        if len(spec.placement) != depth:
            raise SpecError(
                f"placement lists {len(spec.placement)} blocks and depth is {depth}: give one name, or one a block"
            )


def _check_options(spec: "ModelSpec") -> None:
    check_options(f"norm {spec.norm!r}", NORMS[spec.norm].options, dict(spec.norm_options))
    check_options(f"init {spec.init!r}", INITS[spec.init].options, dict(spec.init_options))
    for name in _placements(spec):
        check_options(f"placement {name!r}", PLACEMENTS[name].options, dict(spec.placement_options))


def _placements(spec: "ModelSpec") -> list[str]:
    return sorted({spec.placement} if isinstance(spec.placement, str) else set(spec.placement))


def _check_kind(spec: "ModelSpec") -> None:
    if spec.encoder_depth is not None and spec.kind != "encoder-decoder":
        raise SpecError(
            f"encoder_depth is {spec.encoder_depth} and the kind {spec.kind!r} has one stack: "
            f"give its blocks as depth, or kind='encoder-decoder'"
        )
    if spec.kind == "encoder-decoder" and spec.attention == "none":
        raise SpecError(
            "an encoder-decoder without attention would not read its encoder: give attention softmax or uniform"
        )
    if spec.parallel and (spec.kind == "encoder-decoder" or spec.attention == "none"):
        raise SpecError(
            f"parallel puts attention and MLP side by side, and kind {spec.kind!r} with attention {spec.attention!r} "
            f"has other sub-layers: give parallel=False"
        )


def _check_attention(spec: "ModelSpec") -> None:
    if spec.position == "rope" and spec.attention != "softmax":
        raise SpecError(
            f"position 'rope' rotates queries and keys, which attention {spec.attention!r} does not have: "
            f"give attention 'softmax', or another position"
        )
    if spec.position == "rope" and spec.features_per_head % 2:
        raise SpecError(f"rope rotates pairs of features and a head has {spec.features_per_head}: give an even number")


def _check_wirings(spec: "ModelSpec") -> None:
    wirings = list(_wirings(spec))
    for where, wiring in wirings:
        if wiring.output_gain != 1 and not _has_gain(spec):
            raise SpecError(
                f"placement {spec.placement!r} starts the gain of its output norm at {wiring.output_gain:g} and norm "
                f"{spec.norm!r} has none here: give a norm with a gain, or another placement"
            )
        if (wiring.second_stream is None) != (wirings[0][1].second_stream is None):
            raise SpecError(
                f"block {where.layer} has another number of streams than block 1: "
                f"a placement with two streams cannot be mixed with others; give it to every block"
            )
    if spec.parallel:
        _check_parallel(spec, wirings)


def _check_parallel(spec: "ModelSpec", wirings: list[tuple[Where, Wiring]]) -> None:
    for (_, attention), (_, mlp) in zip(wirings[::2], wirings[1::2], strict=True):
        shared = all(getattr(attention, name) == getattr(mlp, name) for name in ("skip", "skip_scale"))
        follows = attention.interpolate and attention.learn_branch_scale
        if not shared or follows or mlp.skip != "stream" or mlp.second_stream is not None:
            raise SpecError(
                f"parallel attention and MLP add to one common skip, which placement {spec.placement!r} does not have: "
                f"give parallel=False or a placement such as 'pre'"
            )


def _wirings(spec: "ModelSpec") -> Iterator[tuple[Where, Wiring]]:
    for stack, depth in spec.stacks.items():
        for layer in range(1, depth + 1):
            for sublayer in spec.sublayers(stack):
                where = spec.where(stack, layer, sublayer)
                yield where, spec.wiring(where)


def _has_gain(spec: "ModelSpec") -> bool:
    options = NORMS[spec.norm].options
    return "initial_gain" in options and bool(dict(spec.norm_options).get("gain", options.get("gain", True)))
