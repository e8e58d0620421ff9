"""The switches of the unified block: what stands where around one sub-layer."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from normlab.errors import SpecError

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

    where a norm that is switched off is the identity. With a second stream y, of its own topology::

        stream = N(skip_scale · skip + update),    y ← y + second_stream · update

    The model and the theory read the same object.

    Attributes:
        inner_norm: a norm before F.
        qkv_norm: norms inside attention, on queries, keys and values.
        mid_norm: a norm inside F, before its last matrix product.
        output_norm: a norm after F.
        outer_norm: a norm on the sum, so on the stream itself.
        skip: what the update is added to: the stream, the normed stream, the stream plus the block's
            input, or nothing.
        skip_scale: a.
        branch_scale: b; where it is learnable, its value at initialisation.
        learn_branch_scale: whether b is fixed (empty), a learnable scalar, or one factor a feature.
        interpolate: a follows b: a = 1 − b, also while b is learned.
        input_scale: c, fixed, after the inner norm.
        output_gain: initial gain γ of the output norm.
        second_stream: κ, the weight of updates in a second stream; ``None`` where there is one stream.

    Raises:
        SpecError: switches that exclude each other.
    """

    inner_norm: bool = False
    qkv_norm: bool = False
    mid_norm: bool = False
    output_norm: bool = False
    outer_norm: bool = False
    skip: Skip = "stream"
    skip_scale: float = 1.0
    branch_scale: float = 1.0
    learn_branch_scale: Learnable = ""
    interpolate: bool = False
    input_scale: float = 1.0
    output_gain: float = 1.0
    second_stream: float | None = None

    def __post_init__(self) -> None:
        if self.second_stream is not None and self.outer_norm:
            raise SpecError(
                "a placement asks for two streams and an outer norm: the first of two streams is normed already; "
                "leave outer_norm or second_stream out"
            )
        if self.skip == "normed" and not self.inner_norm:
            raise SpecError("a placement skips from the normed stream without an inner norm: switch inner_norm on")
        if self.interpolate and abs(self.skip_scale + self.branch_scale - 1) > 1e-12:
            raise SpecError(
                f"a placement interpolates with skip_scale {self.skip_scale:g} and branch_scale {self.branch_scale:g}: "
                f"give two numbers that sum to 1"
            )

    @property
    def norms_stream(self) -> bool:
        """Whether a norm stands on the sum."""
        return self.outer_norm or self.second_stream is not None

    @property
    def equation(self) -> str:
        """The sub-layer with its numbers, such as ``x ← N(2.21·x + F(x))``."""
        z = _times(self.input_scale, "N(x)" if self.inner_norm else "x")
        branch = f"F({z})"
        if self.output_norm:
            branch = _times(self.output_gain, f"N({branch})")
        update = f"b·{branch}" if self.learn_branch_scale else _times(self.branch_scale, branch)
        total = update if self.skip == "none" else f"{self._skip_term()} + {update}"
        stream = f"x ← N({total})" if self.norms_stream else f"x ← {total}"
        return ",  ".join([stream, *self._remarks(update)])

    def _skip_term(self) -> str:
        term = {"stream": "x", "normed": "N(x)", "stream+block_input": "x + x_block"}[self.skip]
        return f"(1 − b)·{term}" if self.interpolate and self.learn_branch_scale else _times(self.skip_scale, term)

    def _remarks(self, update: str) -> list[str]:
        per = {"": "", "scalar": "a learnable number", "channel": "a learnable number a feature"}
        return [
            remark
            for remark, holds in (
                (f"y ← y + {_times(self.second_stream or 0.0, update)}", self.second_stream is not None),
                (f"b {per[self.learn_branch_scale]} from {self.branch_scale:.4g}", bool(self.learn_branch_scale)),
                ("N on q, k and v", self.qkv_norm),
                ("N before F's last matrix", self.mid_norm),
            )
            if holds
        ]


def _times(factor: float, term: str) -> str:
    if factor == 1:
        return term
    return f"{factor:.4g}·({term})" if " + " in term else f"{factor:.4g}·{term}"
