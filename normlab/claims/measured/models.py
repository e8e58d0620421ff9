"""Whole models in float64: identities between placements, and what a stream carries."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from normlab.claims.evidence import Number
from normlab.claims.measured.norms import draw, gap
from normlab.jacobian import dense
from normlab.models import Transformer, build
from normlab.models.add import Add
from normlab.models.attention import Attention
from normlab.models.block import Block
from normlab.models.sublayer import SubLayer
from normlab.placements import PLACEMENTS
from normlab.spec import ModelSpec

_WIDTH, _TINY = 16, 1e-30


def small(placement: str = "pre", **fields: object) -> ModelSpec:
    """Return a small model whose norms have no ε to speak of."""
    base: dict[str, object] = {
        "depth": 2, "width": _WIDTH, "heads": 2, "vocab": 32, "activation": "relu", "norm_eps": _TINY,
    }  # fmt: skip
    return ModelSpec(placement=placement, **(base | fields))  # type: ignore[arg-type]


def tokens_of(seed: int, vocab: int = 32, batch: int = 2, count: int = 8) -> Tensor:
    """Return random tokens."""
    return torch.randint(0, vocab, (batch, count), generator=torch.Generator().manual_seed(seed))


def blocks_of(model: Transformer) -> list[Block]:
    """Return the decoder's blocks."""
    return [cast(Block, block) for block in model.stack("decoder").blocks]


def sublayers_of(block: Block) -> list[SubLayer]:
    """Return a block's sub-layers."""
    return [cast(SubLayer, sub) for sub in block.sublayers.values()]


def double(spec: ModelSpec, seed: int) -> Transformer:
    """Build a model in float64."""
    return build(spec, seed=seed, dtype=torch.float64)


def residual_variance(seed: int) -> list[Number]:
    """Compare Var(sum) with Var(s) + Var(u) + 2 Cov(s, u) at every residual add of every placement.

    Once with s what the update is added to, once with s the stream before the sub-layer.
    """
    with_skip, with_stream = [], []
    for name in PLACEMENTS:
        model = double(small(name), seed)
        for skip, update, stream in _adds(model, tokens_of(seed)):
            with_skip.append(_variance_gap(skip, update, skip + update))
            with_stream.append(_variance_gap(stream, update, skip + update))
    return [
        Number("variance-identity-with-skip", max(with_skip), None, {"width": _WIDTH}),
        Number("variance-identity-with-stream", max(with_stream), None, {"width": _WIDTH}),
    ]


