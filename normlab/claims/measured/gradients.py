"""Gradients and Jacobians of whole models that a sweep's loss does not give."""

from typing import cast

import torch

from normlab.claims.evidence import Number
from normlab.claims.measured.models import blocks_of, sublayers_of
from normlab.claims.measured.norms import draw
from normlab.data import Random
from normlab.jacobian import frobenius
from normlab.losses import probe
from normlab.models import build
from normlab.models.mlp import MLP
from normlab.spec import ModelSpec

_DEPTHS = (4, 8, 16, 32, 64)


def width_law(seed: int) -> list[Number]:
    """Measure the last W_down's gradient under the linear probe; the column ``call`` holds the width."""
    found = []
    for placement in ("pre", "post"):
        for width in (32, 64, 128, 256):
            # A final norm's Jacobian would add the stream's scale; the law is about a bounded gradient at the output.
            spec = ModelSpec(
                placement=placement, depth=2, width=width, activation="relu", final_norm=placement == "pre"
            )
            model = build(spec, seed=seed)
            tokens, targets = Random(2, 32).draw(10_000 + seed)
            probe(seed=seed)(model, tokens, targets).backward()
            gradient = cast(MLP, sublayers_of(blocks_of(model)[-1])[-1].mixer).down.weight.grad
            assert gradient is not None
            columns = {"width": 256, "depth": 2, "call": width}
            found.append(Number(f"last-gradient-{placement}", float(gradient.norm()), None, columns))
    return found


def partial_jacobians(seed: int, width: int = 128) -> list[Number]:
    """Estimate ‖∂x_L/∂x_0‖²_F/(n d) of the first L blocks of one model without attention; ``layer`` is L.

    Outputs are linear in the probes, so 8 tokens of width 128 give a per cent.
    """
    found = []
    for norm in ("dyt", "derf", "layernorm"):
        spec = ModelSpec(
            placement="pre", norm=norm, attention="none", depth=_DEPTHS[-1], width=width, activation="relu",
            init="fan-in", init_options=(("down", 2**0.5),),
        )  # fmt: skip
        model = build(spec, seed=seed)
        x = draw(seed, 1, 8, spec.width).float()
        for depth in _DEPTHS:
            blocks = torch.nn.Sequential(*blocks_of(model)[:depth])
            size = frobenius(blocks, x, probes=4, seed=seed).value ** 2 / x.numel()
            found.append(Number(f"apjn-{norm}", size, spec, {"layer": depth}))
    return found


def partial_jacobians_wide(seed: int) -> list[Number]:
    """Estimate the same in models twice as wide."""
    return partial_jacobians(seed, 256)
