"""The check that is run on a GPU, run with the emulator in its place."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def check(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/gpu_check.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_without_a_gpu_one_sentence_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    done = check("--out", str(tmp_path / "found.json"))
    assert done.returncode == 1 and done.stderr.startswith("The kernels cannot be checked here: ")
    assert done.stderr.count("\n") == 1 and not any(tmp_path.iterdir())


@pytest.mark.needs("compiler")
def test_a_dry_run_resumes(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = check("--dry-run", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert set(found) == {"device", "cases", "bench", "sanitizer"} and set(found["cases"].values()) == {""}
    assert {each["operation"] for each in found["bench"]["timings"]} == {"forward", "backward", "add", "statistics"}
    assert "CUDA kernels on dry-run" in out.with_suffix(".html").read_text()
    case = next(iter(found["cases"]))
    found["cases"][case] = "it <failed> before"
    out.write_text(json.dumps(found))
    again = check("--dry-run", "--out", str(out))
    # What is there is not done again, and a failure stays one.
    assert again.returncode == 1 and json.loads(out.read_text()) == found
    assert "it &lt;failed&gt; before" in out.with_suffix(".html").read_text()
