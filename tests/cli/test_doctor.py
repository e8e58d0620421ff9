import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from normlab.cli import checkup, main
from normlab.cupy_kernels import every_kernel


def doctor(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words], prog_name="normlab", catch_exceptions=False)


def test_a_sound_machine(tmp_path: Path) -> None:
    result = doctor("--json", "--out", str(tmp_path / "doctor.json"))
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["problems"] == []
    assert found["device"] == "cpu" and found["cores"] >= 1 and found["torch_threads"] >= 1
    assert json.loads((tmp_path / "doctor.json").read_text()) == found


def test_every_dependency_is_looked_at() -> None:
    said = doctor().stdout
    assert all(name in said for name in ("click", "torch", "pandas", "Extra parquet", "Device: cpu", "Threads:"))


def test_which_kernels_are_used_and_why() -> None:
    found = json.loads(doctor("--json").stdout)["kernels"]
    assert found["backend"] in ("cupy", "torch") and found["library"] == "normlab"
    assert found["kernels"] == len(every_kernel())
    assert f"Kernels on CUDA tensors: {found['backend']} ({found['why']})" in doctor().stdout


@pytest.mark.needs("compiler")
def test_the_compiled_sums_are_said_to_be_used() -> None:
    assert "Sums of recorded tensors: compiled (built with a C++ compiler)" in doctor().stdout


def test_why_the_compiled_sums_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "_native.so"
    broken.write_bytes(b"no library")
    for spec, why in (
        (None, "the package was built without a C++ compiler: install one"),
        (SimpleNamespace(origin=str(broken)), f"{broken} cannot be loaded ("),
    ):
        monkeypatch.setattr(checkup, "find_spec", lambda name, spec=spec: spec)
        assert f"Sums of recorded tensors: torch, at a few times the cost; {why}" in doctor().stdout
        assert checkup.examine()["sums"]["compiled"] is False


@pytest.mark.parametrize(
    ("requirement", "remedy"),
    [
        ("no-such-package>=1.0", "no-such-package is not installed: run pip install 'no-such-package>=1.0'"),
        ("numpy>=999.0", "is older than 999.0: run pip install 'numpy>=999.0'"),
    ],
)
def test_what_is_broken_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, requirement: str, remedy: str
) -> None:
    monkeypatch.setattr(checkup, "_requirements", lambda: [requirement])
    result = doctor()
    assert result.exit_code == 1 and remedy in result.stderr


def test_a_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    assert "scipy cannot be imported (ModuleNotFoundError" in checkup._package("scipy>=1.13").problem


def test_a_missing_extra_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_requirements", lambda: ["numpy>=2.0", 'no-such-package>=1; extra == "parquet"'])
    result = doctor()
    assert result.exit_code == 0
    assert "Extra parquet: not here (no-such-package): pip install 'normlab[parquet]'" in result.stdout
