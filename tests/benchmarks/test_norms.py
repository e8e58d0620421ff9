import json

import numpy as np
import pytest

from normlab.benchmarks import bench_norms
from normlab.benchmarks.norms import least_bytes
from normlab.errors import NormlabError, UnknownNameError

WAYS = ("numpy", "eager", "fused")


@pytest.fixture(scope="module")
def found():
    return bench_norms([(2, 16), (4, 32)], ways=WAYS, rounds=25, shortest=0, copied_megabytes=0.1)


def test_every_norm_way_and_pass_of_every_size_has_a_time(found):
    times = found.times
    keys = times[["rows", "width", "pass", "norm", "way"]].apply(tuple, axis=1)
    assert len(times) == len(set(keys)) == 2 * 2 * (2 * len(WAYS) + 1)
    assert (times["median_seconds"] > 0).all()
    speed = times["bytes"] / times["median_seconds"]
    np.testing.assert_allclose(times["gb_per_s"], speed / 1e9)
    np.testing.assert_allclose(times["share_of_machine"], speed / (1e9 * found.settings["copy_gb_per_s"]))
    copies = times[times["way"] == "copy"]
    assert (copies["share_of_copy"] == 1).all()


def test_ratios_are_those_of_the_medians_and_lie_in_their_intervals(found):
    medians = found.times[found.times["way"] != "copy"].set_index(["rows", "width", "pass", "norm", "way"])
    medians = medians["median_seconds"]
    assert len(found.ratios) == 4 * (len(WAYS) + 2 * (len(WAYS) - 1))
    for row in found.ratios.to_dict("records"):
        at = (row["rows"], row["width"], row["pass"])
        wanted = medians[(*at, *row["first"].split("/"))] / medians[(*at, *row["second"].split("/"))]
        assert row["ratio"] == pytest.approx(wanted)
        assert row["low"] <= row["ratio"] <= row["high"] and (row["level"], row["rounds"]) == (0.95, 25)


def test_settings_name_the_threads_and_json_holds_everything(found):
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["settings"]["threads"] == 1 and content["settings"]["dtype"] == "float32"
    assert (len(content["times"]), len(content["ratios"])) == (len(found.times), len(found.ratios))


def test_bytes_are_what_must_be_read_and_written():
    x, parameter = 3 * 8 * 4, 8 * 4
    assert least_bytes("rmsnorm", 3, 8, "forward", 4) == 2 * x + parameter
    assert least_bytes("layernorm", 3, 8, "forward", 4) == 2 * x + 2 * parameter
    # Beside forward: x, dy, dx; the gain, and the gradients of gain and bias.
    assert least_bytes("layernorm", 3, 8, "forward+backward", 4) == 5 * x + 5 * parameter


def test_what_cannot_run_here_is_named():
    found = bench_norms([(2, 16)], ways=WAYS, passes=["forward"], rounds=25, dtype="bfloat16", shortest=0,
                        copied_megabytes=0.1)  # fmt: skip
    assert set(found.missing) == {"numpy"} and set(found.times["way"]) == {"copy", "eager", "fused"}


@pytest.mark.parametrize("given, error, match", [
    ({"rounds": 24}, NormlabError, "24 rounds"),
    ({"sizes": [(0, 4)]}, NormlabError, "sizes"),
    ({"ways": ["numba"]}, UnknownNameError, "unknown way"),
    ({"passes": ["backward"]}, UnknownNameError, "did you mean 'forward"),
    ({"dtype": "float64"}, UnknownNameError, "unknown dtype"),
])  # fmt: skip
def test_what_cannot_be_timed_is_refused(given, error, match):
    with pytest.raises(error, match=match):
        bench_norms(**({"sizes": [(2, 16)]} | given))
