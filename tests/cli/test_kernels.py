import json
from pathlib import Path

from click.testing import CliRunner, Result

from normlab.cli import main
from normlab.cupy_kernels import every_kernel


def kernels(*words: str) -> Result:
    return CliRunner().invoke(main, ["kernels", *words], prog_name="normlab", catch_exceptions=False)


def test_the_table_is_shown() -> None:
    result = kernels("list")
    assert result.exit_code == 0 and "norm_forward" in result.stdout and "shared memory" in result.stdout


def test_the_table_for_another_architecture(tmp_path: Path) -> None:
    result = kernels("list", "--json", "--arch", "sm_86", "--out", str(tmp_path / "table.json"))
    found = json.loads(result.stdout)
    assert found == json.loads((tmp_path / "table.json").read_text())
    assert found["arch"] == "sm_86" and found["kernels"] == len(every_kernel())


def test_an_architecture_that_is_not_known() -> None:
    result = kernels("list", "--arch", "sm_91")
    assert result.exit_code != 0 and "did you mean 'sm_90'" in result.stderr


def test_export(tmp_path: Path) -> None:
    result = kernels("export", str(tmp_path / "kernels"), "--json")
    names = json.loads(result.stdout)["kernels"]
    assert len(names) == len(every_kernel()) == len(list((tmp_path / "kernels").glob("*.cu")))
    assert len(list((tmp_path / "kernels").glob("*.json"))) == len(names)
