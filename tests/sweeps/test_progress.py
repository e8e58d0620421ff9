"""The time left."""

from normlab.sweeps.progress import remaining_seconds


def test_the_rest_goes_at_the_same_rate():
    assert remaining_seconds(10.0, 4.0, 6.0) == 15.0
    assert remaining_seconds(10.0, 4.0, 0.0) == 0.0
    assert remaining_seconds(0.0, 0.0, 6.0) is None
