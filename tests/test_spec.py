import copy
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import normlab as nl
from normlab.activations import ACTIVATIONS
from normlab.errors import SpecError, UnknownNameError
from normlab.inits import INITS
from normlab.placements import PLACEMENTS
from normlab.spec import KINDS, POSITIONS, ModelSpec
from normlab.spec.describe import parameter_count
from normlab.table import CELL_COLUMNS

SPECS = st.builds(
    lambda **fields: fields,
    depth=st.integers(1, 9),
    width=st.sampled_from([8, 16]),
    placement=st.sampled_from([name for name in PLACEMENTS if name != "res-post-norm"]),
    norm=st.sampled_from(["layernorm", "rmsnorm", "identity"]),
    norm_eps=st.sampled_from([0.0, 1e-6, 1]),
    final_norm=st.sampled_from([None, True, False]),
    activation=st.sampled_from(list(ACTIVATIONS)),
    init=st.sampled_from(list(INITS)),
    tie_embeddings=st.booleans(),
    kind=st.sampled_from(KINDS),
    position=st.sampled_from(POSITIONS),
    bias=st.booleans(),
    dropout=st.sampled_from([0.0, 0.1]),
)


@given(SPECS)
@settings(max_examples=60, deadline=None)
def test_a_spec_goes_to_json_and_back(fields: dict[str, Any]) -> None:
    spec = ModelSpec(**fields)
    again = ModelSpec.from_json(spec.to_json())
    assert again == spec and again.id == spec.id and hash(again) == hash(spec)
    assert set(json.loads(spec.to_json())) <= set(fields) | {"depth", "width"}


@given(SPECS)
@settings(max_examples=25, deadline=None)
def test_the_parameter_count_is_the_models(fields: dict[str, Any]) -> None:
    spec = ModelSpec(**fields, qk_norm="rmsnorm")
    assert parameter_count(spec) == sum(parameter.numel() for parameter in nl.build(spec).parameters())


def test_options_and_placements_of_every_form_are_one_spec() -> None:
    pairs = ModelSpec(depth=2, width=8, placement="mix-ln", placement_options=(("alpha", 0.5),))
    assert ModelSpec(depth=2, width=8, placement="mix-ln", placement_options={"alpha": 0.5}) == pairs
    assert ModelSpec.from_dict(pairs.to_dict()) == pairs
    assert ModelSpec(depth=2, width=8, placement=["pre", "post"]).placement == ("pre", "post")


def test_equal_numbers_have_one_id() -> None:
    ids = {
        ModelSpec(depth=2, width=8, norm_eps=1, placement="mix-ln", placement_options={"alpha": one}).id
        for one in (1, 1.0)
    }
    assert len(ids) == 1 and ids != {ModelSpec(depth=2, width=8, norm_eps=1.0).id}


def test_the_id_hashes_what_differs_from_the_defaults() -> None:
    assert ModelSpec(depth=2, width=8).id == ModelSpec(depth=2, width=8, norm="layernorm", heads=4).id
    different = [
        {},
        {"depth": 3},
        {"width": 16},
        {"norm": "rmsnorm"},
        {"heads": 2},
        {"final_norm": True},
        {"placement": ("pre", "pre")},
    ]
    assert len({ModelSpec(**{"depth": 2, "width": 8} | fields).id for fields in different}) == len(different)


def test_columns_are_the_tables() -> None:
    columns = ModelSpec(depth=2, width=8, placement=("pre", "post"), norm_options={"gain": False}).columns()
    assert set(columns) == set(CELL_COLUMNS) - {"data", "batch", "tokens", "loss", "model_seed", "data_seed"}
    assert columns["placement"] == "pre,post" and columns["norm_options"] == "gain=False"
    assert columns["mlp_width"] == 32 and columns["final_norm"] == "off" and columns["embed_norm"] == "off"


def test_addresses_number_the_sublayers_of_each_stack() -> None:
    spec = ModelSpec(depth=3, width=8, kind="encoder-decoder", encoder_depth=2)
    assert [
        spec.where("decoder", layer, name).index for layer in (1, 2, 3) for name in ("attn", "cross", "mlp")
    ] == list(range(1, 10))
    encoder = spec.where("encoder", 2, "mlp")
    assert (encoder.index, encoder.depth, encoder.encoder_depth, encoder.decoder_depth) == (4, 2, 2, 3)


def test_a_description_holds_every_constant() -> None:
    text = ModelSpec(depth=9, width=64, placement="deepnorm", init="deepnorm", norm_eps=3e-4).describe()
    assert "x ← N(2.06·x + F(x))" in text  # 18^¼
    assert "v 0.04291" in text and "q 0.125" in text  # Xavier times 72^−¼
    assert "ε = 0.0003" in text and "arXiv 2203.00555" in text
    assert "width 64, 4 heads of 16, MLP 256, vocabulary 256" in text


