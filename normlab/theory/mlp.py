"""The position-wise sub-layer (equations M1 to M3 of ``docs/theory.md``)."""

from dataclasses import dataclass

import numpy as np

from normlab.activations import ACTIVATIONS
from normlab.placements import Wiring
from normlab.theory.elementwise import Elementwise, added, identity
from normlab.theory.geometry import Geometry
from normlab.theory.kernels import Array, kernel
from normlab.theory.matrices import Gains
from normlab.theory.norms import Norms


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
        value: covariance of the branch.
        bias: whether the matrices have biases.
    """

    gains: Gains
    inputs: Array
    hidden: Array
    norm: Elementwise
    up: Array
    gate: Array | None
    value: Array
    bias: bool

    def backward(self, gradient: Array, *, roles: bool = True) -> tuple[Array, dict[str, Array]]:
        """Return the gradient's covariance at z, and each role's entries, which sum to E‖∂loss/∂W‖² (M3).

        Args:
            gradient: E⟨g_i, g_j⟩ at the branch.
            roles: whether parameters matter.
        """
        gains, width = self.gains, self.gains.width
        at_norm = gradient * gains["down"]
        at_hidden = at_norm * self.norm.slope
        back = {"up": at_hidden * self.up}
        if self.gate is not None:
            back["gate"] = at_hidden * self.gate
        total = sum((gains[role] * entries for role, entries in back.items()), start=0 * gradient)
        if not roles:
            return total, {}
        found = {"down": gradient * gains.fan_in("down") * self.hidden}
        found |= {role: entries * width * self.inputs for role, entries in back.items()}
        if self.bias:
            found |= {"down_bias": gradient} | {f"{role}_bias": entries for role, entries in back.items()}
        return total, added(found, self.norm.roles(at_norm))


def mlp_map(norms: Norms, wiring: Wiring, gains: Gains, inputs: Array, geometry: Geometry) -> MlpMap:
    """Return the MLP for inputs of covariance ``inputs``.

    Raises:
        NoTheory: the norm before W_down has no closure.
    """
    activation = ACTIVATIONS[norms.spec.activation]
    before = (gains["gate"] if activation.gated else gains["up"]) * inputs
    rows, columns = geometry.sides(before)
    moments = kernel(activation.function)(before, np.sqrt(rows * columns) * np.ones_like(before))
    if activation.gated:
        linear = gains["up"] * inputs
        hidden, up, gate, mean = linear * moments.value, moments.value, linear * moments.slope, 0.0 * inputs
    else:
        hidden, up, gate, mean = moments.value, moments.slope, None, moments.mean
    norm = identity(hidden)
    if wiring.mid_norm:
        norm = norms.around(norms.spec.hidden_width)(hidden, geometry, mean=mean, on="fresh")
    value = gains["down"] * norm.value
    return MlpMap(gains, inputs, norm.value, norm, up, gate, value, norms.spec.bias)
