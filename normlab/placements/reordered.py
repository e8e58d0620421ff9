"""OLMo 2's reordered norm: each branch is normed at its exit only.

Attention sees the growing stream as it is, so its logits grow too; as published the placement stands with a norm on
queries and keys (``qk_norm="rmsnorm-all"``), and without one gradients explode towards the first block.
"""

from normlab.placements.placement import Placement, register_placement
from normlab.placements.wiring import Wiring

register_placement(
    Placement(
        name="reordered",
        equation="x ← x + N(F(x))",
        source="OLMo 2, 2025, arXiv 2501.00656",
        wiring=Wiring(output_norm=True),
        final_norm=True,
    )
)
