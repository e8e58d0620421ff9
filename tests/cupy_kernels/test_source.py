"""The text that is compiled."""

import re
import subprocess
import sys

import pytest

from normlab import NormlabError
from normlab.cupy_kernels import FUNCTIONS, KernelSpec, every_kernel, pack, parameters, render

SPEC = KernelSpec("norm_forward", "bf16", "f32", vec=8, per=4, team=128, statistic="layer", add=True)


def test_a_symbol_says_what_it_is() -> None:
    assert SPEC.symbol == "normlab_norm_forward_layer_add_bf16_f32_v8_p4_t128"


def test_the_wrapper_takes_the_parameters_in_order() -> None:
    taken = re.search(rf"{SPEC.symbol}\((.*?)\)", render([SPEC]), re.DOTALL)
    assert taken is not None
    assert [each.split()[-1] for each in taken[1].split(",")] == [each.name for each in parameters(SPEC)]


def test_a_variant_lacks_what_it_has_not() -> None:
    plain = KernelSpec("norm_forward", "f32", "f32", 4, 1, 32, "rms")
    gone = {each.name for each in FUNCTIONS["norm_forward"].parameters} - {each.name for each in parameters(plain)}
    assert gone == {"residual", "z", "residual_stride", "shifts"}


def test_each_file_is_included_once() -> None:
    lines = [line for line in render([SPEC, SPEC]).splitlines() if line.startswith("#line")]
    assert len(lines) == len(set(lines)) == 5


def test_no_template_is_left_in_a_signature() -> None:
    wrappers = render([SPEC]).split('#line 1 "wrappers"')[1]
    assert not re.search(r"\b[TW]\b|\{[A-Za-z_]+\}", wrappers)


def test_rows_are_never_counted_in_32_bits() -> None:
    for function in FUNCTIONS.values():
        assert all(
            each.type == "long long" for each in function.parameters if re.search("rows|stride|group", each.name)
        )


def test_arguments_have_the_types_of_the_signature() -> None:
    values = {each.name: 1 for each in parameters(SPEC)} | {"eps": 1e-5, "gain": None}
    packed = dict(zip([each.name for each in parameters(SPEC)], pack(parameters(SPEC), values), strict=True))
    assert [packed[name].dtype.str for name in ("x", "rows", "d", "eps")] == ["<u8", "<i8", "<i4", "<f4"]
    assert packed["gain"] == 0


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(NormlabError, match="the kernel's argument residual is missing: give"):
        pack(parameters(SPEC), {"x": 16})


def test_cupy_is_not_imported() -> None:
    code = "import sys, normlab.cupy_kernels; sys.exit('cupy' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_nothing_is_added_atomically() -> None:
    """Every sum has one order, so the same input gives the same bits."""
    specs = {spec.function: spec for spec in every_kernel()}.values()
    assert "atomic" not in re.sub(r"//.*", "", render(specs))
