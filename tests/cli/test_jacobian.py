import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner, Result

import normlab as nl
from normlab.cli import main
from normlab.table import read_csv

SMALL = "--width 8 --heads 2 --tokens 4 --probes 4"


def jacobian(line: str, *words: str) -> Result:
    arguments = ["jacobian", *line.split(), *words]
    return CliRunner().invoke(main, arguments, prog_name="normlab", catch_exceptions=False)


def test_a_folder_gets_the_table_with_theory_and_the_plots(tmp_path: Path) -> None:
    result = jacobian(f"{SMALL} --placements pre,post --depth 2 --seeds 2 --directions 1 --json --out {tmp_path}")
    assert result.exit_code == 0, result.stderr
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*") if path.is_file())
    plots = [f"plots/{name}.{suffix}" for name in ("layer_exponents", "singular_values") for suffix in ("png", "svg")]
    assert names == ["jacobian.csv.gz", *plots]
    table = read_csv(tmp_path / "jacobian.csv.gz")
    assert set(table["source"]) == {"measured", "theory"} and set(table["model_seed"].dropna()) == {0, 1}
    found = json.loads(result.stdout)
    assert len(found["rows"]) + len(found["theory"]) == len(table)
    assert "theory" in result.stderr and "APJN to L" in result.stderr


def test_the_numbers_are_those_of_the_library() -> None:
    result = jacobian("--width 8 --heads 2 --tokens 4 --depth 2 --seed 3 --quantity singular_value --k 1 --json")
    values = [row["value"] for row in json.loads(result.stdout)["rows"]]
    model = nl.build(nl.ModelSpec(depth=2, width=8, heads=2), seed=3)
    found = nl.jacobian.parts(model, nl.data.random_batch(batch=1, tokens=4, seed=10_003))
    for layer, value in enumerate(values, 1):
        block = found.block(layer)
        assert value == pytest.approx(nl.jacobian.spectral_norm(block, block.point), rel=1e-9)


def test_parts_with_all_their_singular_values(tmp_path: Path) -> None:
    words = [*f"{SMALL} --depth 2 --full --json --norm-eps 1e-30 --out {tmp_path}".split()]
    for part in ("block 2", "block 2 attn norm", "all"):
        words += ["--part", part]
    result = CliRunner().invoke(main, ["jacobian", *words], prog_name="normlab", catch_exceptions=False)
    block, norm, whole = json.loads(result.stdout)["parts"]
    assert [one["part"] for one in (block, norm, whole)] == ["block 2", "block 2 attn inner norm", "end to end"]
    assert (block["rank"], norm["rank"], norm["shape"]) == (32, 24, [32, 32])
    assert block["condition"] == pytest.approx(block["singular_values"][0] / block["singular_values"][-1])
    assert norm["log_volume"] == pytest.approx(float(np.log(norm["singular_values"][:24]).sum()))
    assert max(whole["residuals"]) < 1e-12
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "block_2_attn_inner_norm_token_3.png",
        "block_2_attn_inner_norm_token_3.svg",
    ]


def test_norms_over_a_batch_take_its_statistics() -> None:
    result = jacobian(f"{SMALL} --depth 1 --norm batchnorm --quantity lyapunov --json")
    assert result.exit_code == 0 and len(json.loads(result.stdout)["rows"]) == 2


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("--part middle", 2, "'middle' names no part: give all, block 3"),
        ("--dropout 0.1", 2, "leave --dropout out"),
        ("--placement prre", 2, "did you mean 'pre'"),
        ("--quantity rms", 2, "is not one of 'apjn'"),
        ("--probes 1", 2, "1 is not in the range"),
        ("--full", 2, "--full is of one part: name it, as with --part 'block 1'"),
        ("--part all --full --k 2", 2, "--full gives all singular values and --k some: leave one of them out"),
        ("--part all --directions 2", 2, "--directions is of every block: leave it out, or --part"),
        ("--part all --quantity apjn", 2, "--quantity is of every block: leave it out, or --part"),
        ("--quantity apjn --k 3", 2, "--k is of singular_value: leave it out, or ask for that --quantity"),
        ("--quantity apjn --directions 3", 2, "--directions is of lyapunov: leave it out, or ask for that --quantity"),
        ("--quantity singular_value --probes 3", 2, "--probes is of apjn and lyapunov: leave it out"),
        ("--quantity singular_value --law sphere", 2, "--law is of apjn and lyapunov: leave it out"),
        ("--directions 1000", 1, "directions is 1000: the stream has 32 entries, so give 0 to 32"),
        ("--stack encoder", 2, "the model has no stack 'encoder': its stacks are decoder"),
        ("--tokens 900 --batch 90", 1, "the stream has 648000 entries, tokens times features"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(line: str, code: int, sentence: str) -> None:
    result = jacobian(f"--depth 1 --width 8 --heads 2 --tokens 4 {line}")
    assert result.exit_code == code and sentence in result.stderr and "Traceback" not in result.stderr
    assert result.stderr.strip().count("\n") <= 4


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("block 9", "block 9 was asked for: the blocks are 1 to 2"),
        ("blocks 1-3", "blocks 1 to 3 were asked for: the blocks are 1 to 2"),
        ("block 9 attn", "block 9 was asked for: the blocks are 1 to 2"),
        ("block 9 mlp branch", "block 9 was asked for: the blocks are 1 to 2"),
        ("block 9 attn norm", "block 9 was asked for: the blocks are 1 to 2"),
        ("block 2 cross", "block 2 has no sub-layer 'cross' with a stream after it: it has attn, mlp"),
        ("block 2 attn outer norm", "block 2, attn has no outer norm: its norms are inner"),
        ("block 2 token 7", "there is no token 7 of sequence 0 in a tensor of shape (1, 4, 8)"),
        ("module foo", "the model has no module 'foo': its modules are stacks, stacks.decoder,"),
    ],
)
def test_a_part_that_is_not_there_is_a_usage_error(part: str, sentence: str) -> None:
    result = jacobian("--depth 2 --width 8 --heads 2 --tokens 4", "--part", part)
    assert result.exit_code == 2 and sentence in result.stderr and not result.stdout


