"""The registry of norms, and what is said about options that do not fit."""

import re

import pytest

from normlab import ModelSpec, build, register_norm
from normlab.errors import NormlabError, SpecError, UnknownNameError
from normlab.norms import NORMS, PROPERTIES, Norm
from normlab.norms.rmsnorm import RMSNorm


@pytest.fixture
def halved(monkeypatch: pytest.MonkeyPatch) -> Norm:
    monkeypatch.setattr(NORMS, "_entries", dict(NORMS.items()))
    return register_norm(Norm(name="halved", equation="x/2", source="", build=RMSNorm))


def test_a_norm_of_ones_own_is_known_by_its_name(halved: Norm) -> None:
    model = build(ModelSpec(depth=1, width=8, norm="halved", norm_options=(("gain", False),)))
    assert isinstance(model.stacks["decoder"].final_norm, RMSNorm)


def test_registering_twice(halved: Norm) -> None:
    register_norm(halved)
    other = Norm(name="halved", equation="x/3", source="", build=RMSNorm)
    with pytest.raises(NormlabError, match="norm 'halved' is registered already"):
        register_norm(other)
    register_norm(other, replace=True)
    assert NORMS["halved"].equation == "x/3"


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown property of a norm 'per-tokens'.*did you mean 'per-token'"):
        Norm(name="x", equation="x", source="", build=RMSNorm, properties=frozenset({"per-tokens"}))


@pytest.mark.parametrize("name", NORMS)
def test_an_entry_is_complete(name: str) -> None:
    norm = NORMS[name]
    assert norm.equation
    assert re.search(r"\d{4}", norm.source) or name == "identity"
    assert norm.properties <= set(PROPERTIES)
    assert norm.build.__doc__.startswith("y = ")
    assert all(f"{option}:" in norm.build.__doc__ for option in norm.options)


@pytest.mark.parametrize(
    ("norm", "options", "sentence"),
    [
        ("rmsnorm", {"bias": False}, "norm 'rmsnorm' has no option 'bias': its options are gain, initial_gain, cast"),
        ("layernorm", {"gian": False}, "did you mean 'gain'?"),
        ("layernorm", {"gain": "off"}, "norm 'layernorm' got gain='off': give True or False, such as True"),
        ("dyt", {"alpha": True}, "norm 'dyt' got alpha=True: give a number, such as 0.5"),
        ("groupnorm", {"groups": 2.5}, "norm 'groupnorm' got groups=2.5: give a whole number, such as 4"),
        ("groupnorm", {"groups": 5}, "cannot split 8 features into 5 groups: give a divisor of 8"),
        ("rmsnorm", {"cast": "never"}, "cast is 'never': choose 'before' or 'after'"),
        ("l2norm", {"initial_gain": 0.5}, "initial_gain is 0.5 and the norm has no gain"),
        ("identity", {"gain": True}, "norm 'identity' has no option 'gain': its options are none"),
    ],
)
def test_options_that_do_not_fit(norm: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(SpecError, match=re.escape(sentence)):
        ModelSpec(depth=1, width=8, norm=norm, norm_options=tuple(options.items()))


def test_a_whole_number_is_a_number() -> None:
    ModelSpec(depth=1, width=8, norm="dyt", norm_options=(("alpha", 1),))


def test_an_unknown_norm() -> None:
    with pytest.raises(UnknownNameError, match="unknown norm 'rmsnrom'.*did you mean 'rmsnorm'"):
        ModelSpec(depth=1, width=8, norm="rmsnrom")
