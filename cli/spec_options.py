"""Every field of a model as an option, from one table that can be read without torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from normlab.cli.values import name, number, pair, several, switch, whole

_METAVARS: Mapping[object, str] = {name: "NAME", number: "X", pair: "name=value", switch: "on|off", whole: "N"}


@dataclass(frozen=True)
class Field:
    """A field of ``ModelSpec`` on the command line.

    Attributes:
        name: of the field, and with dashes of the repeatable option.
        kind: the function that reads one value.
        says: help.
        plural: the option that takes a list of values; empty where there is none.
    """

    name: str
    kind: Callable[[object], Any]
    says: str
    plural: str = ""

    @property
    def option(self) -> str:
        """The name of the option; the pairs of ``norm_options`` are given one by one, as ``--norm-option``."""
        return "--" + (self.name.removesuffix("s") if self.kind is pair else self.name).replace("_", "-")


#: In the order of help: what a sweep usually varies comes first.
FIELDS = (
    Field("placement", name, "What stands where around a sub-layer: pre, post, peri, none, ...", "placements"),
    Field("norm", name, "layernorm, rmsnorm, identity, ...", "norms"),
    Field("depth", whole, "Number of blocks.", "depths"),
    Field("width", whole, "Features of the residual stream.", "widths"),
    Field("heads", whole, "Attention heads."),
    Field("activation", name, "relu, gelu, ...", "activations"),
    Field("attention", name, "softmax, uniform (an average) or none (no attention sub-layer).", "attentions"),
    Field("init", name, "xavier, gpt2, gpt2-scaled, ...", "inits"),
    Field("final_norm", switch, "A norm after the last block; without this the placement decides."),
    Field("kind", name, "decoder, encoder or encoder-decoder."),
    Field("kv_heads", whole, "Heads of keys and values; as many as heads."),
    Field("head_width", whole, "Features of a head; width / heads."),
    Field("mlp_width", whole, "Hidden features of the MLP; 4 · width."),
    Field("encoder_depth", whole, "Blocks of an encoder-decoder's encoder."),
    Field("vocab", whole, "Number of different tokens."),
    Field("context", whole, "Longest sequence."),
    Field("placement_options", pair, "Option of the placement."),
    Field("norm_eps", number, "ε of the norm."),
    Field("norm_options", pair, "Option of the norm."),
    Field("embed_norm", switch, "A norm after the embedding; without this the placement decides."),
    Field("qk_norm", name, "A norm on queries and keys."),
    Field("v_norm", name, "A norm on values."),
    Field("init_options", pair, "Option of the initialisation."),
    Field("embed_std", number, "Standard deviation of the embedding; without this the init decides."),
    Field("bias", switch, "Biases in the matrices."),
    Field("position", name, "none, learned, sinusoidal or rope."),
    Field("tie_embeddings", switch, "The head is the embedding."),
    Field("parallel", switch, "Attention and MLP side by side."),
    Field("dropout", number, "Probability that an entry of a branch is dropped."),
)


def spec_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field; the command receives them by the names of the fields and of their plurals."""
    for field in reversed(FIELDS):
        metavar = _METAVARS[field.kind]
        if field.plural:
            lists = several(field.kind)
            says = f"Several of {field.option}."
            function = click.option(
                f"--{field.plural}", multiple=True, type=lists, metavar=f"{metavar},...", help=says
            )(function)
        function = click.option(
            field.option, field.name, multiple=True, type=_single(field), metavar=metavar, help=field.says
        )(function)
    return function


def _single(field: Field) -> Callable[[object], Any]:
    """Return the function that reads one value, and says how several are given."""
    if not field.plural:
        return field.kind

    def read(word: object) -> Any:
        if "," in str(word):
            raise click.BadParameter(f"{word} is a list: give --{field.plural} {word}")
        return field.kind(word)

    return read


def axes(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return for each field that was given its different values, in the order given.

    Args:
        values: what the command received for :func:`spec_options`.

    Raises:
        click.UsageError: no depth or no width was given.
    """
    given = {field.name: _given(field, values) for field in FIELDS}
    for required in ("depth", "width"):
        if not given[required]:
            raise click.UsageError(
                f"no {required} was given: give --{required} 64, or a list such as --{required}s 64,128"
            )
    return {field: values_of for field, values_of in given.items() if values_of}


def _given(field: Field, values: Mapping[str, Any]) -> list[Any]:
    singles = values[field.name]
    if field.kind is pair:
        return [tuple(sorted(dict(singles).items()))] if singles else []
    lists = values[field.plural] if field.plural else ()
    return list(dict.fromkeys([*singles, *(value for values in lists for value in values)]))
