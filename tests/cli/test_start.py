import subprocess
import sys

from click.testing import CliRunner

import normlab
from normlab.cli import main

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


def test_help_shows_no_option_that_does_nothing() -> None:
    runner = CliRunner()
    for words, hidden in ((["doctor"], ("--seed", "--config")), (["plot"], ("--seed",)), (["theory"], ("--seed",))):
        said = runner.invoke(main, [*words, "-h"]).stdout
        assert not [option for option in hidden if option in said] and "--json" in said
    for words, shown in ((["sweep"], ("--seed", "--config")), (["plot"], ("--config",))):
        assert all(option in runner.invoke(main, [*words, "-h"]).stdout for option in shown)
    assert runner.invoke(main, ["claims", "show", "--seed", "3", "preln-grad-shrinks-with-depth"]).exit_code == 0
