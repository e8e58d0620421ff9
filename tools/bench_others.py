"""What other tools cost beside normlab.

    python -m venv others && others/bin/pip install -e . && others/bin/pip install --no-deps \
        unit-scaling torchlens "transformer-lens>=4" einops docstring-parser docstring-inheritance tabulate \
        colorlog graphviz datasets dill multiprocess xxhash pyarrow fancy-einsum better-abc typeguard \
        sentencepiece transformers
    others/bin/python tools/bench_others.py
    others/bin/python tools/bench_others.py --steps 12 --shape 24 128 4

Its dependencies stand in an environment of their own: torchlens and TransformerLens ask for packages, and
versions of them, that normlab has no use for. torchvision and timm must not be installed: without wheels of
the same build as torch they break the import of transformers. What is not installed is left out of the
table. All step through the same plain GPT in one process on one thread, in turns, so that other load meets
all alike, and a tool stays attached for a few steps, as in a training loop; TransformerLens has a model of
its own of the same shape and is compared with that run bare.

Each ratio is of medians. Whether the tools are right is another question: tools/right_values.py.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import normlab as nl

Step = Callable[[], Any]
#: Attaches a tool to a model, for its tokens and its targets, and gives what makes a step.
Tool = Callable[[Any, Tensor, Tensor], AbstractContextManager[Step]]
#: Steps that a tool stays attached for, as in a training loop.
TOGETHER = 4


class Block(nn.Module):
    """A Pre-LN block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then the MLP."""
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A plain GPT, as anybody would write it."""

    def __init__(self, depth: int, width: int, heads: int, vocab: int = 256) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, width), nn.Linear(width, vocab, bias=False)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(depth)), nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: Callable[[Tensor], Tensor], tokens: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy."""
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


@contextmanager
def bare(model: nn.Module, tokens: Tensor, targets: Tensor) -> Iterator[Step]:
    """Nothing is recorded."""
    yield lambda: loss_of(model, tokens, targets).backward()


def normlab(model: nn.Module, tokens: Tensor, targets: Tensor) -> AbstractContextManager[Step]:
    """All default quantities at every site, by a plan that was discovered once."""
    if model not in PLANS:
        PLANS[model] = nl.discover(model, tokens).plan

    @contextmanager
    def attached() -> Iterator[Step]:
        with nl.record(model, sites=PLANS[model]) as recorder:

            def step() -> None:
                loss_of(model, tokens, targets).backward()
                recorder.step()

            yield step
            model.zero_grad(set_to_none=True)

    return attached()


PLANS: dict[nn.Module, Any] = {}


def hooks(*, cheap: bool) -> Tool:
    """Plain hooks on every module without children, for its output and the gradient there; reduced at once."""

    def reduce(x: Tensor) -> Any:
        x = x.detach()
        if cheap:
            return x.sum(-1), torch.linalg.vector_norm(x, dim=-1), x.aminmax()
        return torch.var_mean(x), x.abs().max()

    @contextmanager
    def attached(model: nn.Module, tokens: Tensor, targets: Tensor) -> Iterator[Step]:
        kept: list[Any] = []

        def ran(module: nn.Module, args: Any, out: Tensor) -> None:
            kept.append(reduce(out))
            out.register_hook(lambda gradient: kept.append(reduce(gradient)))

        def step() -> None:
            kept.clear()
            loss_of(model, tokens, targets).backward()

        leaves = [module for module in model.modules() if not any(module.children())]
        handles = [module.register_forward_hook(ran) for module in leaves]
        yield step
        for handle in handles:
            handle.remove()

    return attached


@contextmanager
def unit_scaling(model: nn.Module, tokens: Tensor, targets: Tensor) -> Iterator[Step]:
    """``track_scales``: every tensor of the compiler's graph and its gradient."""
    from unit_scaling.transforms import track_scales

    tracked = track_scales(model)
    yield lambda: loss_of(tracked, tokens, targets).backward()


