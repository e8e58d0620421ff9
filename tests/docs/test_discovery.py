"""docs/discovery.md prints what its code and its command print, and names the reasons that occur."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import normlab as nl
from normlab.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "discovery.md"
#: Llama 3 8B but for its depth, of which tests/cli knows.
LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=4096, intermediate_size=14336,
    num_attention_heads=32, num_hidden_layers=2, num_key_value_heads=8, vocab_size=128256, rms_norm_eps=1e-5,
)  # fmt: skip


def plain(text: str) -> str:
    """Return a text whose minus signs are those of a keyboard, as a terminal may want them."""
    return text.replace("−", "-")


def test_the_program_prints_what_stands_behind_it(pages: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    exec("\n".join(pages.code(PAGE)), {"__name__": "__main__"})
    assert plain(capsys.readouterr().out).startswith(plain(pages.code(PAGE, "")[0]))


@pytest.mark.needs("transformers")
def test_the_command_prints_what_stands_behind_it(pages: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    result = CliRunner().invoke(main, ["inspect", "--architecture", str(path), "--json"])
    said = (
        pages.code(PAGE, "")[1].replace("65 norms", "5 norms").replace("32 blocks", "2 blocks").replace("1-32", "1-2")
    )
    assert plain(said) in plain(result.stderr)
    named = pages.read("docs/discovery.md")
    found = json.loads(result.stdout)
    assert not [key for key in (*found, *found["stacks"][0]) if f"`{key}`" not in named]


class Block(nn.Module):
    def __init__(self, run: Callable[["Block", Tensor], Tensor]) -> None:
        super().__init__()
        self.run, self.f, self.n, self.m = run, nn.Linear(8, 8), nn.LayerNorm(8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def normed(b: Block, x: Tensor) -> Tensor:
    x = b.n(x)
    return x + b.f(x)


@pytest.mark.parametrize(
    ("number", "run"),
    [
        (0, lambda b, x: x + b.f(b.n(x).tanh())),
        (2, normed),
        (3, lambda b, x: b.m(x + b.f(b.n(x)))),
    ],
)
def test_a_reason_is_that_of_the_page(number: int, run: Callable[[Block, Tensor], Tensor], pages: ModuleType) -> None:
    said = pages.first_column(pages.read("docs/discovery.md"), "What `unknown` means")[number]
    stack = nl.discover(nn.Sequential(Block(run), Block(run)), torch.randn(2, 5, 8)).stacks[0]
    assert stack.placement == "unknown"
    assert pages.pattern(said).fullmatch(stack.reason.partition(": ")[2])
