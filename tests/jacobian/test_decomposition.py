"""J = J_outer (J_skip + J_update), on the full matrix, for every placement; Pre and Post as the literature has them."""

import pytest
import torch
from torch import Tensor

import normlab as nl
from normlab.jacobian import decomposition, dense, parts
from normlab.placements import PLACEMENTS

EYE = torch.eye(32, dtype=torch.float64)


def parts_of(placement: str, **fields: object) -> nl.jacobian.Parts:
    spec = nl.ModelSpec(placement=placement, depth=2, width=8, heads=2, **fields)
    return parts(nl.build(spec, seed=0), nl.data.random_batch(batch=1, tokens=4, seed=0))


def jacobian(part: nl.jacobian.Part) -> Tensor:
    return dense(part, part.point)


@pytest.mark.parametrize("sublayer", ["attn", "mlp"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_sum_and_its_norm_rebuild_the_matrix(placement: str, sublayer: str) -> None:
    assert decomposition(parts_of(placement), 2, sublayer).gap < 1e-13


@pytest.mark.parametrize("sublayer", ["attn", "mlp"])
def test_pre_is_the_identity_plus_a_branch(sublayer: str) -> None:
    found = parts_of("pre")
    factors = decomposition(found, 2, sublayer)
    branch = jacobian(found.branch(2, sublayer)) @ jacobian(found.norm(2, sublayer))
    assert torch.equal(factors.outer, EYE) and torch.equal(factors.skip, EYE)
    torch.testing.assert_close(factors.jacobian, EYE + branch, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sublayer", ["attn", "mlp"])
def test_post_is_a_norm_of_the_identity_plus_a_branch(sublayer: str) -> None:
    found = parts_of("post")
    norm, branch = jacobian(found.norm(2, sublayer)), jacobian(found.branch(2, sublayer))
    torch.testing.assert_close(decomposition(found, 2, sublayer).jacobian, norm @ (EYE + branch), rtol=0, atol=1e-12)


def test_deep_norm_scales_its_skip_and_b2t_has_a_second_one() -> None:
    factors = decomposition(parts_of("deepnorm"), 1, "attn")
    torch.testing.assert_close(factors.skip, factors.skip[0, 0] * EYE)
    assert float(factors.skip[0, 0]) == pytest.approx((2 * 2) ** 0.25)


def test_a_norm_missing_from_the_equation_shows_as_a_gap() -> None:
    factors = decomposition(parts_of("post"), 1, "mlp")
    as_if_pre = torch.linalg.norm(factors.jacobian - (factors.skip + factors.update))
    assert float(as_if_pre / torch.linalg.norm(factors.jacobian)) > 0.1
