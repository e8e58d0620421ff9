"""Placements: one file each. Importing this package registers them all."""

from normlab.placements import none, peri, post, pre
from normlab.placements.placement import PLACEMENTS, Placement, register_placement
from normlab.placements.wiring import Wiring

__all__ = ["PLACEMENTS", "Placement", "Wiring", "none", "peri", "post", "pre", "register_placement"]
