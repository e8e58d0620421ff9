import importlib
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import normlab

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
MAPPED = SETUPTOOLS["package-dir"]
DATA = (".cpp", ".css", ".cu", ".cuh", ".j2", ".json", ".pyi", ".typed")
COMPILED = tuple(EXTENSION_SUFFIXES)


def folders() -> dict[str, Path]:
    """Every folder of the checkout that is a package, by the name under which it is installed."""
    roots = {"normlab": ROOT / "normlab"} | {name: ROOT / folder for name, folder in MAPPED.items()}
    return {
        ".".join([name, *init.parent.relative_to(root).parts]): init.parent
        for name, root in roots.items()
        for init in root.rglob("__init__.py")
    }


def test_the_package_list_is_the_folders() -> None:
    assert SETUPTOOLS["packages"] == sorted(folders())


def test_the_links_lead_to_the_mapped_folders() -> None:
    for name, folder in MAPPED.items():
        assert (ROOT / name.replace(".", "/")).resolve() == ROOT / folder


def test_the_constraints_pin_every_dependency() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all("==" in pin and "://" not in pin for pin in pins)
    pinned = {pin.split("==")[0].lower() for pin in pins}
    wanted = [*PROJECT["project"]["dependencies"], *sum(PROJECT["project"]["optional-dependencies"].values(), [])]
    assert {name.split(">=")[0].lower() for name in wanted if not name.startswith("normlab")} <= pinned


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: a stale build folder of the checkout must not enter."""
    copy = tmp_path_factory.mktemp("source") / "normlab"
    leave_out = shutil.ignore_patterns(
        ".*", "build", "dist", "runs", "node_modules", "*.egg-info", "*.so", "__pycache__", "tests"
    )
    shutil.copytree(ROOT, copy, symlinks=True, ignore=leave_out)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(copy / "dist"), str(copy)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next((copy / "dist").glob("*.whl")))


def test_the_wheel_has_every_module_and_all_data_once(wheel: zipfile.ZipFile) -> None:
    expected = {
        f"{name.replace('.', '/')}/{path.relative_to(folder).as_posix()}"
        for name, folder in folders().items()
        for path in folder.rglob("*")
        if (path.suffix == ".py" and path.parent == folder) or path.suffix in DATA
    }
    found = [name for name in wheel.namelist() if ".dist-info/" not in name]
    modules = [name for name in found if not name.endswith(COMPILED)]
    assert sorted(modules) == sorted(expected)


@pytest.mark.needs("native")
def test_the_wheel_has_the_compiled_sums(wheel: zipfile.ZipFile) -> None:
    compiled = [name for name in wheel.namelist() if name.endswith(COMPILED)]
    assert [name.split(".")[0] for name in compiled] == ["normlab/recording/_native"]
    assert importlib.import_module("normlab.recording._native")


def test_the_wheel_holds_nothing_global(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"normlab", f"normlab-{normlab.__version__}.dist-info"}


def test_the_command_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    scripts = wheel.read(f"normlab-{normlab.__version__}.dist-info/entry_points.txt").decode()
    assert "normlab = normlab.cli:main" in scripts


def test_no_module_needs_an_extra(tmp_path: Path) -> None:
    extras = ("pyarrow", "dask", "distributed", "IPython", "ipykernel", "nbclient", "nbformat", "cupy", "transformers",
              "seaborn", "selenium", "hypothesis", "pytest", "beartype")  # fmt: skip
    code = f"""
import importlib, pkgutil, sys
for name in {extras}:
    sys.modules[name] = None
import normlab
for module in pkgutil.walk_packages(normlab.__path__, "normlab."):
    if module.name != "normlab.__main__":
        importlib.import_module(module.name)
for name in normlab.__all__:
    getattr(normlab, name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_folders_of_the_user_do_not_interfere(tmp_path: Path) -> None:
    for name in ("cli", "reports", "cupy_kernels"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('a folder of the user was imported')")
    done = subprocess.run(
        [sys.executable, "-m", "normlab", "doctor", "--json"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
