import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import normlab as nl
from normlab.cli import main


def normlab(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="normlab", catch_exceptions=False)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("specs") / "spec.json"
    path.write_text(nl.ModelSpec(placement="pre", depth=4, width=16, heads=2).to_json())
    return path


def test_a_model_with_itself_in_bfloat16(spec: Path, tmp_path: Path) -> None:
    line = ("--dtype-b", "bfloat16", "--tokens", 12, "--out", tmp_path / "out", "--json")
    result = normlab("compare", spec, spec, *line)
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["parts"] is None and found["of"] == "models"
    assert [one["layer"] for one in found["layers"]] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    written = {Path(path).name for path in found["files"]}
    assert {"divergence.svg", "stream_ratio.png", "results.csv.gz", "comparison.json"} <= written
    assert "The streams do not part" in result.stderr


def test_two_runs_need_one_model_each(run: Path, tmp_path: Path) -> None:
    result = normlab("compare", run, run)
    assert result.exit_code == 1 and "choose one with --where" in result.stderr
    where = "placement == 'pre' and depth == 3"
    result = normlab("compare", run, run, "--where", where, "--out", tmp_path)
    assert result.exit_code == 0 and "the same everywhere" in result.stdout
    assert (tmp_path / "plots/stream_ratio.svg").is_file() and not (tmp_path / "plots/divergence.svg").exists()


@pytest.mark.parametrize("tolerance", ["inf", "nan", "-1"])
def test_a_tolerance_is_finite(spec: Path, tolerance: str) -> None:
    assert normlab("compare", spec, spec, "--tolerance", tolerance).exit_code == 2


def test_what_does_not_go_together_is_a_usage_error(run: Path, spec: Path) -> None:
    assert normlab("compare", run, run, "--dtype-b", "bfloat16").exit_code == 2
    assert normlab("compare", spec, spec, "--where", "depth == 3").exit_code == 2


@pytest.mark.parametrize("other", ["nowhere", "empty"])
def test_what_is_no_model_is_one_sentence(spec: Path, tmp_path: Path, other: str) -> None:
    (tmp_path / "empty").mkdir()
    result = normlab("compare", spec, tmp_path / other)
    assert result.exit_code == 1 and result.stderr.count("\n") == 1 and "give a folder" in result.stderr


def test_a_run_and_a_model_are_refused(run: Path, spec: Path) -> None:
    result = normlab("compare", run, spec)
    assert result.exit_code == 1 and "Traceback" not in result.stderr and "is a run" in result.stderr


def test_two_inspections_are_compared_by_their_tables(spec: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        normlab("inspect", spec, "--tokens", 12, "--seed", seed, "--out", tmp_path / str(seed))
    found = json.loads(normlab("compare", tmp_path / "0", tmp_path / "1", "--json").stdout)
    one, two = (nl.load(tmp_path / str(seed) / "results.csv.gz") for seed in (0, 1))
    where = "site == 'stream' and quantity == 'median_rms' and layer == 4 and sublayer == 'mlp'"
    expected = two.query(where)["value"].item() / one.query(where)["value"].item()
    assert found["of"] == "runs" and found["layers"][-1]["ratio"] == pytest.approx(expected, rel=1e-12)
    (differs,) = found["different_data"]  # windows of the same text at other places
    assert differs == "seed that the windows of text are drawn with (A: 0; B: 1)"


def test_no_number_is_cut_at_80_columns(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = normlab("compare", spec, spec, "--dtype-b", "bfloat16", "--tokens", 12).stdout
    start = said.index("  layer")
    table = said[start : said.index("divergence: ", start)]
    assert "…" not in table and max(map(len, table.splitlines())) <= 80
    assert "Inherited and added do not sum to the divergence" in said


@pytest.mark.needs("transformers")
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
def test_attention_is_chosen_for_a_function_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models_of_compare.py").write_text(
        "import torch, normlab as nl\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "def llama():\n"
        "    torch.manual_seed(0)\n"
        "    return LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=16, intermediate_size=32,\n"
        "        num_hidden_layers=2, num_attention_heads=2))\n"
        "def zoo():\n"
        "    return nl.build(nl.ModelSpec(depth=2, width=16, heads=2))\n"
    )
    monkeypatch.chdir(tmp_path)
    llama, zoo = "my_models_of_compare:llama", "my_models_of_compare:zoo"
    found = json.loads(normlab("compare", llama, llama, "--tokens", 8, "--attention-a", "eager", "--json").stdout)
    assert found["a"].endswith("eager attention)") and found["b"].endswith("sdpa attention)")
    said = normlab("compare", llama, llama, "--attention-b", "sdpaa")
    assert said.exit_code == 1 and "cannot use sdpaa attention" in said.stderr
    said = normlab("compare", zoo, zoo, "--attention-b", "eager")
    assert said.exit_code == 1 and "no attention implementation to choose" in said.stderr


@pytest.mark.parametrize("tolerance", ["inf", "nan", "-1", "much"])
def test_a_tolerance_that_is_no_number_is_refused_before_anything_runs(tolerance: str) -> None:
    result = normlab("compare", "nowhere", "nowhere", "--tolerance", tolerance)
    assert result.exit_code == 2 and f"{tolerance} is not a finite number of at least 0" in result.stderr


def test_no_ratio_near_1_is_cut_to_nothing(spec: Path) -> None:
    said = normlab("compare", spec, spec, "--dtype-b", "bfloat16", "--tokens", 12, "--no-grad").stdout
    assert " 1.00" not in said[said.index("  layer") :] and "0.1" in said and "grad ratio" not in said
    assert "A ratio within 1 % of 1 is shown by how much it is off." in said
