"""Placements: one file each. Importing this package registers them all."""

from normlab.placements import (
    b2t,
    completep,
    deepnorm,
    hybridnorm,
    layerscale,
    lns,
    mix_ln,
    ngpt,
    none,
    peri,
    periodic,
    post,
    pre,
    reordered,
    res_post_norm,
    residual,
    rezero,
    skipinit,
    sub_ln,
)
from normlab.placements.placement import PLACEMENTS, Placement, register_placement
from normlab.placements.wiring import Wiring

__all__ = [
    "PLACEMENTS",
    "Placement",
    "Wiring",
    "register_placement",
    # one module a placement
    "b2t",
    "completep",
    "deepnorm",
    "hybridnorm",
    "layerscale",
    "lns",
    "mix_ln",
    "ngpt",
    "none",
    "peri",
    "periodic",
    "post",
    "pre",
    "reordered",
    "res_post_norm",
    "residual",
    "rezero",
    "skipinit",
    "sub_ln",
]
