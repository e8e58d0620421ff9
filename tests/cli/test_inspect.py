"""``normlab inspect``: architectures from their configuration alone, and models on text."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import normlab as nl
from normlab.cli import main

of_transformers = pytest.mark.needs("transformers")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"
)


def _file(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


@of_transformers
@pytest.mark.parametrize(("kind", "depth"), [("deepseek_v3", 4), ("t5", 2)])
def test_a_folder_with_experts_or_two_stacks(tmp_path: Path, kind: str, depth: int) -> None:
    _file(tmp_path, model_type=kind, num_hidden_layers=depth)
    result = CliRunner().invoke(main, ["inspect", "--architecture", str(tmp_path)])
    assert result.exit_code == 0 and "placement pre" in result.stdout


@of_transformers
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", "--architecture", str(_file(tmp_path, model_type="nothing"))])
    assert result.exit_code == 1 and "config.json" in result.stderr


def normlab(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="normlab", catch_exceptions=False)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("specs") / "spec.json"
    path.write_text(nl.ModelSpec(placement="pre", depth=4, width=16, heads=2).to_json())
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text("It was the best of times, it was the worst of times. " * 20)
    return path


def test_a_saved_spec_on_a_text(spec: Path, text: Path, tmp_path: Path) -> None:
    result = normlab("inspect", spec, "--text", text, "--tokens", 16, "--json", "--out", tmp_path / "out")
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["data"]["data"].startswith("text:book")
    assert [one["topic"] for one in found["findings"]] == [
        "numbers that are not finite", "growth of the stream", "massive activations", "idle blocks", "gradients",
        "attention logits", "range of fp16", "rounding of bf16",
    ]  # fmt: skip
    assert "x ← x + MLP(LN(x))    blocks 1-4" in result.stderr and "Massive activations. None" in result.stderr
    table = nl.load(found["files"]["table"])
    (rms,) = table.query("site == 'stream' and quantity == 'median_rms' and layer == 4 and sublayer == 'mlp'")["value"]
    assert rms == found["layers"][-1]["median rms"]
    page = Path(found["files"]["report"]).read_text()
    assert "What was seen" in page and 'id="plot-stream_growth"' in page
    assert json.loads(Path(found["files"]["inspection"]).read_text())["findings"] == found["findings"]


def test_the_report_of_the_table_can_be_made_again(spec: Path, tmp_path: Path) -> None:
    normlab("inspect", spec, "--tokens", 16, "--out", tmp_path)
    assert normlab("report", tmp_path / "results.csv.gz", "--out", tmp_path / "again.html").exit_code == 0


@pytest.mark.parametrize("width", [30, 80, 200])
def test_no_number_is_cut_however_narrow_the_terminal(spec: Path, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    said = normlab("inspect", spec, "--tokens", 16).stdout
    table = said[said.index("layer  sublayer") : said.index("Of the stream after")]
    assert "…" not in table and max(map(len, table.splitlines())) <= width
    found = nl.inspect(str(spec), tokens=16).layers
    parts = [part.splitlines() for part in table.strip().split("\n\n")]
    cells = [cell for row in range(len(found)) for part in parts for cell in part[row - len(found)].split()[2:]]
    assert len(cells) == len(found) * (len(found.columns) - 3)


def test_every_mark_is_explained_under_the_table(spec: Path) -> None:
    said = normlab("inspect", spec, "--tokens", 16).stdout
    under = said[said.index("Of the stream after") :]
    found = nl.inspect(str(spec), tokens=16)
    assert "! marks what passed its threshold, · what did not" in under
    for one in found.findings:
        assert f"{one.mark} {one.topic}: {one.threshold}" in under
        assert f"{one.mark} {one.topic.capitalize()}. " in said


def test_no_backward_pass(spec: Path) -> None:
    found = json.loads(normlab("inspect", spec, "--tokens", 16, "--no-grad", "--json").stdout)
    assert not found["backward"] and "gradient" not in found["layers"][-1]


def test_conditions_decide_the_exit_code(spec: Path) -> None:
    line = ("inspect", spec, "--tokens", 16)
    result = normlab(*line, "--assert", "stream.median_rms@last < 100", "--assert", "loss < 50")
    assert result.exit_code == 0 and "stream.median_rms@last < 100: holds in 1 row" in result.stdout
    result = normlab(*line, "--assert", "stream.median_rms@last > 100", "--json")
    assert result.exit_code == 1 and "1 of 1 assertion failed: stream.median_rms@last > 100" in result.stderr
    assert json.loads(result.stdout)["assertions"][0]["holds"] is False


@pytest.mark.parametrize(
    "condition",
    ["stream.median_rms", "stream.nothing < 1", "stream.rms < x", "steam.rms < 1", "stream.rms@last-1 < 1",
     "stream.rms@coder:2 < 1", "query.rms < 1"],
)  # fmt: skip
def test_a_bad_condition_is_a_usage_error_before_anything_runs(condition: str) -> None:
    result = normlab("inspect", "nowhere", "--assert", condition)
    assert result.exit_code == 2 and "the condition" in result.stderr and "nowhere" not in result.stderr


def test_a_condition_on_gradients_and_no_grad_is_a_usage_error() -> None:
    result = normlab("inspect", "nowhere", "--no-grad", "--assert", "q.grad_norm < 1")
    assert result.exit_code == 2 and "no backward pass is run" in result.stderr


def test_a_condition_on_what_the_model_has_not_loses_nothing(spec: Path, tmp_path: Path) -> None:
    conditions = ["gate.grad_norm < 1", "stream.rms@9 < 1", "loss < 50"]
    words = [word for condition in conditions for word in ("--assert", condition)]
    result = normlab("inspect", spec, "--tokens", 16, "--json", "--out", tmp_path, *words)
    assert result.exit_code == 1 and "Traceback" not in result.stderr
    assert "2 of 3 assertions could not be checked: the condition 'gate.grad_norm < 1'" in result.stderr
    found = json.loads(result.stdout)
    assert [one["holds"] for one in found["assertions"]] == [None, None, True]
    assert "asks for block 9, and the model has 4 blocks" in found["assertions"][1]["says"]
    assert all(Path(path).stat().st_size for path in found["files"].values())
    written = json.loads(Path(found["files"]["inspection"]).read_text())
    assert written == {name: value for name, value in found.items() if name != "files"}


def test_what_was_asserted_and_with_what_it_was_computed_is_in_the_json_and_on_the_page(
    spec: Path, tmp_path: Path
) -> None:
    line = ("inspect", spec, "--tokens", 16, "--seed", 3, "--json", "--out", tmp_path)
    result = normlab(*line, "--assert", "loss < 0", "--assert", "stream.rms@last < 100")
    found = json.loads(result.stdout)
    assert result.exit_code == 1 and [one["holds"] for one in found["assertions"]] == [False, True]
    assert found["seed"] == 3 and {"normlab", "torch", "python"} <= set(found["versions"])
    page = Path(found["files"]["report"]).read_text()
    assert (
        "<dt>Fails</dt><dd>loss &lt; 0: fails" in page and "<dt>Holds</dt><dd>stream.rms@last &lt; 100: holds" in page
    )


@pytest.mark.parametrize("command", [("inspect", "nowhere"), ("compare", "nowhere", "nowhere")])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = normlab(*command, "--out", tmp_path / "file" / "out")
    assert result.exit_code == 1 and "choose another place with --out" in result.stderr


def test_two_stacks_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(nl.ModelSpec(kind="encoder-decoder", depth=2, encoder_depth=1, width=16, heads=2).to_json())
    line = ("inspect", path, "--tokens", 16)
    result = normlab(*line, "--assert", "stream.rms@last < 9", "--assert", "stream.rms@decoder:last < 9")
    assert (
        result.exit_code == 1
        and "write 'stream.rms@encoder:last < 9' or 'stream.rms@decoder:last < 9'" in result.stderr
    )
    assert "stream.rms@decoder:last < 9: holds in 1 row" in result.stdout
    rows = [line.split()[:3] for line in result.stdout.splitlines() if line.startswith(("  encoder ", "  decoder "))]
    assert rows[0] == ["encoder", "0", "embed"] and rows[-1] == ["decoder", "2", "mlp"]
    assert "encoder: 1 block of width 16" in result.stdout and "Attn(LN(x))    block 1\n" in result.stdout


def test_either_a_model_or_an_architecture(spec: Path) -> None:
    assert normlab("inspect").exit_code == 2
    assert normlab("inspect", spec, "--architecture", spec).exit_code == 2


@pytest.mark.parametrize("given", [("--assert", "loss < 0"), ("--no-grad",), ("--dtype", "float16")])
def test_what_means_nothing_for_an_architecture_is_refused(spec: Path, given: tuple[str, ...]) -> None:
    result = normlab("inspect", "--architecture", spec, *given)
    assert result.exit_code == 2 and given[0] in result.stderr and "architecture" in result.stderr


@pytest.mark.parametrize(
    ("content", "says"),
    [("", "empty"), ("short", "has 5 bytes"), ("\x00\x01", "binary")],
    ids=["empty", "short", "binary"],
)
def test_a_text_that_cannot_be_used_is_one_sentence(spec: Path, tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text(content)
    result = normlab("inspect", spec, "--text", path, "--tokens", 16)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1 and says in result.stderr
    assert normlab("inspect", spec, "--text", tmp_path / "nowhere.txt").exit_code == 2


def test_what_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    for name in ("nowhere", tmp_path):
        result = normlab("inspect", name)
        assert result.exit_code == 1 and result.stderr.count("\n") == 1 and "Error" in result.stderr


@pytest.mark.parametrize(
    "given",
    [("--assert", "loss < 5"), ("--dtype", "float16"), ("--no-grad",), ("--tokens", 9), ("--batch", 1), ("--seed", 0)],
)
def test_an_option_that_an_architecture_passes_over_is_a_usage_error(tmp_path: Path, given: tuple[object, ...]) -> None:
    result = normlab("inspect", "--architecture", _file(tmp_path, model_type="bert"), *given)
    assert result.exit_code == 2
    assert f"{given[0]} is for a model that runs, and --architecture runs none" in " ".join(result.stderr.split())


@of_transformers
def test_a_folder_for_the_file_of_an_architecture_is_one_sentence(tmp_path: Path) -> None:
    path = _file(tmp_path, model_type="bert", num_hidden_layers=2)
    result = normlab("inspect", "--architecture", path, "--out", tmp_path)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1
    assert f"{tmp_path} is a folder, and --architecture writes one JSON file" in result.stderr
    assert normlab("inspect", "--architecture", path, "--out", tmp_path / "found.json").exit_code == 0


def test_the_words_under_the_table_are_of_its_columns(spec: Path) -> None:
    said = normlab("inspect", spec, "--tokens", 16).stdout
    assert "gradient (Euclidean norm of the loss's gradient there). Of the sub-layer: input rms (" in said
    assert "gradient (" not in normlab("inspect", spec, "--tokens", 16, "--no-grad").stdout
