"""The zoo's equations written out with elementary operations in float64: of a model only its weights are used.

Nothing of normlab is imported: neither placements' data nor norms' modules enter.
"""

import math

import torch
from torch import Tensor


def layernorm(x: Tensor, eps: float) -> Tensor:
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return centred / ((centred**2).sum(-1, keepdim=True) / x.shape[-1] + eps) ** 0.5


def rmsnorm(x: Tensor, eps: float) -> Tensor:
    return x / ((x**2).sum(-1, keepdim=True) / x.shape[-1] + eps) ** 0.5


def l2norm(x: Tensor, eps: float) -> Tensor:
    return x / (x**2).sum(-1, keepdim=True).clamp(min=eps) ** 0.5


NORMS = {"layernorm": layernorm, "rmsnorm": rmsnorm, "l2norm": l2norm, "identity": lambda x, eps: x}


def erf_gelu(z: Tensor) -> Tensor:
    return z * (1 + torch.erf(z / math.sqrt(2))) / 2


ACTIVATIONS = {
    "relu": lambda z: z * (z > 0),
    "gelu": erf_gelu,
    "gelu_tanh": lambda z: z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "swiglu": lambda z: z / (1 + torch.exp(-z)),
    "geglu": erf_gelu,
    "tanh": lambda z: (torch.exp(z) - torch.exp(-z)) / (torch.exp(z) + torch.exp(-z)),
}


