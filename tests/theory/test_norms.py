import numpy as np
import pytest
import torch

from normlab.spec import ModelSpec
from normlab.theory.geometry import of_random
from normlab.theory.norms import Norms
from normlab.theory.reasons import NoTheory

PAIRS = of_random(1, 6, 10**9)
K = 3.0 * (0.3 + 0.7 * PAIRS.own)
WIDTH = 4096


def drawn(k: np.ndarray, seed: int = 0) -> torch.Tensor:
    root = np.linalg.cholesky(k)
    return torch.tensor(root @ np.random.default_rng(seed).standard_normal((len(k), WIDTH)))


NORMS = ["layernorm", "rmsnorm", "scalenorm", "l2norm", "groupnorm", "dyt", "derf", "identity"]


@pytest.mark.parametrize("norm", NORMS)
def test_covariance_of_a_normed_vector(norm: str) -> None:
    spec = ModelSpec(depth=1, width=WIDTH, norm=norm, mlp_width=8, norm_eps=0.3)
    y = spec.build_norm(WIDTH).double()(drawn(K[0])[None])[0].detach().numpy()
    found = Norms(spec).around()(K, PAIRS).value[0]
    np.testing.assert_allclose(found, y @ y.T / WIDTH, rtol=0.12, atol=0.03 * found.max())


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "scalenorm", "dyt", "derf"])
def test_gradient_that_comes_back_through_a_norm(norm: str) -> None:
    spec = ModelSpec(depth=1, width=WIDTH, norm=norm, mlp_width=8)
    x = drawn(K[0]).requires_grad_()
    module = spec.build_norm(WIDTH).double()
    g = drawn(0.5 + 0.5 * np.eye(6), seed=1)
    module(x[None]).backward(g[None])
    assert x.grad is not None
    found, sent = Norms(spec).around()(K, PAIRS), 0.5 + 0.5 * PAIRS.own
    expected = (x.grad @ x.grad.T / WIDTH).numpy()
    np.testing.assert_allclose(sent[0] * found.slope[0], expected, rtol=0.12, atol=0.02 * expected.max())
    if norm != "scalenorm":  # one number: its gradient is a single draw
        square = PAIRS.total(found.roles(WIDTH * sent)["norm_gain"])
        assert float(module.gain.grad.square().sum()) == pytest.approx(square, rel=0.15)


def test_a_norm_over_the_batch_has_no_theory() -> None:
    with pytest.raises(NoTheory, match="batchnorm"):
        Norms(ModelSpec(depth=1, width=8, norm="batchnorm")).around()