def test_a_description_tells_first_and_last_block_apart() -> None:
    text = ModelSpec(depth=16, width=8, placement="lns", init="gpt2-scaled").describe()
    assert "decoder block 1 attn: x ← x + F(N(x))" in text
    assert "decoder block 16 mlp: x ← x + F(0.25·N(x))" in text
    assert "o 0.003536" in text


BAD: list[tuple[dict[str, Any], str]] = [
    ({"depth": 0}, "depth is 0: give a whole number of at least 1"),
    ({"depth": "4"}, "depth is '4': give a whole number"),
    ({"width": True}, "width is True: give a whole number"),
    (
        {"width": 10},
        "width 10 is not divisible by 4 heads: give a multiple of 4, another number of heads, or head_width",
    ),
    ({"heads": 4, "kv_heads": 3}, "4 heads cannot share 3 key and value heads: give a divisor of 4"),
    ({"norm_eps": -1.0}, "norm_eps is -1.0: give a number of at least 0"),
    ({"norm_eps": float("nan")}, "norm_eps is nan"),
    ({"dropout": 1.0}, "dropout is 1.0: give a number of at least 0 and below 1"),
    ({"embed_std": "big"}, "embed_std is 'big'"),
    ({"bias": "yes"}, "bias is 'yes': give True or False"),
    ({"kind": "decodr"}, "unknown kind 'decodr': choose one of .*; did you mean 'decoder'"),
    ({"attention": "linear"}, "unknown attention 'linear'"),
    ({"position": "rotary"}, "unknown position 'rotary'"),
    ({"placement": "preln"}, "unknown placement 'preln': .*; did you mean 'pre'"),
    ({"placement": 5}, "placement is 5: give the name of a placement, or a tuple with one name a block"),
    ({"placement": ("pre",)}, "placement lists 1 blocks and depth is 2: give one name, or one a block"),
    (
        {"placement": ("pre", "pre"), "kind": "encoder-decoder", "encoder_depth": 3},
        "placement lists 2 blocks and depth is 3",
    ),
    ({"norm": "layer"}, "unknown norm 'layer': .*; did you mean 'layernorm'"),
    ({"init": "he"}, "unknown init 'he'"),
    ({"activation": "rleu"}, "unknown activation 'rleu': .*; did you mean 'relu'"),
    ({"norm_options": {"gian": False}}, "norm 'layernorm' has no option 'gian': .*; did you mean 'gain'"),
    ({"init_options": {"q": 1.0}}, "init 'xavier' has no option 'q': its options are none"),
    ({"placement_options": {"every": 2}}, "placement 'pre' has no option 'every'"),
    ({"norm_options": 3}, "norm_options is 3: give pairs"),
    ({"norm_options": {"gain": None}}, "norm_options gives 'gain' the value None"),
    ({"encoder_depth": 2}, "encoder_depth is 2 and the kind 'decoder' has one stack"),
    (
        {"kind": "encoder-decoder", "attention": "none"},
        "an encoder-decoder without attention would not read its encoder",
    ),
    ({"parallel": True, "attention": "none"}, "parallel puts attention and MLP side by side"),
    ({"parallel": True, "placement": "b2t"}, "parallel attention and MLP add to one common skip"),
    ({"parallel": True, "placement": "residual"}, "parallel attention and MLP add to one common skip"),
    ({"position": "rope", "attention": "uniform"}, "position 'rope' rotates queries and keys"),
    ({"position": "rope", "head_width": 3}, "rope rotates pairs of features and a head has 3"),
    ({"placement": ("residual", "post")}, "block 2 has another number of streams than block 1"),
    ({"placement": "res-post-norm", "norm": "identity"}, "starts the gain of its output norm at 0 and norm 'identity'"),
    ({"placement": "completep", "placement_options": {"base_depth": 0}}, "'completep' got base_depth=0"),
]


@pytest.mark.parametrize("fields, sentence", BAD, ids=lambda value: str(value)[:60])
def test_a_spec_that_describes_no_model_says_so_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises((SpecError, UnknownNameError), match=sentence) as caught:
        ModelSpec(**{"depth": 2, "width": 8} | fields)
    assert "\n" not in str(caught.value)


def test_a_misspelled_field_is_a_sentence_with_the_nearest() -> None:
    with pytest.raises(SpecError, match="a model spec has no field 'placment': .*did you mean 'placement'") as caught:
        ModelSpec(depth=2, width=8, placment="pre")  # type: ignore[call-arg]
    assert "\n" not in str(caught.value)


def test_a_spec_is_copied_and_pickled() -> None:
    spec = ModelSpec(depth=2, width=8, norm_options={"gain": False})
    assert copy.deepcopy(spec) == pickle.loads(pickle.dumps(spec)) == replace(spec, depth=2) == spec


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("{", "a model spec is not JSON"),
        ("[]", r"a model spec is \[\]: give a JSON object"),
        ('{"depth": 2}', "a model spec needs width"),
        ('{"depth": 2, "width": 8, "norms": 1}', "has no field 'norms': .*; did you mean 'norm'"),
    ],
)
def test_bad_json_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        ModelSpec.from_json(text)
