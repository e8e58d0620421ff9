"""Products across depth: averaged partial Jacobian norms, exponents of blocks, the Lyapunov spectrum."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import layer_norm

import normlab as nl
from normlab import jacobian
from normlab.errors import UnknownNameError
from normlab.jacobian import JacobianError, apjn, apjns, chain, formed, local_exponents, lyapunov_spectrum


def _blocks(drawn, depth: int = 4, size: int = 16) -> list[torch.Tensor]:
    return [torch.eye(size, dtype=torch.float64) + drawn(size, size, seed=s) / size**0.5 for s in range(depth)]


def test_products_between_any_two_layers(chain_of, drawn) -> None:
    a = _blocks(drawn)
    blocks = chain_of(*a)
    torch.testing.assert_close(formed(blocks.between(1, 4)), a[3] @ a[2] @ a[1])
    torch.testing.assert_close(formed(blocks.between(1, 4).transposed), (a[3] @ a[2] @ a[1]).T)
    with pytest.raises(JacobianError, match="0 ≤ layer < to_layer ≤ 4"):
        blocks.between(2, 2)


@pytest.mark.parametrize(("layer", "to_layer"), [(0, 4), (1, 3), (2, 3)])
def test_apjn_is_the_mean_square_of_the_product(layer: int, to_layer: int, chain_of, drawn) -> None:
    a = _blocks(drawn)
    product = torch.linalg.multi_dot([*reversed(a[layer:to_layer]), torch.eye(16, dtype=torch.float64)])
    found = apjn(chain_of(*a), layer, to_layer, probes=400)
    truth = float(product.square().sum()) / 16
    assert abs(found.value - truth) < 4 * found.se and found.se < 0.05 * truth


def test_one_walk_gives_the_apjn_of_every_layer(chain_of, drawn) -> None:
    blocks = chain_of(*_blocks(drawn))
    assert [apjn(blocks, layer) for layer in range(4)] == list(apjns(blocks))
    with pytest.raises(JacobianError, match="at least 2"):
        apjns(blocks, probes=1)
    with pytest.raises(JacobianError, match="give 1 to 4"):
        apjns(blocks, 5)
    with pytest.raises(UnknownNameError, match="did you mean 'sphere'"):
        apjns(blocks, law="spheres")


def test_the_apjn_of_a_model_is_that_of_its_blocks_as_one_function() -> None:
    model = nl.build(nl.ModelSpec(placement="peri", depth=3, width=8, heads=2), seed=0)
    found = jacobian.parts(model, nl.data.random_batch(batch=1, tokens=5, seed=0))
    part = found.blocks(2, 3)
    truth = float(jacobian.dense(part, part.point).square().sum()) / 40
    with chain(found) as blocks:
        one = apjn(blocks, 1, 3, probes=200)
        assert float(formed(blocks.between(1, 3)).square().sum()) / 40 == pytest.approx(truth, rel=1e-12)
    assert abs(one.value - truth) < 4 * one.se


def test_multiples_of_orthogonal_matrices_have_one_exponent(chain_of, drawn) -> None:
    q = torch.linalg.qr(drawn(12, 12))[0]
    blocks = chain_of(2 * q, 0.5 * q, 3 * q)
    for local, factor in zip(local_exponents(blocks, probes=3), (2, 0.5, 3), strict=True):
        assert local.root_mean_square.value == pytest.approx(math.log(factor)) and local.gap < 1e-20
        assert local.mean_log.value == pytest.approx(math.log(factor)) and local.mean_log.se < 1e-12
    spectrum = lyapunov_spectrum(blocks, k=5)
    np.testing.assert_allclose(spectrum.exponents, math.log(3) / 3, atol=1e-12)
    np.testing.assert_allclose(spectrum.layers, np.log([[2] * 5, [0.5] * 5, [3] * 5]), atol=1e-12)


def test_a_mean_of_logarithms_lies_low_by_the_gap(chain_of, drawn) -> None:
    # Thirty dimensions of spread scales, so that second order holds.
    a = torch.diag(torch.linspace(0.7, 1.3, 200, dtype=torch.float64))
    (found,) = local_exponents(chain_of(a @ torch.linalg.qr(drawn(200, 200))[0]), probes=3000, law="gaussian")
    exact = 0.5 * math.log(float(a.square().sum()) / 200)
    assert abs(found.root_mean_square.value - exact) < 4 * found.root_mean_square.se
    low = found.root_mean_square.value - found.mean_log.value
    assert low == pytest.approx(found.gap, rel=0.1) and found.gap > 0


def test_all_lyapunov_exponents_sum_to_the_volume(chain_of, drawn) -> None:
    a = _blocks(drawn, depth=5)
    spectrum = lyapunov_spectrum(chain_of(*a), k=16, frames=3)
    volume = sum(float(torch.linalg.slogdet(one).logabsdet) for one in a)
    np.testing.assert_allclose(spectrum.growth.sum(axis=(1, 2)), volume, rtol=1e-12)
    assert float(spectrum.exponents.sum()) == pytest.approx(volume / 5, rel=1e-12)
    assert spectrum.layers.shape == spectrum.layers_se.shape == (5, 16)


def test_exponents_of_a_repeated_matrix_are_its_eigenvalues(chain_of, drawn) -> None:
    basis = drawn(6, 6) + 3 * torch.eye(6, dtype=torch.float64)
    wanted = torch.tensor([3.0, 2.0, 1.2, 0.8, 0.4, 0.2], dtype=torch.float64)
    matrix = basis @ torch.diag(wanted) @ torch.linalg.inv(basis)
    spectrum = lyapunov_spectrum(chain_of(*[matrix] * 60), k=6, frames=4)
    np.testing.assert_allclose(spectrum.layers[-1], wanted.log().numpy(), atol=1e-6)
    np.testing.assert_allclose(spectrum.exponents, wanted.log().numpy(), atol=0.08)
    assert (np.abs(spectrum.exponents - wanted.log().numpy()) < 6 * spectrum.se + 0.05).all()


def test_one_frame_has_no_error_and_too_many_directions_are_refused(chain_of, drawn) -> None:
    blocks = chain_of(*_blocks(drawn))
    assert np.isnan(lyapunov_spectrum(blocks, k=2, frames=1).se).all()
    with pytest.raises(JacobianError, match="k from 1 to 16"):
        lyapunov_spectrum(blocks, k=17)


class Step(torch.nn.Module):
    """A block whose branch also reads the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x) + 0.5 * first)


