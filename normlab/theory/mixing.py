"""The sub-layer that mixes positions (equations A1 to A7 of ``docs/theory.md``)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from normlab.placements import Wiring
from normlab.spec.inner_norms import inner_norms
from normlab.theory.attention import Weights, seen_apart, softmax_weights, uniform_weights
from normlab.theory.attention_averages import AverageWeights, average_weights
from normlab.theory.elementwise import Elementwise, added, identity
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array
from normlab.theory.matrices import Gains
from normlab.theory.norms import Norms
from normlab.where import Where


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """W_o · concat_h(A_h W_v z).

    Attributes:
        gains: of the matrices.
        inputs: covariance of z.
        weights: averaged products of attention weights.
        queries: per-feature covariance of queries after their norm; ``None`` with uniform attention.
        keys: the same of keys.
        values: the same of values.
        mid: the norm before W_o.
        value: covariance of the branch.
        bias: whether the matrices have biases.
        normed_keys: whether a norm follows the key matrix.
        scattered: E of what products of different positions' values and keys scatter by (A11).
        geometry: the pairs.
    """

    gains: Gains
    inputs: Array
    weights: Weights | AverageWeights
    queries: Elementwise | None
    keys: Elementwise | None
    values: Elementwise
    mid: Elementwise
    value: Array
    bias: bool
    normed_keys: bool
    scattered: Array | float = 0.0
    geometry: Geometry | None = None

    def backward(self, gradient: Array, *, roles: bool = True) -> tuple[Array, dict[str, Array]]:
        """Return the gradient's covariance at z, and each role's entries, which sum to E‖∂loss/∂W‖² (A4 to A7).

        Args:
            gradient: E⟨g_i, g_j⟩ at the branch.
            roles: whether parameters matter.
        """
        gains = self.gains
        at_norm = gradient * gains["o"]
        mixed = at_norm * self.mid.slope
        at = {"v": self.weights.backward(mixed)}
        projected = {"v": self.values}
        if self.queries is not None and self.keys is not None:
            at["q"] = mixed * (self._expected + self.scattered)
            at["k"] = self.weights.to_keys(mixed * self.queries.value, self.values.value) * self._grown(mixed)
            projected |= {"q": self.queries, "k": self.keys}
        back = {role: entries * projected[role].slope for role, entries in at.items()}
        total = sum((gains[role] * entries for role, entries in back.items()), start=0 * gradient)
        if not roles:
            return total, {}
        found = {"o": gradient * gains.fan_in("o") * self.mid.value}
        per_feature = gains.width * self.inputs
        matrices = {role: entries * per_feature for role, entries in back.items()}
        if self.bias:
            found |= {"o_bias": gradient} | {f"{role}_bias": entries for role, entries in back.items()}
            if self.keys is not None and not self.normed_keys:
                # A constant added to all keys adds the same to all logits of a position.
                found["k_bias"] = 0 * gradient
        norms = [projected[role].roles(entries) for role, entries in at.items()]
        return total, added(found, matrices, self.mid.roles(at_norm), *norms)

    @cached_property
    def _expected(self) -> Array:
        """What values and keys make of a gradient on its way to the queries (A5)."""
        assert self.keys is not None
        return self.weights.to_queries(self.values.value, self.keys.value)

    def _grown(self, mixed: Array) -> float:
        """How much larger the scatter makes the gradient of W_q, and of W_k alike."""
        if self.geometry is None or not np.any(self.scattered):
            return 1.0
        weighed = mixed * self.inputs
        before = self.geometry.total(weighed * self._expected)
        return 1 + max(self.geometry.total(weighed * self.scattered) / before, 0.0) if before > 0 else 1.0


def attention_map(
    norms: Norms, where: Where, wiring: Wiring, gains: Gains, inputs: Array, geometry: Geometry, rough: float = 0.0
) -> AttentionMap:
    """Return self-attention for inputs of covariance ``inputs``.

    Args:
        norms: the model's norms.
        where: the sub-layer's address.
        wiring: its switches.
        gains: its matrices.
        inputs: covariance of z.
        geometry: the pairs.
        rough: relative variance of ⟨z_i, z_j⟩ of different tokens, less their means (S6).

    Raises:
        NoTheory: a norm inside it has no closure, or the softmax saturates.
    """
    spec = norms.spec
    causal = where.stack == "decoder"
    inner = inner_norms(spec, wiring)

    def projected(role: str) -> Elementwise:
        covariance = gains[role] * inputs
        if role not in inner:
            return identity(covariance)
        heads = spec.heads if role == "q" else spec.key_value_heads
        return norms.inside(inner[role], heads)(covariance, geometry, on="fresh")

    values, queries, keys = projected("v"), None, None
    if spec.attention == "softmax":
        queries, keys = projected("q"), projected("k")
    weights = _weights(queries, keys, inputs, geometry, causal)
    mixed = weights.forward(values.value)
    mid = identity(mixed)
    if wiring.mid_norm:
        mid = norms.around(gains.fan_in("o"))(mixed, geometry, on="fresh")
    return AttentionMap(
        gains=gains,
        inputs=inputs,
        weights=weights,
        queries=queries,
        keys=keys,
        values=values,
        mid=mid,
        value=gains["o"] * mid.value,
        bias=spec.bias,
        normed_keys="k" in inner,
        scattered=_scattered(queries, keys, values.value, geometry, causal, rough),
        geometry=geometry,
    )


def _scattered(
    queries: Elementwise | None, keys: Elementwise | None, values: Array, geometry: Geometry, causal: bool, rough: float
) -> Array | float:
    if queries is None or keys is None or not rough:
        return 0.0
    return rough * seen_apart(values, keys.value, geometry, causal=causal)


def _weights(
    queries: Elementwise | None, keys: Elementwise | None, inputs: Array, geometry: Geometry, causal: bool
) -> Weights | AverageWeights:
    if geometry.rows is None:
        q, k = (None, None) if queries is None or keys is None else (queries.value, keys.value)
        return average_weights(q, k, geometry, causal=causal)
    if queries is None or keys is None:
        return uniform_weights(inputs.shape, causal=causal)
    return softmax_weights(queries.value, keys.value, geometry, causal=causal)
