"""Presets as data."""

import pytest

from normlab import ModelSpec, presets
from normlab.errors import SpecError, UnknownNameError
from normlab.spec.describe import parameter_count

#: Parameters of the published models. BERT's has a pooler (768² + 768) and a second segment (2 · 768) besides.
PUBLISHED = {
    "gpt2": 124_439_808,
    "bert": 109_482_240 - 768**2 - 768 - 2 * 768,
    "gpt-neox": 20_554_567_680,
    "llama": 6_738_415_616,
    "qwen3": 596_049_920,
    "olmo2": 7_298_617_344,
}


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_has_as_many_parameters_as_the_published_model(name: str) -> None:
    assert parameter_count(presets.spec(name)) == PUBLISHED[name]


@pytest.mark.parametrize("name", presets.PRESETS)
def test_a_preset_goes_to_json_and_back(name: str) -> None:
    assert ModelSpec.from_json(presets.spec(name).to_json()) == presets.spec(name)


def test_fields_can_be_changed() -> None:
    small = presets.spec("qwen3", depth=2, width=64)
    assert (small.depth, small.width, small.qk_norm) == (2, 64, "rmsnorm")
    assert presets.spec("qwen3").depth == 28


def test_what_does_not_exist() -> None:
    with pytest.raises(UnknownNameError, match="unknown preset 'gtp2'.*did you mean 'gpt2'"):
        presets.spec("gtp2")
    with pytest.raises(SpecError, match="has no field 'dpeth'.*did you mean 'depth'"):
        presets.spec("gpt2", dpeth=2)
