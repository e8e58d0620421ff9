"""Specs of well-known models.

``nl.presets.spec("gpt2")`` is the published model at its published size; fields can be changed at the same time,
as in ``nl.presets.spec("gpt2", depth=4, width=128, heads=4)``. What a spec cannot say about a model is listed in
:attr:`Preset.differs`; nothing else differs: with the weights of the reference implementation copied over, the
forward passes agree.
"""

from dataclasses import dataclass, replace
from typing import Any

from normlab.errors import SpecError, suggest
from normlab.registry import Registry
from normlab.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A published model.

    Attributes:
        name: what :func:`spec` is given.
        model: which model and size it is.
        source: where it was published.
        spec: the model, as far as a spec can say it.
        differs: what the model has and the spec has not, a clause each.
    """

    name: str
    model: str
    source: str
    spec: ModelSpec
    differs: tuple[str, ...] = ()


PRESETS: Registry[Preset] = Registry("preset")


def spec(name: str, **changes: Any) -> ModelSpec:
    """Return the spec of the preset ``name``, with the fields in ``changes`` replaced.

    Raises:
        UnknownNameError: there is no such preset.
        SpecError: a field that a spec does not have, or values that do not describe a model.
    """
    base = PRESETS[name].spec
    for field in changes:
        if field not in ModelSpec.__dataclass_fields__:
            names = list(ModelSpec.__dataclass_fields__)
            raise SpecError(
                f"a model spec has no field {field!r}: its fields are {', '.join(names)}{suggest(field, names)}"
            )
    return replace(base, **changes)


_CUT_OFF = "weights start with a normal distribution that is cut off at {} standard deviations"
_UNPUBLISHED = "its initialisation was not published: 0.02 is the reference implementation's"
_DROPOUT = "dropout 0.1, also on embeddings and attention weights (dropout=0.1 covers the branches)"

for _preset in (
    Preset(
        name="gpt2",
        model="GPT-2, 124 million parameters",
        source="Radford et al. 2019",
        spec=ModelSpec(
            depth=12,
            width=768,
            heads=12,
            vocab=50257,
            context=1024,
            placement="pre",
            activation="gelu_tanh",
            init="gpt2-scaled",
            bias=True,
            position="learned",
            tie_embeddings=True,
        ),
        differs=(_DROPOUT,),
    ),
    Preset(
        name="bert",
        model="BERT base, 110 million parameters",
        source="Devlin et al. 2018, arXiv 1810.04805",
        spec=ModelSpec(
            kind="encoder",
            depth=12,
            width=768,
            heads=12,
            vocab=30522,
            context=512,
            placement="post",
            norm_eps=1e-12,
            embed_norm=True,
            init="gpt2",
            bias=True,
            position="learned",
            tie_embeddings=True,
        ),
        differs=(
            "a second embedding says which of two segments a token is in (with one segment: part of the positions)",
            "its head has a dense layer, GELU, a LayerNorm and an output bias before the tied matrix",
            "a pooler reads the first token",
            _CUT_OFF.format("two"),
            _DROPOUT,
        ),
    ),
    Preset(
        name="gpt-neox",
        model="GPT-NeoX, 20 billion parameters",
        source="Black et al. 2022, arXiv 2204.06745",
        spec=ModelSpec(
            depth=44,
            width=6144,
            heads=64,
            vocab=50432,
            context=2048,
            placement="pre",
            activation="gelu_tanh",
            init="small-init",
            embed_std=(2 / (5 * 6144)) ** 0.5,
            bias=True,
            position="rope",
            parallel=True,
        ),
        differs=(
            "positions rotate the first quarter of a head's features only",
            "W_o and W_down start at 2/(L √d)",
        ),
    ),
    Preset(
        name="llama",
        model="LLaMA, 7 billion parameters",
        source="Touvron et al. 2023, arXiv 2302.13971",
        spec=ModelSpec(
            depth=32,
            width=4096,
            heads=32,
            mlp_width=11008,
            vocab=32000,
            context=2048,
            placement="pre",
            norm="rmsnorm",
            norm_eps=1e-6,
            norm_options=(("cast", "before"),),
            activation="swiglu",
            init="gpt2",
            position="rope",
        ),
        differs=(_UNPUBLISHED,),
    ),
    Preset(
        name="qwen3",
        model="Qwen3, 0.6 billion parameters",
        source="Yang et al. 2025, arXiv 2505.09388",
        spec=ModelSpec(
            depth=28,
            width=1024,
            heads=16,
            kv_heads=8,
            head_width=128,
            mlp_width=3072,
            vocab=151936,
            context=40960,
            placement="pre",
            norm="rmsnorm",
            norm_eps=1e-6,
            norm_options=(("cast", "before"),),
            activation="swiglu",
            qk_norm="rmsnorm",
            init="gpt2",
            position="rope",
            tie_embeddings=True,
        ),
        differs=(
            "positions rotate with the base 1 000 000 in place of 10 000",
            _UNPUBLISHED,
        ),
    ),
    Preset(
        name="olmo2",
        model="OLMo 2, 7 billion parameters",
        source="OLMo team 2025, arXiv 2501.00656",
        spec=ModelSpec(
            depth=32,
            width=4096,
            heads=32,
            mlp_width=11008,
            vocab=100352,
            context=4096,
            placement="reordered",
            norm="rmsnorm",
            norm_eps=1e-6,
            activation="swiglu",
            qk_norm="rmsnorm-all",
            init="gpt2",
            position="rope",
        ),
        differs=("positions rotate with the base 500 000 in place of 10 000", _CUT_OFF.format("three")),
    ),
):
    PRESETS.register(_preset)
