"""nGPT's forward pass: each sub-layer turns the normed stream a little towards its normed output."""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring
from normlab.where import Where


def ngpt(where: Where, *, step: float = 0.05) -> Wiring:
    """Steps of a learnable size per feature on the sphere.

    As published every token has length 1 and the MLP's input is multiplied by √d; with the norm ``rmsnorm``
    without a gain every token has rms 1, which is the same model in units of rms. Published models also have
    ``qk_norm="l2norm"``, and weights whose rows have length 1.

    Args:
        where: the sub-layer's address.
        step: the step b at initialisation.
    """
    return Wiring(
        output_norm=True,
        outer_norm=True,
        skip_scale=1 - step,
        branch_scale=step,
        learn_branch_scale="channel",
        interpolate=True,
    )


register_placement(
    Placement(
        name="ngpt",
        equation="x ← N((1 − b) ⊙ x + b ⊙ N(F(x))),  b learnable from 0.05",
        source="Loshchilov et al. 2024, arXiv 2410.01131",
        wiring=ngpt,
        final_norm=False,
        embed_norm=True,
    )
)
