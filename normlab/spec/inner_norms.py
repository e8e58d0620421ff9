"""Norms inside attention: on queries, keys and values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import nn

from normlab.errors import SpecError
from normlab.norms import NORMS, Norm
from normlab.options import Options
from normlab.placements import Wiring

if TYPE_CHECKING:
    from normlab.spec.model_spec import ModelSpec

#: What follows a norm's name where it runs over the features of all heads together.
ALL_HEADS: Final = "-all"


@dataclass(frozen=True, kw_only=True)
class InnerNorm:
    """A norm on queries, keys or values.

    Attributes:
        norm: the norm.
        all_heads: whether it runs over the features of all heads together; otherwise over each head's, with
            one gain for all heads.
        eps: its ε.
        options: its options.
    """

    norm: Norm
    all_heads: bool
    eps: float
    options: Options

    def build(self, heads: int, features: int) -> nn.Module:
        """Build the module for ``heads`` heads of ``features`` features."""
        return self.norm.make(heads * features if self.all_heads else features, eps=self.eps, **dict(self.options))


def inner_norm(spec: "ModelSpec", name: str) -> InnerNorm:
    """Return the norm that ``qk_norm`` or ``v_norm`` calls ``name``: a registered norm, or that and ``-all``.

    It has the model's ε, no bias, and the model's ``norm_options`` where it is the model's norm.

    Raises:
        UnknownNameError: no norm has that name.
        SpecError: a norm over each head that is not known to be per-token: statistics over a batch would mix heads.
    """
    norm = NORMS[name.removesuffix(ALL_HEADS)]
    all_heads = name.endswith(ALL_HEADS)
    if not all_heads and "per-token" not in norm.properties:
        raise SpecError(
            f"norm {name!r} is not per-token, so that it cannot stand inside attention head by head: "
            f"give {name + ALL_HEADS!r}, or another norm"
        )
    options = dict(spec.norm_options if norm.name == spec.norm else ())
    if "bias" in norm.options:
        options["bias"] = False
    return InnerNorm(norm=norm, all_heads=all_heads, eps=spec.norm_eps, options=tuple(sorted(options.items())))


def inner_norms(spec: "ModelSpec", wiring: Wiring) -> dict[str, InnerNorm]:
    """Return the norms inside an attention sub-layer by the matrix that they follow: ``q``, ``k``, ``v``.

    A placement that norms queries, keys and values does so with the model's norm, unless ``qk_norm`` or
    ``v_norm`` names another.
    """
    placed = None
    if wiring.qkv_norm:
        placed = spec.norm if "per-token" in NORMS[spec.norm].properties else spec.norm + ALL_HEADS
    names = {"q": spec.qk_norm or placed, "k": spec.qk_norm or placed, "v": spec.v_norm or placed}
    roles = {"softmax": ("q", "k", "v"), "uniform": ("v",)}.get(spec.attention, ())
    return {role: inner_norm(spec, name) for role, name in names.items() if name and role in roles}


def build_inner_norms(spec: "ModelSpec", wiring: Wiring) -> dict[str, tuple[nn.Module, int]]:
    """Build the norms inside an attention sub-layer; return each with how many groups of features it norms apart."""
    features, shapes = spec.features_per_head, spec.matrices("attn")
    heads = {role: shapes[role][1] // features for role in inner_norms(spec, wiring)}
    return {
        role: (inner.build(heads[role], features), 1 if inner.all_heads else heads[role])
        for role, inner in inner_norms(spec, wiring).items()
    }


def inner_parameters(spec: "ModelSpec", wiring: Wiring) -> int:
    """Return the number of learnable entries of the norms inside an attention sub-layer."""
    with torch.device("meta"):
        built = build_inner_norms(spec, wiring).values()
    return sum(parameter.numel() for norm, _ in built for parameter in norm.parameters())


def check_norms(spec: "ModelSpec") -> None:
    """Build each norm of the model once: only the norms know which values of their options go together.

    Raises:
        SpecError: one of them cannot be built.
    """
    spec.build_norm(spec.width)
    for field, heads in (("qk_norm", spec.heads), ("qk_norm", spec.key_value_heads), ("v_norm", spec.key_value_heads)):
        name = getattr(spec, field)
        if name is None:
            continue
        if not isinstance(name, str):
            raise SpecError(f"{field} is {name!r}: give the name of a norm, such as 'rmsnorm' or 'rmsnorm-all'")
        inner_norm(spec, name).build(heads, spec.features_per_head)
    if spec.qk_norm is not None and spec.attention != "softmax":
        raise SpecError(
            f"qk_norm {spec.qk_norm!r} norms queries and keys, which attention {spec.attention!r} does not have: "
            f"give attention 'softmax', or leave qk_norm out"
        )
    if spec.v_norm is not None and spec.attention == "none":
        raise SpecError(
            f"v_norm {spec.v_norm!r} norms values, which attention 'none' does not have: "
            f"give another attention, or leave v_norm out"
        )