class Hand:
    """A model's weights, its spec's plain fields, and one method for each of its parts."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.w = {name: value.detach().double() for name, value in model.named_parameters()}
        self.spec = model.spec
        self.f = self.spec.head_width or self.spec.width // self.spec.heads

    def norm(self, x: Tensor, path: str, kind: str | None = None) -> Tensor:
        y = NORMS[kind or self.spec.norm](x, self.spec.norm_eps)
        return y * self.w.get(f"{path}.gain", 1.0) + self.w.get(f"{path}.bias", 0.0)

    def matrix(self, x: Tensor, path: str) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.w[f"{path}.weight"]) + self.w.get(f"{path}.bias", 0.0)

    def attention(self, path: str, z: Tensor, memory: Tensor | None, *, causal: bool, qkv: bool, mid: bool) -> Tensor:
        source = z if memory is None else memory
        mixed = [self._sequence(path, z[b], source[b], causal, qkv, memory is None) for b in range(len(z))]
        joined = torch.stack(mixed)
        return self.matrix(self.norm(joined, f"{path}.mid_norm") if mid else joined, f"{path}.o")

    def _sequence(self, path: str, z: Tensor, source: Tensor, causal: bool, qkv: bool, own: bool) -> Tensor:
        heads = self.spec.heads
        shared = heads // (self.spec.kv_heads or heads) if self.spec.attention == "softmax" else 1
        seen = torch.ones(len(z), len(source), dtype=torch.float64)
        seen = seen.tril() if causal else seen
        columns = []
        for h in range(heads):
            v = self._head("v", path, source, h // shared, qkv)
            odds = seen
            if self.spec.attention == "softmax":
                q = self._turned(self._head("q", path, z, h, qkv), own)
                k = self._turned(self._head("k", path, source, h // shared, qkv), own)
                odds = seen * (q @ k.T / math.sqrt(self.f)).exp()
            columns.append(odds @ v / odds.sum(1, keepdim=True))
        return torch.cat(columns, dim=-1)

    def _head(self, role: str, path: str, x: Tensor, h: int, qkv: bool) -> Tensor:
        head = self.matrix(x, f"{path}.{role}")[..., h * self.f : (h + 1) * self.f]
        kind = self.spec.norm if qkv else {"q": self.spec.qk_norm, "k": self.spec.qk_norm}.get(role)
        return head if kind is None else self.norm(head, f"{path}.{role}_norm.norm", kind)

    def _turned(self, x: Tensor, own: bool) -> Tensor:
        if self.spec.position != "rope" or not own:
            return x
        half = self.f // 2
        pairs = torch.complex(x[:, :half], x[:, half:])
        for position in range(len(x)):
            for i in range(half):
                angle = position * 10000 ** (-2 * i / self.f)
                pairs[position, i] *= complex(math.cos(angle), math.sin(angle))
        return torch.cat([pairs.real, pairs.imag], dim=1)

    def mlp(self, path: str, z: Tensor, *, mid: bool) -> Tensor:
        phi = ACTIVATIONS[self.spec.activation]
        gated = f"{path}.gate.weight" in self.w
        up = self.matrix(z, f"{path}.up")
        hidden = up * phi(self.matrix(z, f"{path}.gate")) if gated else phi(up)
        return self.matrix(self.norm(hidden, f"{path}.mid_norm") if mid else hidden, f"{path}.down")

    def embed(self, stack: str, tokens: Tensor) -> Tensor:
        path, d = f"stacks.{stack}.embedding", self.spec.width
        name = f"{path}.token"
        table = self.w[name] if name in self.w else self.w["head.weight"]
        own_scale = self.spec.init == "t-fixup"
        x = table[tokens] * (
            math.sqrt(d) if own_scale or (self.spec.tie_embeddings and self.spec.init[:4] != "gpt2") else 1
        )
        if self.spec.position == "learned":
            x = x + self.w[f"{path}.position"][: tokens.shape[1]]
        if self.spec.position == "sinusoidal":
            for p in range(tokens.shape[1]):
                for i in range(d):
                    angle = p / 10000 ** ((i - i % 2) / d)
                    x[:, p, i] += math.cos(angle) if i % 2 else math.sin(angle)
        return self.norm(x, f"{path}.norm") if self.spec.has_embed_norm else x


class At:
    """One sub-layer: what placements' equations are written in."""

    def __init__(self, hand: Hand, stack: str, layer: int, depth: int, name: str, memory: Tensor | None) -> None:
        self.hand, self.stack, self.layer, self.depth, self.name, self.memory = hand, stack, layer, depth, name, memory
        self.path = f"stacks.{stack}.blocks.{layer - 1}.sublayers.{name}"
        spec = hand.spec
        both = spec.kind == "encoder-decoder"
        self.n, self.m = (spec.encoder_depth or spec.depth if both else 0), (spec.depth if both else 0)
        self.options = dict(spec.placement_options)

    def branch(self, z: Tensor, *, qkv: bool = False, mid: bool = False) -> Tensor:
        path = f"{self.path}.mixer"
        if self.name == "mlp":
            return self.hand.mlp(path, z, mid=mid)
        causal = self.stack == "decoder" and self.name == "attn"
        memory = self.memory if self.name == "cross" else None
        return self.hand.attention(path, z, memory, causal=causal, qkv=qkv, mid=mid)

    def inner(self, x: Tensor) -> Tensor:
        return self.hand.norm(x, f"{self.path}.inner_norm")

    def output(self, x: Tensor) -> Tensor:
        return self.hand.norm(x, f"{self.path}.output_norm")

    def outer(self, x: Tensor) -> Tensor:
        return self.hand.norm(x, f"{self.path}.outer_norm")

    @property
    def b(self) -> Tensor:
        return self.hand.w[f"{self.path}.branch_scale.scale"]


def _every(s: At, x: Tensor, k: int) -> Tensor:
    return s.outer(x) if s.name == "mlp" and k and s.layer % k == 0 else x


def _deepnorm(s: At, x: Tensor, block: Tensor) -> Tensor:
    if not s.n:
        alpha = (2 * s.depth) ** 0.25
    else:
        alpha = 0.81 * (s.n**4 * s.m) ** (1 / 16) if s.stack == "encoder" else (3 * s.m) ** 0.25
    return s.outer(alpha * x + s.branch(x))


def _mix(s: At, x: Tensor, block: Tensor) -> Tensor:
    if s.layer <= math.floor(s.options.get("alpha", 0.25) * s.depth):
        return s.outer(x + s.branch(x))
    return x + s.branch(s.inner(x))


def _hybrid(s: At, x: Tensor, block: Tensor) -> Tensor:
    first = s.options.get("star", False) and s.layer == 1
    if s.name == "mlp":
        return (x if first else s.inner(x)) + s.branch(s.inner(x))
    return x + s.branch(s.inner(x) if first else x, qkv=True)


