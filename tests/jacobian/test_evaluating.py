"""A function is run as a function: what it leaves behind, and what is refused."""

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normlab as nl
from normlab import jacobian
from normlab.errors import DataError
from normlab.jacobian import JacobianError
from normlab.norms import frozen_statistics


class Gated(nn.Module):
    """Draws in its forward pass, with no dropout module."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.linear(x), 0.5, self.training)


def test_randomness_is_refused_wherever_it_hides_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    for function in (Gated(), Gated().forward, lambda x: x * torch.rand(3)):
        torch.set_rng_state(before)
        with pytest.raises(JacobianError, match="draws random numbers"):
            jacobian.dense(function, torch.ones(3))
        assert torch.equal(torch.get_rng_state(), before)
    assert jacobian.dense(Gated().eval(), torch.ones(3)).shape == (3, 3)


@pytest.mark.parametrize("wrapped", [False, True])
def test_running_statistics_are_refused_and_put_back(wrapped: bool) -> None:
    norm = nn.Sequential(nn.BatchNorm1d(4))
    function = (lambda x: norm(x)) if wrapped else norm
    with pytest.raises(JacobianError, match="updates running statistics in train mode"):
        jacobian.dense(function, torch.randn(5, 4))
    assert not norm[0].running_mean.any() and int(norm[0].num_batches_tracked) == 0


def test_a_batch_norm_that_keeps_nothing_is_a_function() -> None:
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain = jacobian.dense(nn.BatchNorm1d(4, track_running_stats=False, affine=False), x)
    norm = nl.ModelSpec(depth=1, width=4, norm="batchnorm").build_norm(4)
    with pytest.raises(JacobianError, match="running statistics"):
        jacobian.dense(norm, x)
    with frozen_statistics():
        torch.testing.assert_close(jacobian.dense(norm, x), plain)


def test_fused_attention_is_back_afterwards_even_after_an_error() -> None:
    def enabled() -> tuple[bool, bool]:
        return torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()

    seen = []

    def attend(x: torch.Tensor) -> torch.Tensor:
        seen.append(enabled())
        return F.scaled_dot_product_attention(x, x, x)

    before = enabled()
    jacobian.dense(attend, torch.ones(1, 1, 2, 2))
    with pytest.raises(JacobianError):
        jacobian.dense(lambda x: [attend(x)], torch.ones(1, 1, 2, 2))
    assert seen == [(False, False)] * 2 and enabled() == before == (True, True)


def test_a_closure_keeps_its_dtype_and_a_module_goes_to_float64() -> None:
    linear = nn.Linear(3, 2)
    assert jacobian.dense(lambda x: linear(x), torch.ones(3)).dtype == torch.float32
    assert jacobian.dense(linear, torch.ones(3)).dtype == torch.float64


def test_a_module_that_cannot_be_copied_is_said() -> None:
    linear = nn.Linear(3, 3)
    linear.last = linear(torch.ones(3))
    with pytest.raises(JacobianError, match="Linear cannot be copied to float64"):
        jacobian.dense(linear, torch.ones(3))
    assert jacobian.dense(lambda x: linear(x), torch.ones(3)).shape == (3, 3)


def test_recorders_take_no_note() -> None:
    model, batch = nl.build(nl.ModelSpec(depth=1, width=8, heads=2), seed=0), nl.data.random_batch(batch=1, tokens=3)
    tables = []
    for also in (False, True):
        with nl.record(model) as recorder:
            model.loss(*batch).backward()
            if also:
                block = model.stacks["decoder"].blocks[0]
                jacobian.frobenius(lambda x, block=block: block(x), torch.ones(1, 3, 8), probes=2)
                jacobian.measure(model, batch, probes=2, k=1)
        tables.append(recorder.table())
        model.zero_grad()
    pd.testing.assert_frame_equal(*tables)


def test_differentiating_leaves_parameters_without_gradients() -> None:
    model, batch = nl.build(nl.ModelSpec(depth=1, width=8, heads=2), seed=0), nl.data.random_batch(batch=1, tokens=3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    jacobian.measure(model, batch, probes=2, k=1, directions=1)
    assert all(p.grad is None and p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def plus_one_in_place(x: torch.Tensor) -> torch.Tensor:
    return x.mul_(2).add_(1)


def first_entry_written(x: torch.Tensor) -> torch.Tensor:
    x[0] = x[1]
    return x


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (plus_one_in_place, [[2, 0], [0, 2]]),
        (first_entry_written, [[0, 1], [0, 1]]),
        (nn.ReLU(inplace=True), [[1, 0], [0, 1]]),
    ],
)
def test_a_function_may_write_to_its_input(function, wanted: list[list[float]]) -> None:
    x = torch.tensor([1.0, 2.0])
    assert jacobian.dense(function, x).tolist() == wanted and x.tolist() == [1, 2]


def test_writing_over_what_the_derivative_needs_is_said() -> None:
    for function in (lambda x: x.exp_().mul_(x), lambda x: x.mul_(x)):
        for ask in (jacobian.dense, jacobian.frobenius, lambda f, x: jacobian.spectrum(f, x, k=1)):
            with pytest.raises(JacobianError, match="writes in place over what its derivative needs"):
                ask(function, torch.ones(300))


def test_a_number_is_a_tensor_too() -> None:
    x = torch.tensor(3.0, dtype=torch.float64)
    assert jacobian.dense(lambda x: x.square(), x).tolist() == [[6.0]]
    assert jacobian.dense(lambda x: x.expand(2, 2) * 2, x).shape == (4, 1)
    assert jacobian.frobenius(lambda x: x.square(), x).value == jacobian.spectral_norm(lambda x: x.square(), x) == 6


def test_inference_mode_is_left_for_the_duration() -> None:
    with torch.inference_mode():
        x = torch.ones(2)
        assert jacobian.dense(lambda x: x * 3, x).tolist() == [[3, 0], [0, 3]] and torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda x: (x, x), r"returns a tuple: .* as lambda x: f\(x\)\[0\] does"),
        (lambda x: None, "returns None: let it return one floating-point tensor"),
        (lambda x: x.long(), "returns a torch.int64 tensor: let it return floating-point numbers"),
        (lambda x: x[:0], r"of shape \(0,\), which has no entries"),
        (lambda x: x.detach() * 2, "does not depend on x as far as autograd can tell, so its Jacobian would be zero"),
    ],
)
def test_results_that_have_no_jacobian_are_said(function, sentence: str) -> None:
    with pytest.raises(JacobianError, match=sentence):
        jacobian.dense(function, torch.ones(2))


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (torch.ones(0), r"has shape \(0,\) and no entries"),
        (torch.tensor([1.0, float("nan")]), "1 of the 2 entries of the point x are not finite"),
    ],
)
def test_points_that_are_none_are_said(x, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        jacobian.dense(lambda x: x, x)


def test_a_compiled_model_is_differentiated_as_it_was_before() -> None:
    model, batch = nl.build(nl.ModelSpec(depth=1, width=8, heads=2), seed=0), nl.data.random_batch(batch=1, tokens=3)
    plain, compiled = (jacobian.parts(one, batch).block(1) for one in (model, torch.compile(model, backend="eager")))
    assert torch.equal(jacobian.dense(compiled, plain.point), jacobian.dense(plain, plain.point))
    linear = nn.Linear(3, 2)
    found = jacobian.dense(torch.compile(linear, backend="eager"), torch.ones(3))
    assert torch.equal(found, linear.weight.detach().double())