class Reading(torch.nn.Module):
    """Two such blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.blocks = torch.nn.ModuleList([Step(), Step()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = first = self.embed(x)
        for block in self.blocks:
            x = block(x, first)
        return self.out(x)


def test_blocks_that_are_no_chain_are_refused(drawn) -> None:
    found = jacobian.parts(Reading(), drawn(2, 3, 6).float())
    with pytest.raises(JacobianError, match="block 2 also reads the stream of layer 0"), chain(found):
        pass
    part = found.blocks(1, 2)
    assert jacobian.dense(part, part.point).shape == (36, 36)


class Inline(Reading):
    """Blocks that are no modules: the stream goes on beside the norms that read it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block.linear(torch.tanh(block.norm(x)))
            x = x * 1
        return self.out(x)


def test_a_stream_that_goes_past_the_modules_that_read_it_is_refused(drawn) -> None:
    with (
        pytest.raises(JacobianError, match="block 2 .* or the stream goes past the modules that read it"),
        chain(jacobian.parts(Inline(), drawn(2, 3, 6).float())),
    ):
        pass


class Unseen(Reading):
    """Blocks whose stream no module reads or gives."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block.linear(torch.tanh(layer_norm(x, (6,))))
        return self.out(x)


def test_a_stream_that_no_module_shows_is_said(drawn) -> None:
    with (
        pytest.raises(JacobianError, match="the stream after block 1 cannot be read: no module"),
        chain(jacobian.parts(Unseen(), drawn(2, 3, 6).float())),
    ):
        pass