def test_as_many_singular_values_are_shown_as_were_asked_for() -> None:
    result = jacobian(f"{SMALL} --depth 1 --k 7 --json", "--part", "block 1")
    (found,) = json.loads(result.stdout)["parts"]
    shown = ", ".join(f"{value:.4g}" for value in found["singular_values"])
    assert len(found["singular_values"]) == 7 and shown in " ".join(result.stderr.split())
    assert found["dtype"] == "float64" and found["agreement"] < 1e-13


def test_columns_are_explained_once() -> None:
    said = jacobian(f"{SMALL} --placements pre,post --depth 1").stdout
    for words in ("λ: ½ ln", "mean log:", "σ₁: the largest", "APJN: ‖∂x_L/∂x_ℓ‖²_F", "estimate from 4 random vectors"):
        assert said.count(words) == 1
    few = jacobian("--width 8 --heads 2 --tokens 4 --depth 1 --seeds 2 --quantity singular_value").stdout
    assert "APJN" not in few and "over 2 seeds" in few
    part = jacobian(f"{SMALL} --depth 1 --full", "--part", "block 1", "--part", "all").stdout
    assert part.count("condition: σ₁ over") == part.count("residual: the largest") == 1


def test_one_tokens_own_block_is_a_part() -> None:
    result = jacobian(f"{SMALL} --depth 1 --json --full", "--part", "block 1 token 2", "--part", "block 1 token 1 to 3")
    own, other = json.loads(result.stdout)["parts"]
    model = nl.build(nl.ModelSpec(depth=1, width=8, heads=2), seed=0)
    block = nl.jacobian.parts(model, nl.data.random_batch(batch=1, tokens=4, seed=10_000)).block(1)
    for found, token in ((own, block.token(2)), (other, block.token(1, of=3))):
        assert found["shape"] == [8, 8]
        exact = np.linalg.svd(nl.jacobian.dense(token, token.point).numpy(), compute_uv=False)
        assert found["singular_values"] == pytest.approx(exact.tolist(), rel=1e-9)


@pytest.mark.parametrize("line", ["", "--part all"])
def test_every_table_says_whose_it_is_also_where_it_is_quiet(line: str) -> None:
    result = jacobian(f"{SMALL} --placements pre,post --depth 1 --quiet {line}")
    assert (
        all(f"{name}, layernorm, depth 1, width 8" in result.stdout for name in ("pre", "post")) and not result.stderr
    )


def test_columns_of_the_whole_spectrum_are_shown_where_it_was_asked_for() -> None:
    some, every = (jacobian(f"{SMALL} --depth 1 --part all {line}").stdout for line in ("", "--full"))
    assert "residual" in some and "ln volume" not in some and "ln volume" in every


def test_the_terminal_shows_errors_and_the_lyapunov_spectrum() -> None:
    result = jacobian(f"{SMALL} --depth 2 --directions 2 --seeds 2 --probes 16")
    assert result.stdout.count("±") >= 10 and "mean log (nats)" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "Lyapunov" in line]
    rows = json.loads(jacobian(f"{SMALL} --depth 2 --directions 2 --seeds 2 --probes 16 --json").stdout)["rows"]
    first = [row["value"] for row in rows if row.get("name") == "qr 001"]
    assert line.startswith(f"Lyapunov exponents by QR, in nats per block: {np.mean(first):.3g} ±")


