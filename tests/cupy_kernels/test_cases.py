"""The cases that tools/gpu_check runs on a device, run by the emulator first."""

import pytest
from cuemu.cases import CASES, SMALL
from cuemu.harness import Emulator

from normlab.cupy_kernels import DEVICES

pytestmark = pytest.mark.needs("compiler")


@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str) -> None:
    CASES[name](Emulator(), DEVICES["sm_90"])


def test_the_small_ones_are_of_every_kind() -> None:
    assert {name.split()[0] for name in SMALL} == {name.split()[0] for name in CASES}
