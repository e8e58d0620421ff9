"""The position-wise sub-layer (equations M1 to M3 of ``docs/theory.md``)."""

from dataclasses import dataclass

import numpy as np

from normlab.activations import ACTIVATIONS
from normlab.placements import Wiring
from normlab.theory.elementwise import Back, Elementwise, added, identity, of_first, scaled, summed
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array, kernel
from normlab.theory.matrices import Gains
from normlab.theory.norms import Norms

#: What the hidden layer's own fluctuation adds, times d/d_hidden: half of E φ⁴/(E φ²)² − 1 for a ReLU.
_HIDDEN = 2.5


@dataclass(frozen=True, eq=False)
class MlpMap:
    """W_down φ(W_up z), or its gated form.

    Attributes:
        gains: of the matrices.
        inputs: covariance of z.
        hidden: covariance of what W_down sees.
        norm: the norm before W_down.
        up: what the hidden gradient's covariance is multiplied by to give the one at W_up z.
        gate: the same at W_gate z; ``None`` without a gate.
        bias: whether the matrices have biases.
    """

    gains: Gains
    inputs: Array
    hidden: Array
    norm: Elementwise
    up: Array
    gate: Array | None
    bias: bool

    @property
    def value(self) -> Array:
        """Covariance of the branch."""
        return scaled(self.gains["down"], self.norm.value)

    @property
    def excess(self) -> float:
        """What the hidden layer's own fluctuation adds to an update's (S1)."""
        return _HIDDEN * self.gains.width / self.gains.fan_in("down")

    def backward(self, gradient: Array, *, roles: bool = True) -> Back:
        """Return the gradient's covariance at z and the entries of each role (M2, M3).

        Args:
            gradient: E⟨g_i, g_j⟩ at the branch, or several one after the other.
            roles: whether parameters matter: to the first of several gradients.
        """
        gains, width = self.gains, self.gains.width
        at_norm = scaled(gains["down"], gradient)
        at_hidden = self.norm.back(at_norm)
        back = {"up": at_hidden * self.up}
        if self.gate is not None:
            back["gate"] = at_hidden * self.gate
        total = summed(scaled(gains[role], entries) for role, entries in back.items())
        if not roles:
            return Back(total, {})
        gradient, at_norm = (of_first(entries, like=self.inputs) for entries in (gradient, at_norm))
        back = {role: of_first(entries, like=self.inputs) for role, entries in back.items()}
        found = {"down": gradient * gains.fan_in("down") * self.hidden}
        found |= {role: entries * width * self.inputs for role, entries in back.items()}
        if self.bias:
            found |= {"down_bias": gradient} | {f"{role}_bias": entries for role, entries in back.items()}
        return Back(total, added(found, self.norm.roles(at_norm)))


def mlp_map(norms: Norms, wiring: Wiring, gains: Gains, inputs: Array, geometry: Geometry) -> MlpMap:
    """Return the MLP for inputs of covariance ``inputs``.

    Raises:
        NoTheory: the norm before W_down has no closure.
    """
    activation = ACTIVATIONS[norms.spec.activation]
    before = scaled(gains["gate"] if activation.gated else gains["up"], inputs)
    rows, columns = geometry.sides(before)
    moments = kernel(activation.function)(before, np.sqrt(rows * columns))
    hidden, up, gate, mean = moments.value, moments.slope, None, moments.mean
    if activation.gated:
        linear = scaled(gains["up"], inputs)
        hidden, up, gate, mean = linear * moments.value, moments.value, linear * moments.slope, 0.0 * mean
    if wiring.mid_norm:
        norm = norms.around(norms.spec.hidden_width)(hidden, geometry, mean=mean, on="fresh")
    else:
        norm = identity(hidden)
    return MlpMap(gains, inputs, norm.value, norm, up, gate, norms.spec.bias)
