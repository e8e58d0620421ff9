"""Closed forms of every norm against the dense Jacobian: with gain, with ε, with zeros in the gain."""

import pytest
import torch
from torch import Tensor, nn

from normlab import jacobian
from normlab.jacobian import JacobianError
from normlab.norms import NORMS, frozen_statistics, padding

WIDTH = 12


def _norm(name: str, eps: float, gain: str, train: bool, drawn) -> nn.Module:
    options = {"groups": 3} if name == "groupnorm" else {}
    module = NORMS[name].make(WIDTH, eps=eps, **options).double().train(train)
    gains = getattr(module, "gain", None)
    if gains is not None and gain != "one":
        with torch.no_grad():
            gains.copy_(drawn(*gains.shape, seed=3))
            if gain == "zeros" and gains.dim():
                gains[2:5] = 0
    return module


def _agrees(form: jacobian.NormJacobian | jacobian.NormProduct, module: nn.Module, x: Tensor) -> None:
    full, v = jacobian.dense(module, x), torch.linspace(-1, 2, x.numel(), dtype=torch.float64).sin().reshape(x.shape)

    def close(one: Tensor, two: Tensor) -> None:
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)

    close(form.matrix(), full)
    close(form.singular_values(), torch.linalg.svdvals(full))
    close(form.product(v).flatten(), full @ v.flatten())
    close(form.transposed_product(v).flatten(), full.T @ v.flatten())
    assert form.frobenius() == pytest.approx(float(torch.linalg.norm(full)), rel=1e-12)
    rank = int(torch.linalg.matrix_rank(full))
    for basis, block in ((form.right_null(), form.blocks()), (form.left_null(), form.blocks().transpose(1, 2))):
        assert sum(part.shape[1] for part in basis) == len(full) - rank
        for part, own in zip(basis, block, strict=True):
            close(part.T @ part, torch.eye(part.shape[1], dtype=torch.float64))
            close(own @ part, torch.zeros_like(part))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("gain", ["one", "drawn", "zeros"])
@pytest.mark.parametrize("eps", [0.0, 0.4])
@pytest.mark.parametrize("name", NORMS)
def test_a_closed_form_is_the_dense_jacobian(name: str, eps: float, gain: str, train: bool, drawn) -> None:
    x = 2 * drawn(2, 3, WIDTH) + 1
    module = _norm(name, eps, gain, train, drawn)
    with frozen_statistics():
        _agrees(jacobian.closed_form(module, x), module, x)


@pytest.mark.parametrize(("name", "null"), [("layernorm", 2), ("rmsnorm", 1), ("scalenorm", 1)])
def test_the_null_spaces_of_section_5(name: str, null: int, drawn) -> None:
    x, gain = drawn(WIDTH), drawn(WIDTH, seed=3)
    module = NORMS[name].make(WIDTH, eps=0.0).double()
    if name != "scalenorm":
        with torch.no_grad():
            module.gain.copy_(gain)
    form = jacobian.closed_form(module, x)
    (right,), (left,) = form.right_null(), form.left_null()
    assert right.shape[1] == left.shape[1] == null
    known = [x - x.mean(), torch.ones(WIDTH, dtype=torch.float64)] if null == 2 else [x]
    for direction in known:
        torch.testing.assert_close(right @ (right.T @ direction), direction)
        across = direction / (gain if name != "scalenorm" else 1.0)
        torch.testing.assert_close(left @ (left.T @ across), across)


def test_epsilon_keeps_a_little_of_the_norms_own_direction(drawn) -> None:
    x, eps = drawn(WIDTH), 0.3
    v = float(x.var(correction=0))
    values = jacobian.closed_form(NORMS["layernorm"].make(WIDTH, eps=eps).double(), x).singular_values()
    assert float(values[-2]) == pytest.approx(eps / (v + eps) ** 1.5, rel=1e-12) and float(values[-1]) == 0
    torch.testing.assert_close(values[:-2], torch.full((WIDTH - 2,), (v + eps) ** -0.5, dtype=torch.float64))


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm"])
def test_singular_values_interlace_the_gains(name: str, drawn) -> None:
    x = drawn(WIDTH)
    form = jacobian.closed_form(_norm(name, 0.0, "drawn", True, drawn), x)
    gains = (form.gain[0].abs() * form.scale[0]).sort(descending=True).values
    values, lost = form.singular_values(), 2 if name == "layernorm" else 1
    assert (values <= gains + 1e-12).all() and (values[:-lost] >= gains[lost:] - 1e-12).all()