@contextmanager
def torchlens(model: nn.Module, tokens: Tensor, targets: Tensor) -> Iterator[Step]:
    """``record`` with a reducing transform: every operation's output, no gradients."""
    import torchlens as lens

    def reduce(x: Tensor) -> Tensor:
        x = x.detach().float()
        return torch.stack([*torch.var_mean(x), x.abs().max()])

    def run(tokens: Tensor) -> Any:
        out, _ = lens.record(
            model, tokens, save=lambda _: True, return_output=True, activation_transform=reduce,
            save_raw_activations=False,
        )  # fmt: skip
        return out

    yield lambda: loss_of(run, tokens, targets).backward()


def lens_model(depth: int, width: int, heads: int) -> Any:
    """Return TransformerLens' own model of the same shape."""
    from transformer_lens.model_bridge import TransformerBridge

    return TransformerBridge.boot_native({
        "n_layers": depth, "d_model": width, "n_ctx": 128, "d_head": width // heads, "n_heads": heads, "d_vocab": 256,
        "act_fn": "gelu", "normalization_type": "LN", "device": "cpu", "seed": 0,
    })  # fmt: skip


@contextmanager
def lens_hooks(model: Any, tokens: Tensor, targets: Tensor) -> Iterator[Step]:
    """All hook points of TransformerLens, forward and backward; it keeps the tensors."""
    kept: list[Tensor] = []

    def keep(x: Tensor, hook: Any) -> None:
        kept.append(x.detach())

    def step() -> None:
        kept.clear()
        loss_of(model, tokens, targets).backward()

    with model.hooks(fwd_hooks=[(lambda name: True, keep)], bwd_hooks=[(lambda name: True, keep)]):
        yield step


TOOLS: dict[str, Tool] = {
    "bare": bare, "plain hooks, var_mean": hooks(cheap=False), "plain hooks, cheapest": hooks(cheap=True),
    "normlab": normlab, "unit-scaling track_scales": unit_scaling, "torchlens record": torchlens,
    "(TransformerLens, bare)": bare, "TransformerLens, all hooks": lens_hooks,
}  # fmt: skip


def measure(depth: int, width: int, heads: int, steps: int) -> dict[str, float]:
    """Return the median seconds of a step of each tool; a tool that is not there or fails has none."""
    torch.manual_seed(0)
    model = Gpt(depth, width, heads)
    tokens, targets = nl.data.random_batch(batch=4, tokens=128)
    subjects: dict[str, Any] = {}
    own: Any = None
    for name in TOOLS:
        try:
            if "TransformerLens" in name:
                own = own or lens_model(depth, width, heads)
            subjects[name] = own if "TransformerLens" in name else model
            seconds_of(name, subjects[name], tokens, targets, 1)
        except Exception as error:
            subjects.pop(name, None)
            print(f"  {name} left out: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
    seconds: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(-(-steps // TOGETHER)):
        for name, subject in subjects.items():
            seconds[name] += seconds_of(name, subject, tokens, targets, TOGETHER)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def seconds_of(name: str, model: Any, tokens: Tensor, targets: Tensor, steps: int) -> list[float]:
    """Return the seconds of each of some steps of a tool."""
    seconds = []
    model.zero_grad(set_to_none=True)
    with TOOLS[name](model, tokens, targets) as step:
        for _ in range(steps):
            model.zero_grad(set_to_none=True)
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    """Print the ratios of each shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="steps of each tool")
    parser.add_argument("--shape", type=int, nargs=3, action="append", metavar=("DEPTH", "WIDTH", "HEADS"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for depth, width, heads in options.shape or [(12, 384, 6), (24, 128, 4)]:
        print(f"L={depth} d={width} B=4 n=128 Pre-LN")
        medians = measure(depth, width, heads, options.steps)
        for name, seconds in medians.items():
            base = medians["(TransformerLens, bare)" if "TransformerLens" in name else "bare"]
            print(f"  {name}: {seconds * 1e3:.0f} ms, {seconds / base:.3f}")


if __name__ == "__main__":
    main()
