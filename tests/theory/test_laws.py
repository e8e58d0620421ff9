from dataclasses import replace

import numpy as np
import pytest
import torch

from normlab.data import random_batch
from normlab.errors import SpecError
from normlab.models import build
from normlab.spec import ModelSpec
from normlab.theory import derivation, exponents, law

DEPTHS = tuple(2**k for k in range(4, 11))
L = np.array(DEPTHS, dtype=float)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("constant", 3 + 2 / L),
        ("constant", 0 * L),
        ("logarithm", 1 + 1.5 * (np.log(L) + 0.577)),
        ("logarithm", (1 + 1.5 * np.log(L)) ** -0.5),
        ("power", 1 + 0.32 * L),
        ("power", (1 + 1.3 * L) ** -0.5),
        ("power", L - 2 * L**0.6),
        ("stretched exponential", np.exp(0.9 * np.sqrt(L)) * L**0.3),
        ("exponential", 2 * np.exp(0.005 * L)),
        ("exponential", 1.03**-L),
        ("exponential", 5 * np.expm1(0.01 * L) * (1 + 3 / L)),
        ("exponential", np.exp(0.0136 * L) * (1 + 3 * np.exp(-L / 12))),
        ("exponential", L * np.exp(0.003 * L)),
        ("exponential", np.exp(0.0002 * L)),
        ("constant", np.where(L < 50, 0.15, 2e-6)),
        ("logarithm", np.log(L) + 0.577 + 0.5 / L),
        ("power", (1 + 4 / L) * L**0.11),
    ],
)
def test_known_laws_are_named(name: str, values: np.ndarray) -> None:
    assert law(DEPTHS, values.tolist()).name == name


def test_coefficients_are_found() -> None:
    assert law(DEPTHS, (0.32 * L).tolist()).exponent == pytest.approx(1, abs=1e-3)
    assert law(DEPTHS, (0.32 * L).tolist()).coefficient == pytest.approx(0.32, rel=1e-2)
    assert law(DEPTHS, np.exp(0.02 * L).tolist()).rate == pytest.approx(0.02, rel=1e-3)
    assert law(DEPTHS, np.exp(np.sqrt(L)).tolist()).exponent == pytest.approx(0.5, abs=0.02)


def test_what_stands_beside_an_exponential_is_said() -> None:
    found = law(DEPTHS, (2 * L * np.exp(0.01 * L)).tolist())
    assert (found.power, found.rate, found.coefficient) == pytest.approx((1, 0.01, 2), rel=1e-6)
    assert str(found) == "exponential, 2 · L^1.00 · exp(0.01 · L)"


def test_a_law_that_is_not_close_says_how_far_off_it_is() -> None:
    assert str(law(DEPTHS, (3 + np.cos(3 * np.log(L))).tolist())).endswith(" %")


def test_too_few_depths_have_no_law() -> None:
    assert law(DEPTHS[:3], [1.0, 2.0, 3.0]).name == "no theory"


SHORT = (8, 12, 16, 24, 32, 48, 64, 96, 128)


def laws(**fields: object) -> dict[str, str]:
    fixed = {"depth": 2, "width": 256, "attention": "none", "activation": "relu"}
    found = exponents(ModelSpec(**(fixed | fields)), tokens=16, depths=SHORT)
    return {name: one.name for name, one in found.laws.items()}


@pytest.mark.parametrize(
    ("fields", "stream", "last", "first", "apjn"),
    [
        ({"placement": "pre"}, "power", "power", "constant", "power"),
        ({"placement": "post"}, "constant", "constant", "constant", "constant"),
        ({"placement": "peri"}, "power", "power", "constant", "power"),
        ({"placement": "lns"}, "logarithm", "power", "constant", "logarithm"),
        ({"placement": "deepnorm", "init": "deepnorm"}, "constant", "power", "power", "constant"),
        ({"placement": "completep"}, "constant", "power", "power", "constant"),
        ({"placement": "post", "activation": "swiglu"}, "constant", "constant", "exponential", "exponential"),
    ],
)
def test_placements_have_their_laws(fields: dict[str, object], stream: str, last: str, first: str, apjn: str) -> None:
    expected = {"stream": stream, "last_gradient": last, "first_gradient": first, "apjn": apjn}
    assert expected.items() <= laws(**fields).items()


def test_the_last_gradient_of_pre_falls_with_the_root_of_depth() -> None:
    spec = ModelSpec(depth=2, width=256, attention="none", activation="relu")
    found = exponents(spec, tokens=16, depths=SHORT)
    assert found["last_gradient"].exponent == pytest.approx(-0.5, abs=0.03)
    assert found["stream"].exponent == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("attention", ["none", "softmax"])