def _adds(model: Transformer, tokens: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return each sub-layer's residual add, with its two terms and the sub-layer's input."""
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    stream: list[Tensor] = []
    hooks = []
    for block in blocks_of(model):
        for sub in sublayers_of(block):
            hooks.append(sub.register_forward_pre_hook(lambda _m, given: stream.append(given[0].detach())))
            if isinstance(sub.add, Add):

                def keep(add: nn.Module, given: tuple[Tensor, Tensor], total: Tensor) -> None:
                    found.append((given[0].detach(), given[1].detach(), stream[-1]))

                hooks.append(sub.add.register_forward_hook(keep))
    model(tokens)
    for hook in hooks:
        hook.remove()
    return found


def _variance_gap(a: Tensor, b: Tensor, total: Tensor) -> float:
    def covariance(x: Tensor, y: Tensor) -> Tensor:
        return ((x - x.mean(-1, keepdim=True)) * (y - y.mean(-1, keepdim=True))).mean(-1)

    right = covariance(a, a) + covariance(b, b) + 2 * covariance(a, b)
    whole = covariance(total, total)
    return float(((whole - right).abs() / whole.clamp_min(1e-12)).max())


def constant_direction(seed: int) -> list[Number]:
    """Add a constant to every feature of the embedded tokens, and see what is left of it after two blocks.

    The share that is left: the difference of the streams along (1, …, 1) over the constant that was added.
    """
    found = []
    for placement in ("post", "pre"):
        model = double(small(placement), seed)
        stack = model.stack("decoder")
        x, step = stack.embedding(tokens_of(seed)).detach(), 3.0
        before, after = (_blocks(model, x + c).detach() for c in (0.0, step))
        along = (after - before).mean(-1).abs().max() / step
        rest = gap(after - before, torch.full_like(after, step))
        found.append(Number(f"{placement}-constant-left", float(along), None, {"width": _WIDTH, "depth": 2}))
        if placement == "pre":
            found.append(Number("pre-constant-carried-on", rest, None, {"width": _WIDTH, "depth": 2}))
    return found


def _blocks(model: Transformer, x: Tensor) -> Tensor:
    for block in blocks_of(model):
        x = block(x)
    return x


def _through(model: Transformer) -> Callable[[Tensor], Tensor]:
    return lambda x: _blocks(model, x)


def carried_streams(seed: int) -> list[Number]:
    """Check what the residual add carries on: the raw stream in Pre-LN, a normalized one in Post-LN."""
    pre, post = double(small("pre"), seed), double(small("post"), seed)
    raw = max(gap(skip, stream) for skip, _, stream in _adds(pre, tokens_of(seed)))
    streams = [stream for _, _, stream in _adds(post, tokens_of(seed))][1:]
    uneven = max(float((stream.square().mean(-1) - 1).abs().max()) for stream in streams)
    pre_streams = [stream for _, _, stream in _adds(pre, tokens_of(seed))][1:]
    pre_uneven = max(float((stream.square().mean(-1) - 1).abs().max()) for stream in pre_streams)
    size = {"width": _WIDTH, "depth": 2}
    return [
        Number("pre-skip-from-raw-stream", raw, None, size),
        Number("post-stream-from-unit-scale", uneven, None, size),
        Number("pre-stream-from-unit-scale", pre_uneven, None, size),
    ]


def post_definition(seed: int) -> list[Number]:
    """Compare torch's encoder layer of the 2017 architecture with two readings of Post-LN."""
    torch_seed = torch.Generator().manual_seed(seed)
    layer = nn.TransformerEncoderLayer(_WIDTH, 1, 32, dropout=0.0, batch_first=True, norm_first=False).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.3, generator=torch_seed)
        for norm in (layer.norm1, layer.norm2):
            norm.weight.fill_(1.0)
    x = draw(seed, 2, 8, _WIDTH)

    def attention(z: Tensor) -> Tensor:
        mixed: Tensor = layer.self_attn(z, z, z, need_weights=False)[0]
        return mixed

    def mlp(z: Tensor) -> Tensor:
        hidden: Tensor = layer.linear2(layer.linear1(z).relu())
        return hidden

    h = layer.norm1(x + attention(x))
    post = layer.norm2(h + mlp(h))
    h = x + layer.norm1(attention(x))
    res_post = h + layer.norm2(mlp(h))
    reference = layer(x)
    size = {"width": _WIDTH, "depth": 1}
    return [
        Number("norm-after-the-add", gap(reference.detach(), post.detach()), None, size),
        Number("norm-before-the-add", gap(reference.detach(), res_post.detach()), None, size),
    ]


def identity_at_start(seed: int) -> list[Number]:
    """Measure how far ∂x_L/∂x_0 is from the identity where branches start at zero."""
    found = []
    for name in ("rezero", "res-post-norm", "skipinit", "pre"):
        model = double(small(name, final_norm=False), seed)
        x = draw(seed, 1, 3, _WIDTH)
        jacobian = dense(_through(model), x)
        off = gap(jacobian, torch.eye(len(jacobian), dtype=torch.float64))
        found.append(Number(f"{name}-from-identity", off, None, {"width": _WIDTH, "depth": 2}))
    return found