def _completep(s: At, x: Tensor, block: Tensor) -> Tensor:
    return x + s.branch(s.inner(x)) / (s.depth / s.options.get("base_depth", 1)) ** s.options.get("alpha", 1.0)


PLACEMENTS = {
    "post": lambda s, x, block: s.outer(x + s.branch(x)),
    "pre": lambda s, x, block: x + s.branch(s.inner(x)),
    "peri": lambda s, x, block: x + s.output(s.branch(s.inner(x))),
    "reordered": lambda s, x, block: x + s.output(s.branch(x)),
    "res-post-norm": lambda s, x, block: _every(s, x + s.output(s.branch(x)), s.options.get("every", 0)),
    "periodic": lambda s, x, block: _every(s, x + s.branch(x), s.options.get("every", 2)),
    "sub-ln": lambda s, x, block: x + s.branch(s.inner(x), mid=True),
    "deepnorm": _deepnorm,
    "b2t": lambda s, x, block: s.outer((block if s.name == "mlp" else 0) + x + s.branch(x)),
    "mix-ln": _mix,
    "hybridnorm": _hybrid,
    "lns": lambda s, x, block: x + s.branch(s.inner(x) / math.sqrt(s.layer)),
    "rezero": lambda s, x, block: x + s.b * s.branch(x),
    "skipinit": lambda s, x, block: x + s.b * s.branch(x),
    "layerscale": lambda s, x, block: x + s.b * s.branch(s.inner(x)),
    "completep": _completep,
    "ngpt": lambda s, x, block: s.outer(x + s.b * (s.output(s.branch(x)) - x)),
    "none": lambda s, x, block: x + s.branch(x),
}
PARALLEL = {
    "post": lambda a, m, x: m.outer(x + a.branch(x) + m.branch(x)),
    "pre": lambda a, m, x: x + a.branch(a.inner(x)) + m.branch(m.inner(x)),
    "peri": lambda a, m, x: x + a.output(a.branch(a.inner(x))) + m.output(m.branch(m.inner(x))),
}


def run_stack(hand: Hand, name: str, tokens: Tensor, memory: Tensor | None = None) -> Tensor:
    """What the head sees."""
    spec = hand.spec
    x = second = hand.embed(name, tokens)
    depth = spec.encoder_depth or spec.depth if name == "encoder" else spec.depth
    names = ["mlp"] if spec.attention == "none" else ["attn", "mlp"] if memory is None else ["attn", "cross", "mlp"]
    kappa = dict(spec.placement_options).get("scale", 1.0)
    second = second * kappa
    for layer in range(1, depth + 1):
        block, sublayers = x, [At(hand, name, layer, depth, sublayer, memory) for sublayer in names]
        placement = spec.placement if isinstance(spec.placement, str) else spec.placement[layer - 1]
        if spec.parallel:
            x = PARALLEL[placement](*sublayers, x)
            continue
        for s in sublayers:
            if placement == "residual":
                u = s.branch(x)
                x, second = s.outer(x + u), second + kappa * u
            else:
                x = PLACEMENTS[placement](s, x, block)
    final = f"stacks.{name}.final_norm"
    if "residual" in (spec.placement, spec.placement[0]):
        return x + (hand.norm(second, final) if spec.has_final_norm else second)
    return hand.norm(x, final) if spec.has_final_norm else x


def logits(model: torch.nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """The logits of ``model``, in float64."""
    hand = Hand(model)
    if model.spec.kind == "encoder-decoder":
        given = torch.cat([torch.zeros_like(targets[:, :1]), targets[:, :-1]], dim=1)
        seen = run_stack(hand, "decoder", given, run_stack(hand, "encoder", tokens))
    else:
        seen = run_stack(hand, model.spec.kind, tokens)
    last = "encoder" if model.spec.kind == "encoder" else "decoder"
    head = hand.w[f"stacks.{last}.embedding.token" if model.spec.tie_embeddings else "head.weight"]
    return seen @ head.T
