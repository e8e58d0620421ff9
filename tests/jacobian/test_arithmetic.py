"""Float64 all the way: casts inside a function are suspended, or said."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normlab.jacobian import JacobianError, JacobianWarning, dense, parts
from normlab.jacobian.linear_map import linearised


def cubed(x: Tensor) -> Tensor:
    return x.float().pow(3).to(x.dtype)


def typed(x: Tensor) -> Tensor:
    return x.type_as(torch.ones(1)).to(torch.float32, copy=True).to(torch.ones(1)).to(dtype=torch.bfloat16).half() ** 3


def written(x: Tensor) -> Tensor:
    y = x.float()
    y.mul_(x).mul_(x)
    return y + 0 * x


@pytest.mark.parametrize("function", [cubed, typed, written])
def test_casts_are_suspended(function, drawn) -> None:
    x = drawn(5)
    torch.testing.assert_close(dense(function, x), torch.diag(3 * x.square()), rtol=1e-15, atol=0)


def test_a_softmax_in_float32_is_one_in_float64(drawn) -> None:
    x = drawn(5)
    p = x.softmax(0)
    found = dense(lambda x: F.softmax(x, dim=0, dtype=torch.float32), x)
    torch.testing.assert_close(found, torch.diag(p) - torch.outer(p, p), rtol=1e-14, atol=1e-16)


class Constant(nn.Module):
    """Holds a matrix that is no parameter, so that a copy in float64 keeps it in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = torch.tensor([[1.0, 2.0], [0.0, 3.0]])

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix @ x.float()


def test_constants_of_fewer_digits_are_widened() -> None:
    assert dense(Constant(), torch.ones(2)).tolist() == [[1, 2], [0, 3]]


def test_a_function_of_float32_is_taken_as_it_is() -> None:
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append(x.double().float().dtype)
        return x.double().float()

    assert dense(function, torch.ones(2)).dtype == torch.float32 and seen == [torch.float32]


def copied(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=torch.float32).copy_(x).pow(3)


def test_digits_that_are_lost_nevertheless_are_said(drawn) -> None:
    with pytest.warns(JacobianWarning, match="computes in float32 inside .*: its Jacobian is right to about 7 digits"):
        with linearised(copied, drawn(3)) as jacobian:
            assert jacobian.dtype_name == jacobian.transposed.dtype_name == "float32"


class OwnBackward(torch.autograd.Function):
    """x³, with a backward pass of somebody's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, how: str) -> Tensor:
        ctx.save_for_backward(x)
        ctx.how = how
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        slope = 3 * ctx.saved_tensors[0].square()
        if ctx.how == "clips":
            return slope * g.clamp(-0.5, 0.5), None
        if ctx.how == "rounds":
            return slope * ((g * 2**20).round() / 2**20 - g).detach() + slope * g, None
        return (slope.float() if ctx.how == "casts its slope" else slope) * g.float().to(g.dtype), None


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("casts", "computes in float32 inside .*: its Jacobian is right to about 7 digits"),
        ("casts its slope", "computes in float32 inside"),
        ("rounds", "each other's transposes to .e-0[5-8] only: the function's derivative loses digits"),
    ],
)
def test_digits_that_a_backward_pass_loses_are_said(how: str, said: str, drawn) -> None:
    with pytest.warns(JacobianWarning, match=said), linearised(lambda x: OwnBackward.apply(x, how), drawn(5)) as found:
        assert 1e-9 < found.agreement < 1e-5 and found.transposed.agreement == found.agreement
        assert found.dtype == (torch.float64 if how == "rounds" else torch.float32)


def test_a_backward_pass_that_is_not_linear_has_no_jacobian(drawn) -> None:
    with pytest.raises(JacobianError, match="is no linear map's transpose; leave out what clips"):
        dense(lambda x: OwnBackward.apply(x, "clips"), drawn(5))


@pytest.mark.filterwarnings("ignore:J v and Jᵀu are each other's:normlab.jacobian.JacobianWarning")
def test_a_jacobian_of_nothing_but_rounding_is_one(drawn) -> None:
    assert float(dense(lambda x: (x / 3 - x * (1 / 3)) + (x.sin() ** 2 + x.cos() ** 2), drawn(5)).abs().max()) < 1e-15


def test_what_computes_in_float64_agrees_to_rounding(drawn) -> None:
    with linearised(lambda x: x.softmax(0) ** 3, drawn(5)) as found:
        assert found.agreement < 1e-14


def test_only_what_depends_on_x_counts() -> None:
    assert dense(lambda x: x * torch.empty(2).copy_(torch.ones(2).double()), torch.ones(2).double()).shape == (2, 2)


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "T5ForConditionalGeneration"])
def test_models_of_transformers_are_float64_throughout(name: str, drawn) -> None:
    import transformers

    sizes = dict(d_model=8, d_ff=16, num_layers=2, num_heads=2, d_kv=4, vocab_size=30, decoder_start_token_id=0)
    sizes |= dict(hidden_size=8, intermediate_size=16, num_attention_heads=2) if name.startswith("Llama") else {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model_class = getattr(transformers, name)
        model = model_class(model_class.config_class(**sizes)).eval()
    tokens = torch.arange(3, 13).reshape(2, 5)
    batch = {"input_ids": tokens} | ({"decoder_input_ids": tokens} if name.startswith("T5") else {})
    part = parts(model, batch).blocks(1, 2)
    x, u, v, h = part.point, drawn(*part.point.shape), drawn(*part.point.shape, seed=1), 1e-4
    with linearised(part, x) as jacobian:
        forward, backward = jacobian.jvp(v), jacobian.vjp(u)
    size = float(forward.norm() * u.norm())
    assert abs(float((forward * u).sum() - (backward * v).sum())) < 1e-12 * size and jacobian.dtype == torch.float64
    with torch.no_grad():
        steps = [part(x + step * h * v) for step in (-2, -1, 1, 2)]
    # Float32 inside would leave three digits of this.
    difference = (steps[0] - 8 * steps[1] + 8 * steps[2] - steps[3]) / (12 * h)
    torch.testing.assert_close(difference, forward, rtol=1e-6, atol=1e-8 * float(forward.abs().max()))
