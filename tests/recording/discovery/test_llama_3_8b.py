"""A model of eight billion parameters is read from its configuration alone, in no memory to speak of."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.needs("transformers"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc"),
]

LLAMA_3_8B = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=4096, intermediate_size=14336,
    num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8, vocab_size=128256, rms_norm_eps=1e-5,
)  # fmt: skip
TINY = LLAMA_3_8B | dict(
    hidden_size=64, intermediate_size=64, num_attention_heads=2, num_hidden_layers=1, num_key_value_heads=1,
    vocab_size=64,
)  # fmt: skip
RUN = """
import sys
from pathlib import Path
from normlab.cli import main
main(["inspect", "--architecture", sys.argv[1], "--json"], standalone_mode=False)
# Of this program alone: what getrusage gives begins with the memory of whoever started it.
(peak,) = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak, file=sys.stderr)
"""


def read(folder: Path, **config: Any) -> tuple[dict[str, Any], str, float]:
    """Return what the command says of a configuration, as data and in words, and its peak of memory in MB."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    ran = subprocess.run([sys.executable, "-c", RUN, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-400:]
    words, _, kilobytes = ran.stderr.rstrip().rpartition("\n")
    return json.loads(ran.stdout), words, int(kilobytes) / 1000


def test_llama_3_8b_has_65_norms_and_needs_no_memory(tmp_path: Path) -> None:
    _, _, least = read(tmp_path, **TINY)
    found, words, most = read(tmp_path, **LLAMA_3_8B)
    assert (found["norm_count"], found["placement"], found["stacks"][0]["depth"]) == (65, "pre", 32)
    assert "x ← x + Attn(RMS(x))    blocks 1-32" in words
    # One of its matrices alone, in 16 bits, would be 117 MB.
    assert most - least < 100, f"{most:.0f} MB, and {least:.0f} MB for one block of width 64"