def test_the_backward_identity(drawn) -> None:
    x, u = drawn(WIDTH), drawn(WIDTH, seed=1)
    form = jacobian.closed_form(NORMS["layernorm"].make(WIDTH, eps=0.0).double(), x)
    sigma = x.std(correction=0)
    hat, d = (x - x.mean()) / sigma, WIDTH
    expected = (u.square().sum() - u.sum() ** 2 / d - (hat @ u) ** 2 / d) / sigma**2
    torch.testing.assert_close(form.transposed_product(u).square().sum(), expected)


def test_a_token_below_the_bound_of_its_length_is_only_scaled(drawn) -> None:
    x = torch.stack([drawn(WIDTH), 1e-3 * drawn(WIDTH, seed=1)])
    form = jacobian.closed_form(NORMS["l2norm"].make(WIDTH, eps=0.01), x)
    torch.testing.assert_close(form.matrix(), jacobian.dense(NORMS["l2norm"].make(WIDTH, eps=0.01), x))
    assert [part.shape[1] for part in form.right_null()] == [1, 0]


@pytest.mark.parametrize(
    "module",
    [nn.LayerNorm(WIDTH), nn.LayerNorm((3, WIDTH)), nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH, eps=0.1), nn.Identity()],
)
def test_torchs_own_norms(module: nn.Module, drawn) -> None:
    x = drawn(2, 3, WIDTH)
    torch.testing.assert_close(jacobian.closed_form(module.double(), x).matrix(), jacobian.dense(module, x))


def test_a_single_feature_is_its_own_mean() -> None:
    form = jacobian.closed_form(NORMS["layernorm"].make(1, eps=0.1), torch.ones(3, 1, dtype=torch.float64))
    assert not form.singular_values().any() and not form.matrix().any()


@pytest.mark.parametrize("prescale", [False, True])
def test_power_norm_after_its_warm_up_takes_its_statistic_as_given(prescale: bool, drawn) -> None:
    module = NORMS["powernorm"].make(WIDTH, eps=1e-3, warmup=0, prescale=prescale).double()
    module.running_square.copy_(drawn(WIDTH).square() + 0.1)
    with torch.no_grad():
        module.gain.copy_(drawn(WIDTH, seed=3))
    x = drawn(1, 4, WIDTH, seed=1)
    with frozen_statistics():
        torch.testing.assert_close(jacobian.closed_form(module, x).matrix(), jacobian.dense(module, x))


class Variant(nn.Module):
    """A norm of somebody else's: γ = 1 + w, an unbiased variance, ε outside the root."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.shift = nn.Parameter(torch.linspace(-1, 1, WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred / (x.std(dim=-1, keepdim=True) + 1e-3) * (1 + self.w) + self.shift


def test_a_norm_that_nobody_described_has_the_form_of_its_kind(drawn) -> None:
    x = 0.01 * drawn(2, WIDTH)
    torch.testing.assert_close(jacobian.closed_form(Variant(), x).matrix(), jacobian.dense(Variant(), x))


class Halved(nn.Module):
    """A norm of a user's own."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(dim=-1, keepdim=True)) / 2


def test_a_norm_of_ones_own_brings_its_closed_form(drawn) -> None:
    x = drawn(3, 4)
    with pytest.raises(JacobianError, match="no closed form is known for Halved: register one"):
        jacobian.closed_form(Halved(), x)

    @jacobian.closed_form.register(Halved)
    def _halved(norm: Halved, x: Tensor) -> jacobian.NormJacobian:
        groups = jacobian.by_token(x)
        ones, half = torch.ones(*groups.shape, 1), torch.full((len(groups),), 0.5)
        return jacobian.grouped(x, groups, gain=None, scale=half, directions=ones, shares=torch.ones(len(groups), 1))

    torch.testing.assert_close(jacobian.closed_form(Halved(), x).matrix(), jacobian.dense(Halved(), x))


@pytest.mark.parametrize("eps", [0.0, 0.4])
@pytest.mark.parametrize(("name", "prescale"), [("batchnorm", False), ("powernorm", False), ("powernorm", True)])
def test_padding_is_normed_by_statistics_that_it_takes_no_part_in(name: str, prescale: bool, eps: float, drawn) -> None:
    options = {"prescale": True} if prescale else {}
    module = NORMS[name].make(WIDTH, eps=eps, **options).double()
    with torch.no_grad():
        module.gain.copy_(drawn(WIDTH, seed=3))
    for real in (torch.tensor([[True, True, False], [True, False, True]]), torch.ones(2, 3, dtype=torch.bool)):
        with frozen_statistics(), padding(real):
            _agrees(jacobian.closed_form(module, 2 * drawn(2, 3, WIDTH) + 1), module, 2 * drawn(2, 3, WIDTH) + 1)
