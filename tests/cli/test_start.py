import subprocess
import sys

import normlab

HEAVY = ("torch", "numpy", "pandas", "matplotlib", "scipy", "rich", "jinja2")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def heavy_after(code: str) -> str:
    return python("-c", f"import sys\n{code}\nprint(*(set({HEAVY}) & set(sys.modules)))").stdout.strip()


def test_help_imports_nothing_heavy() -> None:
    assert heavy_after("from normlab.cli import main; main(['--help'], standalone_mode=False)").endswith("used.")


def test_help_of_every_command_imports_nothing_heavy() -> None:
    code = """
from normlab.cli import main
for words in (['sweep'], ['report'], ['plot'], ['claims'], ['claims', 'list'], ['claims', 'judge'], ['doctor']):
    main([*words, '-h'], standalone_mode=False)
"""
    assert heavy_after(code).splitlines()[-1].startswith("  -h, --help")


def test_import_normlab_imports_nothing_heavy() -> None:
    assert heavy_after("import normlab; dir(normlab)") == ""


def test_module_and_version() -> None:
    assert python("-m", "normlab", "--version").stdout == f"normlab {normlab.__version__}\n"


def test_a_bare_command_is_a_usage_error() -> None:
    assert python("-m", "normlab").returncode == 2
