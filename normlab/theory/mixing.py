"""The sub-layer that mixes positions (equations A1 to A7 of ``docs/theory.md``)."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from normlab.placements import Wiring
from normlab.spec.inner_norms import inner_norms
from normlab.theory.attention import Weights, seen_apart, softmax_weights, uniform_weights
from normlab.theory.attention_averages import AverageWeights, average_weights
from normlab.theory.attention_averages import seen_apart as averages_apart
from normlab.theory.elementwise import Back, Elementwise, added, identity, of_first, scaled, summed
from normlab.theory.geometry import Geometry, Numbers
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
        bias: whether the matrices have biases.
        normed_keys: whether a norm follows the key matrix.
        causal: whether a position sees only itself and earlier ones.
        geometry: the pairs.
        memory: covariance of what keys and values read, where that is not z (C1).
        rough: relative variance of ⟨z_i, z_j⟩ of different tokens, less their means (S6); the memory's if there is one.
        grown: how much larger scatter makes the gradients of W_q and W_k; found for each gradient unless given (A11).
    """

    gains: Gains
    inputs: Array
    weights: Weights | AverageWeights
    queries: Elementwise | None
    keys: Elementwise | None
    values: Elementwise
    mid: Elementwise
    bias: bool
    normed_keys: bool
    causal: bool
    geometry: Geometry
    memory: Array | None = None
    rough: Numbers = 0.0
    grown: float | None = None

    @property
    def value(self) -> Array:
        """Covariance of the branch."""
        return scaled(self.gains["o"], self.mid.value)

    @property
    def excess(self) -> float:
        """What the heads' own fluctuation adds to an update's (S1)."""
        return self.gains.width / self.gains.fan_in("o")

    def backward(self, gradient: Array, *, roles: bool = True) -> Back:
        """Return the gradient's covariance at z and at the memory, and the entries of each role (A4 to A7, C2).

        Args:
            gradient: E⟨g_i, g_j⟩ at the branch, or several one after the other.
            roles: whether parameters matter: to the first of several gradients.
        """
        gains = self.gains
        at_norm = scaled(gains["o"], gradient)
        mixed = self.mid.back(at_norm)
        at, projected, sums = {"v": self.weights.backward(mixed)}, {"v": self.values}, None
        if self.queries is not None and self.keys is not None:
            weights: Any = self.weights
            values = weights.seen(self.values.value)
            keys = values if self.keys.value is self.values.value else weights.seen(self.keys.value)
            expected, scattered = weights.to_queries(values, keys), self._scattered(values, keys)
            at["q"] = mixed * (expected + scattered)
            at["k"] = weights.to_keys(mixed * self.queries.value, values)
            if self.scatters:
                sums = self._sums(mixed, expected, scattered)
                factor = grown(*sums) if self.grown is None else np.asarray(self.grown)
                at["k"] = at["k"] * factor.reshape(*factor.shape, *[1] * (mixed.ndim - factor.ndim))
            projected |= {"q": self.queries, "k": self.keys}
        back = {role: projected[role].back(entries) for role, entries in at.items()}
        sent = {role: scaled(gains[role], entries) for role, entries in back.items()}
        if self.memory is None:
            total, memory = summed(sent.values()), None
        else:
            memory = summed(entries for role, entries in sent.items() if role != "q")
            total = sent.get("q", 0 * gradient)
        if not roles:
            return Back(total, {}, memory, sums)
        gradient, at_norm = (of_first(entries, like=self.inputs) for entries in (gradient, at_norm))
        back, at = ({role: of_first(one, like=self.inputs) for role, one in some.items()} for some in (back, at))
        found = {"o": gradient * gains.fan_in("o") * self.mid.value}
        read = gains.width * self.inputs
        memories = read if self.memory is None else gains.width * self.memory
        matrices = {role: entries * (read if role == "q" else memories) for role, entries in back.items()}
        if self.bias:
            found |= {"o_bias": gradient} | {f"{role}_bias": entries for role, entries in back.items()}
            if self.keys is not None and not self.normed_keys:
                # A constant added to all keys adds the same to all logits of a position.
                found["k_bias"] = 0 * gradient
        norms = [projected[role].roles(entries) for role, entries in at.items()]
        return Back(total, added(found, matrices, self.mid.roles(at_norm), *norms), memory, sums)

    def read(self, role: str) -> Array:
        """Return the covariance of what the matrix ``role`` reads: the memory, for keys and values that have one."""
        return self.inputs if self.memory is None or role == "q" else self.memory

    @property
    def scatters(self) -> bool:
        """Whether products of different positions' values and keys scatter, so that a gradient's way back is no sum."""
        return self.queries is not None and not (isinstance(self.rough, float) and not self.rough)

    def _scattered(self, values: Any, keys: Any) -> Numbers:
        """What products of different positions' values and keys scatter by (A11)."""
        if not self.scatters:
            return 0.0
        if isinstance(self.weights, AverageWeights):
            return self.rough * averages_apart(values, keys)
        return self.rough * seen_apart(values, keys, self.geometry, causal=self.causal)

    def _sums(self, mixed: Array, expected: Array, scattered: Array) -> tuple[Numbers, Numbers]:
        """What the gradient of W_q has without scatter, and what that adds to it."""
        weighed = mixed * self.inputs
        before, more = (self.geometry.product(weighed, part) for part in (expected, scattered))
        return before, more


