import pytest
import torch
from click.testing import CliRunner

import normlab as nl
from normlab.benchmarks.kernels import Timing, bench_kernels, slower
from normlab.cli import main
from normlab.norms import backend


def timing(way: str, seconds: float, d: int = 64) -> Timing:
    return Timing("forward", way, 8, d, "float32", seconds, 0.0, 0.0)


def test_every_size_at_which_another_way_is_faster_is_named() -> None:
    timings = [timing("normlab", 2.0), timing("torch", 1.0), timing("normlab", 1.0, 32), timing("torch", 3.0, 32)]
    assert slower(timings) == ["forward 8x64 float32: torch is 2.00 times as fast"]


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators' implementations for CPU tensors stand for those of a GPU."""

    class Operators:
        norm, add_norm = torch.ops.normlab.norm, torch.ops.normlab.add_norm
        token_moments = staticmethod(lambda x, mask: x.double().var(-1))

    for name, value in (("OPERATORS", Operators), ("DEVICE", "cpu"), ("MISSING", "")):
        monkeypatch.setattr(backend, name, value)


@pytest.mark.usefixtures("on_a_cpu")
def test_bandwidth_is_bytes_over_time() -> None:
    found = bench_kernels(((8, 64),), (torch.float32,), rounds=3, compiled=False)
    assert {each["operation"] for each in found["timings"]} == {"forward", "backward", "add", "statistics"}
    for each in found["timings"]:
        tensors = {"forward": 2, "backward": 3, "add": 4, "statistics": 1}[each["operation"]]
        assert each["bandwidth"] * each["seconds"] == pytest.approx(tensors * 8 * 64 * 4)
        assert each["share_of_copy"] * found["copy_bandwidth"] == pytest.approx(each["bandwidth"])


def test_without_a_gpu_one_sentence_says_so() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(nl.NormlabError, match="the CUDA kernels cannot be timed here: "):
            bench_kernels()
        result = CliRunner().invoke(main, ["bench", "kernels"], prog_name="normlab")
        assert result.exit_code == 1 and result.stderr.startswith("Error: the CUDA kernels cannot be timed here: ")
