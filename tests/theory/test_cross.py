"""Cross-attention: what a decoder reads of its encoder, and what it sends back."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from normlab.spec import ModelSpec
from normlab.theory import exponents, predict
from normlab.theory.backward import StepBack, backward
from normlab.theory.batches import geometry_of
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import averages
from normlab.theory.head import head
from normlab.theory.matrices import Gains, gains
from normlab.where import Where

SPEC = {"depth": 3, "width": 64, "kind": "encoder-decoder", "norm": "rmsnorm", "norm_eps": 0.0}
Batch = tuple[torch.Tensor, torch.Tensor]


def drawn(tokens: int = 10) -> Batch:
    one, other = torch.randint(256, (2, 2, tokens), generator=torch.Generator().manual_seed(0))
    return one, other


def walked(given: Batch, **fields: object) -> Forward:
    spec = ModelSpec(**(SPEC | fields))
    return forward(spec, geometry_of(spec, given, 0))


def back(found: Forward) -> list[StepBack]:
    return list(backward(found, head(found).gradient))


def test_switched_off_it_leaves_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(spec: ModelSpec, where: Where, *more: Any) -> Gains:
        found = gains(spec, where, *more)
        return replace(found, squared={**found.squared, "o": 0.0}) if where.sublayer == "cross" else found

    monkeypatch.setattr("normlab.theory.sublayer.gains", silent)
    tokens, targets = drawn()
    both = walked((tokens, targets))
    read = torch.cat([torch.zeros(2, 1, dtype=torch.int64), targets[:, :-1]], dim=1)
    alone = walked((read, targets), kind="decoder")
    np.testing.assert_allclose(both.out, alone.out, rtol=1e-12)
    steps = back(both)
    np.testing.assert_allclose(steps[-1].before, back(alone)[-1].before, rtol=1e-12)
    assert not any(step.memory.any() for step in steps if step.memory is not None)


def test_one_token_in_the_encoder_is_read_as_it_is() -> None:
    """Attention on equal tokens is that on one: every position gets W_o W_v m, and no query or key matters."""
    same = torch.zeros(2, 10, dtype=torch.int64)
    found = walked((same, drawn()[1]))
    gain = 1.0  # Xavier: W_o and W_v keep a mean square
    for step in found.steps:
        if step.where.sublayer == "cross":
            np.testing.assert_allclose(step.mixer.value, gain, rtol=1e-4)
    for step in back(found):
        if step.memory is not None:
            assert found.geometry.total(step.roles["q"]) < 1e-8 * found.geometry.total(step.roles["v"])
            assert found.geometry.total(step.roles["k"]) < 1e-8 * found.geometry.total(step.roles["v"])


@pytest.mark.parametrize("attention", ["softmax", "uniform"])
def test_the_value_path_keeps_the_sum_over_tokens(attention: str) -> None:
    """A position's weights add up to one and a key's gradients to zero, so a sequence's sum arrives whole."""
    found = walked(drawn(), attention=attention)
    pairs = found.geometry
    for step in back(found):
        if step.memory is not None:
            assert pairs.total(step.memory) == pytest.approx(pairs.total(step.branch), rel=1e-3)


def test_the_gradient_at_the_memory_is_that_of_a_sample() -> None:
    """Uniform attention, linear: the sum over layers of Vᵀ Aᵀ Oᵀ g, drawn with matrices of finite width."""
    found = walked(drawn(6), attention="uniform", depth=1)
    (cross,) = [step for step in back(found) if step.memory is not None]
    d, n, draws = 64, 6, 400
    generator = torch.Generator().manual_seed(1)
    root = torch.linalg.cholesky(torch.tensor(cross.branch[0]) + 1e-12 * torch.eye(n))
    total = torch.zeros(n, n, dtype=torch.float64)
    for _ in range(draws):
        normal = torch.randn(n + 2 * d, d, generator=generator, dtype=torch.float64)
        gradient, value, last = root @ normal[:n] / d**0.5, normal[n : n + d] / d**0.5, normal[n + d :] / d**0.5
        at_memory = torch.ones(n, n, dtype=torch.float64) / n @ gradient @ last @ value
        total += at_memory @ at_memory.T / draws
    np.testing.assert_allclose(total, cross.memory[0], rtol=0.1)


def test_post_ln_decoders_lose_a_gradient_that_cross_attention_does_not_return() -> None:
    """The branch adds ρ of the memory to a stream of 1 and sends nothing back: 1/(1 + ρ) each layer, ρ → 1."""
    spec = ModelSpec(
        depth=8, width=64, kind="encoder-decoder", placement="post", attention="uniform", activation="relu"
    )
    law = exponents(spec, tokens=32, depths=(8, 16, 32, 64, 128))["apjn"]
    assert law.name == "exponential"
    assert law.rate == pytest.approx(-math.log(2), rel=0.03)


def test_averages_follow_the_pairs() -> None:
    spec = ModelSpec(**SPEC)
    pairs = geometry_of(spec, 2, 24)
    few = averages(pairs)
    full, short = forward(spec, pairs), forward(spec, few)
    assert short.source is not None and full.source is not None
    assert few.mean_square(short.steps[-1].stream) == pytest.approx(pairs.mean_square(full.steps[-1].stream), rel=0.02)
    sent, brief = ([one for one in back(found) if one.memory is not None] for found in (full, short))
    for one, other in zip(sent, brief, strict=True):
        assert few.trace(other.memory) == pytest.approx(pairs.trace(one.memory), rel=0.2)


def test_both_stacks_have_rows_and_the_jacobian_is_the_decoders() -> None:
    rows = predict(ModelSpec(depth=3, width=32, kind="encoder-decoder", encoder_depth=2), 2, 8)
    assert rows["status"].isin(["ok", "exact-zero"]).all()
    layers = rows[(rows["site"] == "stream") & (rows["quantity"] == "rms")].groupby("stack", observed=True)["layer"]
    assert layers.max().to_dict() == {"decoder": 3, "encoder": 2}
    assert set(rows[rows["quantity"] == "apjn"]["stack"]) == {"decoder"}
    assert set(rows[rows["sublayer"] == "cross"]["role"]) >= {"q", "k", "v", "o"}