def placements_that_agree(seed: int) -> list[Number]:
    """Compare features of models of two placements with the same weights."""
    tokens = tokens_of(seed)

    def features(spec: ModelSpec, *, unit_skip: bool = False) -> Tensor:
        model = double(spec, seed)
        for block in blocks_of(model) if unit_skip else ():
            for sub in sublayers_of(block):
                sub.wiring = replace(sub.wiring, skip_scale=1.0)
        return model.features(tokens).detach()

    rms = {"norm": "rmsnorm", "qk_norm": "rmsnorm"}
    mlp = {"norm": "rmsnorm", "attention": "none"}
    post, deep = features(small("post")), small("deepnorm")
    numbers = {
        "deepnorm-with-unit-factors": gap(features(deep, unit_skip=True), post),
        "deepnorm-with-its-alpha": gap(features(deep), post),
        "peri-and-reordered-mlp-only": gap(features(small("peri", **mlp)), features(small("reordered", **mlp))),
        "peri-and-reordered-with-attention": gap(features(small("peri", **rms)), features(small("reordered", **rms))),
        "skipinit-with-unit-scale": gap(
            features(small("skipinit", placement_options=(("initial", 1.0),))), features(small("none"))
        ),
        "skipinit-as-it-starts": gap(features(small("skipinit")), features(small("none"))),
        "lns-and-pre-of-one-block": gap(features(small("lns", depth=1)), features(small("pre", depth=1))),
    }
    return [Number(name, value, None, {"width": _WIDTH, "depth": 2}) for name, value in numbers.items()]


def centred_writers(seed: int) -> list[Number]:
    """Centre every matrix that writes to the stream; LayerNorm and RMSNorm models then agree."""
    found = {}
    for name, centred in (("centred-writers", True), ("usual-writers", False)):
        outputs = []
        for norm in ("layernorm", "rmsnorm"):
            model = double(small("pre", norm=norm), seed)
            if centred:
                _centre(model)
            outputs.append(model.features(tokens_of(seed)).detach())
        found[name] = gap(*outputs)
    return [Number(name, value, None, {"width": _WIDTH, "depth": 2}) for name, value in found.items()]


@torch.no_grad()
def _centre(model: Transformer) -> None:
    token = model.stack("decoder").embedding.token
    token.sub_(token.mean(-1, keepdim=True))
    for block in blocks_of(model):
        for sub in sublayers_of(block):
            weight = sub.mixer.o.weight if isinstance(sub.mixer, Attention) else sub.mixer.down.weight
            weight.sub_(weight.mean(0, keepdim=True))


def logit_bound(seed: int) -> list[Number]:
    """Compare the largest attention logit with √d_h · max|g_q| · max|g_k|, for random gains and large weights."""
    found = []
    for name, norm in (("logit-over-bound-with-qk-norm", "rmsnorm"), ("logit-over-bound-without", None)):
        model = double(small("pre", qk_norm=norm), seed)
        largest = 0.0
        generator = torch.Generator().manual_seed(seed + 1)
        for block in blocks_of(model):
            attention = cast(Attention, sublayers_of(block)[0].mixer)
            bound = _enlarge(attention, generator)
            seen: list[Tensor] = []
            hook = attention.core.register_forward_pre_hook(lambda _m, given, to=seen: to.extend(given[:2]))
            model(tokens_of(seed))
            hook.remove()
            logits = seen[0] @ seen[1].transpose(-1, -2) / attention.features**0.5
            largest = max(largest, float(logits.abs().max().detach()) / bound)
        found.append(Number(name, largest, None, {"width": _WIDTH, "depth": 2}))
    return found


@torch.no_grad()
def _enlarge(attention: Attention, generator: torch.Generator) -> float:
    """Multiply W_q and W_k by 30 and draw the gains; return the bound that the gains give."""
    bound = math.sqrt(attention.features)
    for role in ("q", "k"):
        getattr(attention, role).weight.mul_(30)
        norm = getattr(attention, f"{role}_norm")
        if norm is not None:
            norm.norm.gain.normal_(generator=generator)
            bound *= float(norm.norm.gain.abs().max())
    return bound