def test_the_rate_of_post_is_that_of_its_mlp_once_tokens_are_aligned(attention: str) -> None:
    z, weight = np.polynomial.hermite_e.hermegauss(80)
    weight, h = weight / weight.sum(), np.sqrt(0.4) * z
    phi = torch.special.ndtr(torch.tensor(h)).numpy()
    slope = phi + h * np.exp(-(h**2) / 2) / np.sqrt(2 * np.pi)
    v, chi = 1.6 * weight @ (h * phi) ** 2, 1.6 * 0.4 * weight @ slope**2
    found = exponents(ModelSpec(depth=2, width=256, placement="post", attention=attention))
    for name, share in (("first_gradient", 0.5), ("stream_gradient", 0.5), ("apjn", 1), ("descent_step", 1)):
        assert found[name].name == "exponential"
        assert found[name].rate == pytest.approx(share * np.log((1 + chi) / (1 + v)), rel=0.02)


def test_a_stream_without_norms_grows_exponentially() -> None:
    spec = ModelSpec(depth=2, width=64, placement="none", attention="none", activation="relu")
    found = exponents(spec, tokens=8, depths=(8, 16, 32, 64, 128, 256))
    assert found["stream"].name == "exponential"
    assert found["stream"].rate == pytest.approx(np.log(1.32), rel=1e-3)
    assert found.depths[-1] == 128


def test_a_list_of_placements_has_one_depth_only() -> None:
    with pytest.raises(SpecError, match="one name"):
        exponents(ModelSpec(depth=2, width=32, placement=("pre", "post")))


def test_the_page_puts_the_numbers_in() -> None:
    spec = ModelSpec(depth=4, width=64, placement="peri")
    page = derivation(spec, tokens=8, laws=exponents(spec, tokens=8, depths=SHORT[:6]))
    for text in ("x ← x + N(F(N(x)))", "r₁ =", "χ/v", "stream gradient", "As the depth L grows"):
        assert text in page


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            {"placement": "b2t"},
            ["q ← 1 (q + q of x_block + 2 their mean product) + 1 u_q,  the same for p, then normed"],
        ),
        ({"placement": "hybridnorm"}, ["q ← 1 q of N(x) + 1 u_q", ", v normed; q and k normed: logits of variance 1"]),
        ({"placement": "peri"}, ["q ← 1 q + 1 û_q, û the normed branch (û_q = 1 in block 1)"]),
        ({"placement": "sub-ln"}, ["u = 1.6 · N[E[φ(h) φ(h′)]]", "normed before W_o with gain 1"]),
        ({"placement": "residual"}, ["then normed: q = 1 in block 1; y: q ← q + 1 u_q"]),
        ({"placement": "res-post-norm"}, ["q ← 1 q + 1 û_q, û the normed branch (û_q = 0 in block 1)"]),
        ({"placement": "lns"}, ["in block 4: q ← 1 q + "]),
        ({"placement": "mix-ln"}, ["  in block 4: q ← 1 q + 1 u_q,  the same for p\n"]),
        ({"parallel": True}, ["waits for the MLP's", "u_q,  the same for p (u: attention's and this one's together)"]),
        ({"qk_norm": "rmsnorm"}, ["; q and k normed: logits of variance 1"]),
        ({"activation": "swiglu"}, ["u = 1.6 · 0.4 · z z′ E[φ(g) φ(g′)]"]),
    ],
)
def test_the_page_has_the_recursion_of_each_wiring(fields: dict[str, object], lines: list[str]) -> None:
    spec = ModelSpec(depth=4, width=64, **fields)
    page = derivation(spec, tokens=8, laws=exponents(spec, tokens=8, depths=(2,)))
    for line in lines:
        assert line in page, page


def test_the_page_of_a_model_without_a_theory_says_so() -> None:
    assert "no theory: norm 'batchnorm'" in derivation(ModelSpec(depth=2, width=32, norm="batchnorm"))


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_what_a_step_takes_off_the_loss_is_that_of_a_model(placement: str) -> None:
    spec = ModelSpec(depth=4, width=128, placement=placement, attention="none")
    expected = exponents(spec, tokens=16, depths=(4,)).values
    lost: dict[str, list[float]] = {"descent_step": [], "sign_step": []}
    for seed in range(6):
        model, batch = build(spec, seed=seed, dtype=torch.float64), random_batch(1, 16, seed=seed)
        before = model.loss(*batch)
        before.backward()
        matrices = [
            weight for weight in model.stacks.parameters() if weight.ndim == 2 and weight.shape[0] != spec.vocab
        ]
        for name, step in (("descent_step", lambda g: g), ("sign_step", torch.sign)):
            with torch.no_grad():
                moved = [(weight, 1e-7 * step(weight.grad)) for weight in matrices]
                for weight, by in moved:
                    weight -= by
                lost[name].append(float(before - model.loss(*batch)) / 1e-7)
                for weight, by in moved:
                    weight += by
    for name, found in lost.items():
        assert np.mean(found) == pytest.approx(expected[name][0], rel=0.1)


def test_signs_move_a_branch_of_one_over_depth_alike_at_every_depth() -> None:
    spec = ModelSpec(depth=2, width=256, attention="none", activation="relu")
    assert exponents(spec, tokens=16, depths=SHORT)["sign_step"].exponent == pytest.approx(0.5, abs=0.05)
    completep = exponents(replace(spec, placement="completep"), tokens=16, depths=SHORT)
    assert completep["sign_step"].name == "constant"
    assert completep["descent_step"].exponent == pytest.approx(-1, abs=0.05)
