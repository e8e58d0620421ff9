import numpy as np
import pytest
import torch

from normlab.theory.attention import softmax_weights, uniform_weights
from normlab.theory.attention_averages import average_weights
from normlab.theory.geometry import averages, of_batch, of_random
from normlab.theory.quenched import at, log_partition, share, tables
from normlab.theory.reasons import NoTheory

TOKENS = 7


def geometry(batch: int = 2):
    tokens = torch.arange(batch * TOKENS).reshape(batch, TOKENS)
    return of_batch(tokens, tokens)


def covariance(pairs, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((pairs.batch, TOKENS, 40))
    x /= np.sqrt((x**2).mean(axis=-1, keepdims=True))
    return np.stack([x[a] @ x[b].T / 40 for a, b in zip(pairs.rows, pairs.columns, strict=True)])


def brute_force(weights, pairs, causal: bool) -> np.ndarray:
    """W over (i, j, s, t), entry by entry, with whole exponentials in place of their series."""
    seen = np.tri(TOKENS) if causal else np.ones((TOKENS, TOKENS))
    entries = np.exp(np.einsum("pij,pst->pijst", weights.grown, weights.reach))
    entries *= np.einsum("pij,pst->pijst", np.broadcast_to(weights.share, weights.grown.shape), weights.weight)
    return entries * seen[None, :, None, :, None] * seen[None, None, :, None, :]


@pytest.mark.parametrize("causal", [True, False])
def test_prefix_and_suffix_sums_are_the_four_index_sums(causal: bool) -> None:
    pairs = geometry()
    k = covariance(pairs)
    weights, of_keys = softmax_weights(0.6 * k, k, pairs, causal=causal)
    full = brute_force(weights, pairs, causal)
    entries = np.random.default_rng(1).standard_normal(k.shape)
    np.testing.assert_allclose(full.sum(axis=(-2, -1)), 1, atol=3e-5)
    np.testing.assert_allclose(of_keys, np.einsum("pijst,pst->pij", full, k), atol=3e-5)
    np.testing.assert_allclose(of_keys, weights.forward(k), atol=1e-12)
    np.testing.assert_allclose(weights.forward(entries), np.einsum("pijst,pst->pij", full, entries), atol=3e-5)
    np.testing.assert_allclose(weights.backward(entries), np.einsum("pijst,pij->pst", full, entries), atol=3e-5)


def test_backward_is_the_transpose_of_forward() -> None:
    pairs = of_random(3, 16, 50)
    k = 0.3 + 0.7 * pairs.own
    weights, _ = softmax_weights(k, k, pairs, causal=True)
    one, other = np.random.default_rng(2).standard_normal((2, *k.shape))
    np.testing.assert_allclose((weights.forward(one) * other).sum(), (one * weights.backward(other)).sum())


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_of_one_sequence_go_back_among_others_as_alone(causal: bool) -> None:
    pairs = geometry(3)
    k = covariance(pairs)
    weights, _ = softmax_weights(0.6 * k, k, pairs, causal=causal)
    several = np.random.default_rng(3).standard_normal((3, *k.shape))
    several[1:, pairs.alone :] = 0
    seen = weights.seen(k)
    for back in (weights.backward, lambda entries: weights.to_keys(entries, seen)):
        np.testing.assert_allclose(back(several), [back(one) for one in several], atol=1e-12)


def sampled(k: np.ndarray, causal: bool, draws: int = 3000) -> np.ndarray:
    """Average of A K A^T over Gaussian queries and keys."""
    rng, n = np.random.default_rng(0), len(k)
    root = np.linalg.cholesky(k + 1e-9 * np.eye(n))
    total = np.zeros_like(k)
    for _ in range(draws):
        logits = root @ rng.standard_normal((n, n)) @ root.T
        logits = np.where(np.tri(n) > 0, logits, -np.inf) if causal else logits
        a = np.exp(logits - logits.max(axis=1, keepdims=True))
        a /= a.sum(axis=1, keepdims=True)
        total += a @ k @ a.T
    return total / draws


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("common", [0.0, 0.4])
def test_softmax_agrees_with_drawn_queries_and_keys(causal: bool, common: float) -> None:
    pairs = of_random(1, 16, 10**9)
    k = common + (1 - common) * pairs.own
    found = softmax_weights(k, k, pairs, causal=causal)[1][0]
    expected = sampled(k[0], causal)
    assert np.abs(np.diag(found) - np.diag(expected)).max() < 0.02
    assert np.abs(found - expected).mean() < 0.01


def test_repeated_tokens_agree_with_drawn_queries_and_keys() -> None:
    tokens = torch.tensor([[0, 1, 0, 2, 0, 1, 3, 0, 0, 4, 1, 0, 5, 0, 1, 6]])
    pairs = of_batch(tokens, tokens)
    k = pairs.equal_inputs
    found = softmax_weights(k, k, pairs, causal=True)[1][0]
    assert np.abs(found - sampled(k[0], True)).mean() < 0.02


def test_averages_are_what_exchangeable_positions_give() -> None:
    """Three averages lose nothing where all positions are alike: uniform attention without a mask."""
    pairs = of_random(2, 12, 10**9)
    k = 0.2 + 0.8 * pairs.own
    full = uniform_weights(k.shape, causal=False).forward(k)
    few = averages(pairs)
    found = average_weights(None, None, few, causal=False).forward(np.array([1.0, 0.2, 0.2]))
    np.testing.assert_allclose(found, [full[0, 0, 0], full[0, 0, 1], full[1, 0, 0]])


@pytest.mark.parametrize("causal", [True, False])
def test_averages_follow_the_masked_sums(causal: bool) -> None:
    pairs = of_random(1, 24, 10**9)
    k = 0.2 + 0.8 * pairs.own
    weights, _ = softmax_weights(k, k, pairs, causal=causal)
    found = average_weights(np.array([1.0, 0.2, 0.2]), np.array([1.0, 0.2, 0.2]), averages(pairs), causal=causal)
    entries = pairs.own
    full = weights.forward(entries)
    few = found.forward(np.array([1.0, 0.0, 0.0]))
    assert few[0] == pytest.approx(pairs.mean_square(full), rel=0.02)
    assert few[1] == pytest.approx((full.sum() - np.trace(full[0])) / (24 * 23), rel=0.1)
    back = found.backward(np.array([1.0, 0.5, 0.0]))
    assert back[0] + 23 * back[1] == pytest.approx(1 + 23 * 0.5)


@pytest.mark.parametrize("variance", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_moments_of_a_softmax_are_exact(variance: float, count: int) -> None:
    logits = np.random.default_rng(0).standard_normal((40_000, count)) * np.sqrt(variance)
    a = np.exp(logits)
    total = a.sum(axis=1)
    a /= total[:, None]
    square = (a**2).sum(axis=1)
    found = tables(9)
    assert at(found.own, variance)[count - 1] == pytest.approx(square.mean(), rel=0.01)
    assert share(count, np.array([variance]))[0] == pytest.approx(square.mean(), rel=0.01)
    assert log_partition(count, variance) == pytest.approx(np.log(total).mean(), abs=0.03)
    if count > 1:
        centred = (square - 2 * (a**3).sum(axis=1) + square**2).mean()
        uniform = (1 - 1 / count) / count
        assert at(found.centred, variance)[count - 1] * uniform == pytest.approx(centred, rel=0.02)


def test_logits_beyond_the_tables_have_no_theory() -> None:
    pairs = of_random(1, 8, 10**9)
    with pytest.raises(NoTheory, match="saturates"):
        softmax_weights(100 * pairs.own, pairs.own, pairs, causal=True)
