"""Jacobians of norms and blocks against their closed forms, as full matrices in float64."""

import torch
from torch import Tensor

from normlab.claims.evidence import Number
from normlab.claims.measured.norms import WIDTH, draw, gap
from normlab.jacobian import dense
from normlab.norms import NORMS

_SIZE = {"width": WIDTH}


def _jacobian(norm: str, x: Tensor) -> Tensor:
    return dense(NORMS[norm].make(len(x), eps=0.0), x)


def null_directions(seed: int) -> list[Number]:
    """Push the directions that a norm should not see through its Jacobian, and list its singular values."""
    x = draw(seed, WIDTH) * 3 + 1
    one, centred = torch.ones_like(x), x - x.mean()
    ln, rms = _jacobian("layernorm", x), _jacobian("rmsnorm", x)
    sigma, root = x.std(correction=0), x.square().mean().sqrt()
    return [
        Number("layernorm-kills-ones", float((ln @ one).norm() / one.norm() * sigma), None, _SIZE),
        Number("layernorm-kills-centred", float((ln @ centred).norm() / centred.norm() * sigma), None, _SIZE),
        Number("rmsnorm-kills-x", float((rms @ x).norm() / x.norm() * root), None, _SIZE),
        Number("rmsnorm-kills-ones", float((rms @ one).norm() / one.norm() * root), None, _SIZE),
        Number("layernorm-spectrum", _spectrum_gap(ln * sigma, zeros=2), None, _SIZE),
        Number("rmsnorm-spectrum", _spectrum_gap(rms * root, zeros=1), None, _SIZE),
    ]


def _spectrum_gap(scaled: Tensor, zeros: int) -> float:
    """Distance of the singular values from ones and as many zeros."""
    wanted = torch.ones(len(scaled), dtype=torch.float64)
    wanted[len(scaled) - zeros :] = 0
    return gap(torch.linalg.svdvals(scaled), wanted)


class Branch:
    """A two-layer ReLU branch F with random weights.

    Args:
        seed: of the weights.
        width: of the stream.
    """

    def __init__(self, seed: int, width: int) -> None:
        self.up = draw(seed, 2 * width, width) / width**0.5
        self.down = draw(seed + 1, width, 2 * width) / (2 * width) ** 0.5

    def __call__(self, x: Tensor) -> Tensor:
        """Return F(x)."""
        update: Tensor = (x @ self.up.T).relu() @ self.down.T
        return update


def block_jacobians(seed: int) -> list[Number]:
    """Compare ∂y/∂x of whole blocks with I + J_F J_N and J_N (I + J_F)."""
    width = 32
    x, branch, norm = draw(seed, width), Branch(seed + 1, width), NORMS["layernorm"].make(width, eps=0.0).double()
    eye = torch.eye(width, dtype=torch.float64)
    pre = dense(lambda z: z + branch(norm(z)), x)
    post = dense(lambda z: norm(z + branch(z)), x)
    inner = dense(branch, norm(x).detach()) @ dense(norm, x)
    outer = dense(norm, x + branch(x)) @ (eye + dense(branch, x))
    size = {"width": width}
    return [
        Number("pre-block-jacobian", gap(pre, eye + inner), None, size),
        Number("post-block-jacobian", gap(post, outer), None, size),
        Number("post-block-as-if-pre", gap(post, eye + inner), None, size),
    ]
