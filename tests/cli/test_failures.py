import errno

import click
import pytest
from click.testing import CliRunner, Result

from normlab.cli.failures import CellsFailed, Command, Interrupted
from normlab.errors import DataError, NormlabError, RunError, SpecError, unknown_name


def run(error: BaseException) -> Result:
    @click.command(cls=Command)
    def command() -> None:
        raise error

    return CliRunner().invoke(command, [])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("depth is 0"), 2),
        (unknown_name("placement", "per", ["pre"]), 2),
        (DataError("empty text"), 1),
        (RunError("another schema"), 1),
        (NormlabError("anything"), 1),
        (OSError(errno.ENOSPC, "No space left on device"), 1),
        (CellsFailed("2 of 9"), 3),
        (Interrupted("saved"), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_end_has_its_exit_code_and_one_sentence(error: BaseException, code: int) -> None:
    result = run(error)
    assert result.exit_code == code
    assert "Traceback" not in result.output and result.stdout == ""
    assert len(result.stderr.strip().splitlines()[-1]) > 10


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "disk is full"), (errno.EACCES, "another place"), (errno.EROFS, "another place")],
)
def test_what_the_system_refused_is_named(number: int, remedy: str) -> None:
    said = run(OSError(number, "said", "/some/file")).stderr
    assert "/some/file" in said and remedy in said


def test_a_bug_keeps_its_traceback() -> None:
    assert isinstance(run(ZeroDivisionError()).exception, ZeroDivisionError)
