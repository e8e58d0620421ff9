"""BatchNorm and PowerNorm: running statistics, padding masks and generation."""

import pytest
import torch
from torch import Tensor, nn

from normlab import ModelSpec, build
from normlab.errors import DataError
from normlab.norms import NORMS, frozen_statistics, padding

WIDTH = 6
POOLED = ["batchnorm", "powernorm"]


def _batch(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(*(shape or (3, 4)), WIDTH, dtype=torch.float64, generator=generator) + 1


def _norm(name: str, **options: object) -> nn.Module:
    return NORMS[name].make(WIDTH, eps=1e-5, **options).double()


def test_batchnorm_runs_as_torch_does() -> None:
    ours, theirs = _norm("batchnorm", momentum=0.3), nn.BatchNorm1d(WIDTH, momentum=0.3).double()
    for seed in range(3):
        x = _batch(seed)
        torch.testing.assert_close(ours(x), theirs(x.flatten(0, 1)).view_as(x))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_variance, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.flatten(0, 1)).view_as(x))


def test_powernorm_averages_in_the_warm_up_and_then_follows() -> None:
    norm = _norm("powernorm", warmup=2, momentum=0.25)
    batches = [_batch(seed) for seed in range(4)]
    squares = [x.square().mean(dim=(0, 1)) for x in batches]
    outputs = [norm(x) for x in batches]
    average = (squares[0] + squares[1]) / 2
    after_third = average + 0.25 * (squares[2] - average)
    used = [squares[0], squares[1], average, after_third]
    for x, y, square in zip(batches, outputs, used, strict=True):
        torch.testing.assert_close(y, x / (square + 1e-5).sqrt())
    final = after_third + 0.25 * (squares[3] - after_third)
    torch.testing.assert_close(norm.eval()(batches[0]), batches[0] / (final + 1e-5).sqrt())


def test_powernorm_after_the_warm_up_is_linear() -> None:
    norm, x = _norm("powernorm", warmup=0), _batch(0).requires_grad_()
    (gradient,) = torch.autograd.grad(norm(x).sum(), x)
    torch.testing.assert_close(gradient, torch.full_like(x, 1 / (1 + 1e-5) ** 0.5))


@pytest.mark.parametrize("name", POOLED)
def test_eval_mode_moves_nothing(name: str) -> None:
    norm = _norm(name).eval()
    before = {key: value.clone() for key, value in norm.named_buffers()}
    norm(_batch(0))
    assert all(torch.equal(before[key], value) for key, value in norm.named_buffers())


@pytest.mark.parametrize("name", POOLED)
def test_frozen_statistics_are_used_and_not_kept(name: str) -> None:
    norm, x = _norm(name), _batch(0)
    before = {key: value.clone() for key, value in norm.named_buffers()}
    with frozen_statistics():
        y = norm(x)
    assert all(torch.equal(before[key], value) for key, value in norm.named_buffers())
    torch.testing.assert_close(y, norm(x))


@pytest.mark.parametrize("name", POOLED)
def test_padded_tokens_take_no_part_in_statistics(name: str) -> None:
    x, real = _batch(0), torch.tensor([[True, True, True, False], [True, False, False, False], [True] * 4])
    masked, only_real = _norm(name), _norm(name)
    with padding(real):
        y = masked(x)
    torch.testing.assert_close(y[real], only_real(x[real]))
    torch.testing.assert_close(dict(masked.named_buffers()), dict(only_real.named_buffers()))
    with padding(real):
        torch.testing.assert_close(_norm(name)(torch.where(real[..., None], x, 1e6))[real], y[real])
    assert not torch.allclose(_norm(name)(x)[real], y[real])


def test_a_padding_mask_leaves_per_token_norms_alone() -> None:
    x = _batch(0)
    with padding(torch.zeros(3, 4, dtype=torch.bool)):
        assert torch.equal(_norm("layernorm")(x), _norm("layernorm")(x).clone())
        inside = _norm("rmsnorm")(x)
    assert torch.equal(inside, _norm("rmsnorm")(x))


@pytest.mark.parametrize("name", POOLED)
def test_a_mask_that_does_not_fit(name: str) -> None:
    with padding(torch.ones(3, 5, dtype=torch.bool)), pytest.raises(DataError, match="mask of the shape .3, 5."):
        _norm(name)(_batch(0))
    with padding(torch.zeros(3, 4, dtype=torch.bool)), pytest.raises(DataError, match="0 tokens that are not padding"):
        _norm(name)(_batch(0))
    with pytest.raises(DataError, match="give a torch.bool mask"), padding(torch.ones(3, 4)):
        pass


@pytest.mark.parametrize("name", POOLED)
def test_generation_in_train_mode_is_refused(name: str) -> None:
    model = build(ModelSpec(depth=1, width=8, norm=name))
    with pytest.raises(DataError, match=f"norm '{name}' in train mode was given sequences of one token"):
        model(torch.zeros(4, 1, dtype=torch.int64))
    assert model.eval()(torch.zeros(4, 1, dtype=torch.int64)).shape == (4, 1, 256)


@pytest.mark.parametrize("name", POOLED)
def test_running_statistics_are_never_of_half_precision(name: str) -> None:
    norm = NORMS[name].make(WIDTH, eps=1e-5).bfloat16()
    floating = [buffer for buffer in norm.buffers() if buffer.is_floating_point()]
    assert {buffer.dtype for buffer in floating} == {torch.float32}
    assert norm(_batch(0).bfloat16()).dtype == torch.bfloat16
    assert {buffer.dtype for buffer in norm.double().buffers() if buffer.is_floating_point()} == {torch.float64}


@pytest.mark.parametrize("name", POOLED)
def test_a_checkpoint_holds_the_running_statistics(name: str) -> None:
    trained, restored = _norm(name), _norm(name)
    trained(_batch(0))
    restored.load_state_dict(trained.state_dict())
    torch.testing.assert_close(restored.eval()(_batch(1)), trained.eval()(_batch(1)))