def grown(before: Numbers, more: Numbers) -> Numbers:
    """How much larger scatter makes the gradient of W_q, and of W_k alike."""
    known = before > 0
    return 1 + np.maximum(more / np.where(known, before, 1.0), 0.0) * known


def attention_map(
    norms: Norms,
    where: Where,
    wiring: Wiring,
    gains: Gains,
    inputs: Array,
    geometry: Geometry,
    memory: Array | None = None,
) -> AttentionMap:
    """Return attention for inputs of covariance ``inputs``.

    Args:
        norms: the model's norms.
        where: the sub-layer's address.
        wiring: its switches.
        gains: its matrices.
        inputs: covariance of z.
        geometry: the pairs.
        memory: covariance of what keys and values read, all of it visible from every position; z unless given (C1).

    Raises:
        NoTheory: a norm inside it has no closure, or the softmax saturates.
    """
    spec = norms.spec
    causal = where.stack == "decoder" and memory is None
    inner = norms.once(("inner", wiring.qkv_norm), lambda: inner_norms(spec, wiring))
    # What is read with equal gains is the same: nothing is computed, or kept, twice.
    read: dict[tuple[bool, Hashable], Elementwise] = {}

    def projected(role: str) -> Elementwise:
        own, gain = memory is None or role == "q", gains[role]
        same = own, role if isinstance(gain, np.ndarray) else gain
        if same not in read:
            read[same] = identity(scaled(gain, inputs if own or memory is None else memory))
        if role not in inner:
            return read[same]
        covariance = read[same].value
        heads = spec.heads if role == "q" else spec.key_value_heads
        return norms.inside(inner[role], heads)(covariance, geometry, on="fresh")

    values, queries, keys = projected("v"), None, None
    if spec.attention == "softmax":
        queries, keys = projected("q"), projected("k")
    weights, of_keys = _weights(queries, keys, inputs, geometry, causal)
    if of_keys is not None and keys is not None and values.value is keys.value:
        mixed = of_keys
    else:
        mixed = weights.forward(values.value)
    mid = norms.around(gains.fan_in("o"))(mixed, geometry, on="fresh") if wiring.mid_norm else identity(mixed)
    return AttentionMap(
        gains=gains,
        inputs=inputs,
        weights=weights,
        queries=queries,
        keys=keys,
        values=values,
        mid=mid,
        bias=spec.bias,
        normed_keys="k" in inner,
        causal=causal,
        geometry=geometry,
        memory=memory,
    )


def _weights(
    queries: Elementwise | None, keys: Elementwise | None, inputs: Array, geometry: Geometry, causal: bool
) -> tuple[Weights | AverageWeights, Array | None]:
    """Return the weights, and what they make of the keys where that is known by the way."""
    if geometry.rows is None:
        q, k = (None, None) if queries is None or keys is None else (queries.value, keys.value)
        return average_weights(q, k, geometry, causal=causal), None
    if queries is None or keys is None:
        return uniform_weights(inputs.shape, causal=causal), None
    return softmax_weights(queries.value, keys.value, geometry, causal=causal)
