"""The switches of the unified block: what stands where around one sub-layer."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Skip: TypeAlias = Literal["stream", "normed", "stream+block_input", "none"]
Learnable: TypeAlias = Literal["", "scalar", "channel"]


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """One sub-layer F of the unified block, as numbers and switches.

    With N the model's norm, the sub-layer computes::

        z      = input_scale · N_inner(x)
        update = branch_scale · N_output(F(z))
        sum    = skip_scale · skip + update,    skip = x, N_inner(x), x + x_block or nothing
        stream = N_outer(sum)

    where a norm that is switched off is the identity. The model and the theory read the same object.

    Attributes:
        inner_norm: a norm before F.
        mid_norm: a norm inside F, before its last matrix product.
        output_norm: a norm after F.
        outer_norm: a norm on the sum, so on the stream itself.
        skip: what the update is added to: the stream, the normed stream, the stream plus the block's
            input, or nothing.
        skip_scale: a.
        branch_scale: b; where it is learnable, its value at initialisation.
        learn_branch_scale: whether b is fixed (empty), a learnable scalar, or one factor a feature.
        input_scale: c, fixed, after the inner norm.
        output_gain: initial gain γ of the output norm.
    """

    inner_norm: bool = False
    mid_norm: bool = False
    output_norm: bool = False
    outer_norm: bool = False
    skip: Skip = "stream"
    skip_scale: float = 1.0
    branch_scale: float = 1.0
    learn_branch_scale: Learnable = ""
    input_scale: float = 1.0
    output_gain: float = 1.0
