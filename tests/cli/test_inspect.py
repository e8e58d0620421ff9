"""``normlab inspect``: architectures from their configuration alone."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from normlab.cli import main

pytestmark = [
    pytest.mark.needs("transformers"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]

LLAMA_3_8B = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=4096, intermediate_size=14336,
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, vocab_size=128256, rms_norm_eps=1e-5,
)  # fmt: skip


def _file(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return path


def test_llama_3_8b_has_65_norms_and_needs_no_weights(tmp_path: Path) -> None:
    path = _file(tmp_path, **LLAMA_3_8B)
    result = CliRunner().invoke(main, ["inspect", "--architecture", str(path), "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["norm_count"], found["placement"], found["stacks"][0]["depth"]) == (65, "pre", 32)
    assert "x ← x + Attn(RMS(x))    blocks 1-32" in result.stderr


@pytest.mark.parametrize(("kind", "depth"), [("deepseek_v3", 4), ("t5", 2)])
def test_a_folder_with_experts_or_two_stacks(tmp_path: Path, kind: str, depth: int) -> None:
    _file(tmp_path, model_type=kind, num_hidden_layers=depth)
    result = CliRunner().invoke(main, ["inspect", "--architecture", str(tmp_path)])
    assert result.exit_code == 0 and "placement pre" in result.stdout


def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", "--architecture", str(_file(tmp_path, model_type="nothing"))])
    assert result.exit_code == 1 and "config.json" in result.stderr