FOREIGN = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(256, 8), nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 256)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Model()


def broken():
    model = make()
    model.blocks[1].up.weight.data[0, 0] = float("nan")
    return model
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the working folder whose functions make a model of somebody else's."""
    name = f"foreign_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(FOREIGN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return name


def test_a_model_of_somebody_elses_is_measured_on_text(foreign: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("It was the best of times, it was the worst of times. " * 9)
    result = jacobian(f"{foreign}:make --text book.txt --tokens 4 --seeds 2 --k 1 --json --out {tmp_path / 'out'}")
    assert result.exit_code == 0, result.stderr
    table = read_csv(tmp_path / "out" / "jacobian.csv.gz")
    assert set(table["model"]) == {f"{foreign}:make"} and set(table["data_seed"]) == {10_000, 10_001}
    assert (tmp_path / "out" / "plots" / "layer_exponents.png").exists() and "theory" not in result.stderr
    model = importlib.import_module(foreign).make()
    for seed in (0, 1):
        tokens = nl.data.text_batch(batch=1, tokens=4, seed=10_000 + seed, path="book.txt")[0]
        for layer, block in enumerate(model.blocks):
            x = model.embedding(tokens) if layer == 0 else model.blocks[0](model.embedding(tokens))
            rows = table[(table["quantity"] == "singular_value") & (table["layer"] == layer)]
            value = float(rows.loc[rows["data_seed"] == 10_000 + seed, "value"].iloc[0])
            assert value == pytest.approx(nl.jacobian.spectral_norm(block, x.detach()), rel=1e-6)


def test_parts_and_images_of_a_model_of_somebody_elses(foreign: str, tmp_path: Path) -> None:
    result = jacobian(
        f"{foreign}:make --tokens 4 --full --out {tmp_path / 'out'}", "--part", "block 2", "--part", "final norm"
    )
    assert result.exit_code == 0 and "32 × 32" in result.stdout, result.stderr
    assert (tmp_path / "out" / "plots" / "final_norm_token_3.png").exists()


def test_what_is_not_finite_is_said(foreign: str) -> None:
    result = jacobian(f"{foreign}:broken --tokens 4")
    assert result.exit_code == 0 and result.stdout.count("not finite") == 5
    named = jacobian(f"{foreign}:broken --tokens 4", "--part", "block 2")
    assert (named.exit_code, named.stderr.strip().splitlines()[-1]) == (
        1,
        "Error: block 2: its Jacobian has entries that are not finite, and so no singular values",
    )


def test_a_saved_spec_has_weights_of_every_seed_and_its_theory(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(nl.ModelSpec(depth=2, width=8, heads=2).to_json())
    result = jacobian(f"{path} --tokens 4 --seeds 2 --quantity apjn --json")
    found = json.loads(result.stdout)
    assert {row["model_seed"] for row in found["rows"]} == {0, 1} and "APJN to L" in result.stderr
    assert {row["data_seed"] for row in found["theory"] if row["quantity"] == "apjn"} == {10_000, 10_001}


def test_a_model_that_memory_does_not_hold_is_refused(foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    result = jacobian(f"{foreign}:make --tokens 4")
    assert result.exit_code == 1 and "GB in float64 and 0.0 GB of memory are free: give a smaller" in result.stderr


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        ("nowhere", 1, "there is no model 'nowhere'"),
        ("nowhere:make", 1, "cannot be imported"),
        ("nowhere --depth 3", 2, "--depth is of models of the zoo: leave it out, or MODEL"),
        ("nowhere --placements pre,post", 2, "--placement is of models of the zoo"),
    ],
)
def test_models_that_are_none_are_one_sentence(line: str, code: int, sentence: str) -> None:
    result = jacobian(line)
    assert result.exit_code == code and sentence in result.stderr


def test_a_place_that_is_taken_is_refused_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("normlab.jacobian.measure", None)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "inspection.json").write_text("{}")
    for place, says in ((tmp_path / "file", "File exists"), (tmp_path, "holds an inspection (inspection.json)")):
        result = CliRunner().invoke(main, ["jacobian", "--depth", "1", "--width", "8", "--out", str(place)])
        assert result.exit_code == 1 and says in result.stderr and "choose another place with --out" in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_replaced_is_said(tmp_path: Path) -> None:
    line = ["jacobian", "--depth", "1", "--width", "8", "--tokens", "2", "--quantity", "apjn", "--out", str(tmp_path)]
    said = [CliRunner().invoke(main, line).stderr for _ in range(2)]
    assert ["holds Jacobians already, which this one replaces" in text for text in said] == [False, True]
