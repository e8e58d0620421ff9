import pytest

from normlab.cli.progress import Watch, computing, duration
from normlab.sweeps import Progress


def test_no_time_left_is_shown_until_every_worker_has_finished_a_cell() -> None:
    shown: list[Progress] = []
    heard = Watch(shown.append, workers=3)
    for done in range(8, 12):
        heard(Progress(done, 20, 0, float(done), 60.0, "cell"))
    assert [progress.remaining_seconds for progress in shown] == [None, None, 60.0, 60.0]
    assert (heard.done, heard.total) == (11, 20)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_computations_are_counted_now_and_then_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        show = computing(quiet=quiet)
        for done in (1, 2, 3):
            show(done, 3, "moments")
    show = computing(quiet=False, patience=0.0)
    show(1, 3, "moments")
    end, first = capsys.readouterr().err.splitlines()
    assert (end, first) == ("3 of 3 computations, the last one moments", "1 of 3 computations, the last one moments")
