"""What is planted is found, with its numbers; in a clean model nothing is."""

import math
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Finding, Inspection

Found = Callable[[str, str], Finding]


def test_a_clean_model_gives_no_finding(seen: Callable[..., Inspection]) -> None:
    assert [one.says for one in seen("clean").findings if one.found] == []


def test_a_massive_activation_is_followed_from_birth_to_end(finding: Found) -> None:
    found = finding("with_massive_token", "massive activations")
    entries = found.numbers["entries"]
    assert found.found and {(one["token"], one["channel"]) for one in entries} == {(0, 7)}
    assert {one["sequence"] for one in entries} == {0, 1}
    for one in entries:
        (born,), (cancelled,) = one["born"], one["cancelled"]
        assert (born["layer"], born["sublayer"]) == (2, "mlp")
        assert born["after"] - born["before"] == pytest.approx(5000, rel=0.01)
        assert (cancelled["layer"], cancelled["sublayer"]) == (5, "mlp") and not one["still_massive"]
    assert "Channel 7 of token 0" in found.says and "born in the MLP of block 2" in found.says
    assert "cancelled in the MLP of block 5" in found.says
    assert re.search(r" That of sequence [01] \('.'\) reaches \S+ and is massive in the same places\.$", found.says)
    assert "It is massive from the MLP of block 2 to the attention of block 5." in found.says


def test_every_stretch_in_which_an_entry_is_massive() -> None:
    from normlab.inspection.massive import _runs
    from normlab.recording import Address

    sites = [Address("decoder", layer, "mlp", "stream") for layer in range(1, 8)]
    runs = _runs(sites, [True, False, True, True, False, False, True])
    assert [(first.layer, last.layer) for first, last in runs] == [(1, 1), (3, 4), (7, 7)]


def _of_tracks(*tracks: list[float]) -> Finding:
    """What is said of channel 3 of the first token of each sequence, with these values, beside a median rms of 1."""
    from normlab.inspection.looking import Look
    from normlab.inspection.massive import massive
    from normlab.inspection.tokens import Place, tokens_of
    from normlab.recording import Address

    found = Look()
    for layer, values in enumerate(zip(*tracks, strict=True), start=1):
        at = Address("decoder", layer, "mlp", "stream")
        x = torch.ones(len(tracks), 8, 4, dtype=torch.float64)
        for sequence, value in enumerate(values):
            x[sequence, 0, 3] = value
            found.tracks.setdefault(("decoder", Place(sequence, 0, 3)), {})[at] = value
        found.streams[at] = tokens_of(x)
    return massive(found, [["The"], ["a"], ["a"]][: len(tracks)])


def test_a_birth_before_a_far_larger_peak_is_named() -> None:
    found = _of_tracks([1.0, 60.0, 700.0, 650.0, 90.0, 45.0, 20000.0, 19000.0, 50.0])
    (entry,) = found.numbers["entries"]
    assert [(one["from"]["layer"], one["to"]["layer"]) for one in entry["massive"]] == [(3, 4), (7, 8)]
    assert [(one["layer"], one["before"], one["after"]) for one in entry["born"]] == [(3, 60, 700), (7, 45, 20000)]
    assert [(one["layer"], one["before"], one["after"]) for one in entry["cancelled"]] == [
        (5, 650, 90), (9, 19000, 50)
    ]  # fmt: skip
    assert "born in the MLP of block 3 (from 60.0 to 700) and the MLP of block 7 (from 45.0 to 20000)" in found.says
    assert "cancelled in the MLP of block 5 (from 650 to 90.0) and the MLP of block 9" in found.says


def test_what_is_true_of_one_sequence_is_not_said_of_all() -> None:
    first, second = [1.0, 700.0, 650.0, 1.0, 2000.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1900.0, 1.0]
    found = _of_tracks(second, first, second)
    assert found.says.startswith("Channel 3 of token 0 of sequence 1 ('a') reaches 2000 after the MLP of block 5")
    assert (
        "It is massive from the MLP of block 2 to the MLP of block 3 and after the MLP of block 5 alone." in found.says
    )
    assert found.says.endswith(
        " That of sequences 0, 2 ('The' and 'a') reaches 1900 and is massive after the MLP of block 5 alone."
    )


def test_an_entry_that_ends_as_nan_is_followed_up_to_there() -> None:
    found = _of_tracks([1.0, 700.0, 650.0, math.nan])
    (entry,) = found.numbers["entries"]
    assert (entry["peak"], entry["cancelled"], entry["still_massive"]) == (700, [], False)
    assert "not finite after the last block" in found.says


def test_the_law_without_the_massive_token_is_that_of_the_others(finding: Found) -> None:
    growth = [finding(name, "growth of the stream").numbers for name in ("clean", "with_massive_token")]
    assert max(growth[1]["mean_square"]) > 1000 * max(growth[0]["mean_square"])
    assert max(growth[1]["bulk_mean_square"]) < 3 * max(growth[0]["bulk_mean_square"])
    assert growth[1]["largest_top_token_share"] > 0.99


def test_an_idle_block_is_named_and_only_it(finding: Found) -> None:
    found = finding("with_idle_block", "idle blocks")
    assert found.found and found.says.startswith("Block 3 barely changes")
    assert [one["layer"] for one in found.numbers["blocks"] if one["change"] == 0] == [3]


def test_a_gradient_that_vanishes_is_found_by_role(finding: Found) -> None:
    found, before = finding("with_vanishing_gradient", "gradients"), finding("clean", "gradients")
    assert found.found and not before.found and "falls" in found.says and "down (mlp)" in found.says
    for one, other in zip(found.numbers["roles"], before.numbers["roles"], strict=True):
        # Block ℓ of 6 sees what 7 − ℓ blocks passed on.
        expected = [norm * 0.25 ** (7 - layer) for layer, norm in zip(other["layers"], other["grad_norm"], strict=True)]
        assert one["grad_norm"] == pytest.approx(expected, rel=1e-4)
        assert one["factor"] == pytest.approx(other["factor"] * 0.25**5, rel=1e-3)


def test_the_line_through_the_gradients_is_exact_on_a_geometric_sequence() -> None:
    import pandas as pd

    from normlab.inspection.gradients import gradients
    from normlab.table import from_rows

    rows = [
        {"stack": "decoder", "layer": layer, "sublayer": "mlp", "role": "down", "quantity": "grad_norm",
         "value": 2.0**layer}
        for layer in range(1, 9)
    ]  # fmt: skip
    table: pd.DataFrame = from_rows(rows)
    found = gradients(table, backward=True)
    assert found.found and found.numbers["roles"][0]["factor"] == pytest.approx(2.0**-7, rel=1e-9)
    assert "falls: down (mlp) 128-fold" in found.says
    grows = gradients(table.assign(value=1 / table["value"]), backward=True)
    assert "grows: down (mlp) 128-fold" in grows.says
    even = gradients(table.assign(value=table["value"] ** 0.1), backward=True)
    assert not even.found and "at most 1.62 times that of another (down (mlp))" in even.says


def test_the_gradient_at_the_stream_is_said_after_each_block() -> None:
    from normlab.inspection.gradients import gradients
    from normlab.table import from_rows

    rows = [
        {"stack": "decoder", "layer": layer, "sublayer": sublayer, "site": "stream_grad", "quantity": "l2",
         "value": value + (sublayer == "attn")}
        for layer, value in enumerate((70.0, 2.0, 8.0, 4.0)) for sublayer in (("attn", "mlp") if layer else ("embed",))
    ]  # fmt: skip
    found = gradients(from_rows(rows), backward=True)
    assert found.numbers["streams"] == [{"stack": "decoder", "layers": [1, 2, 3], "l2": [2.0, 8.0, 4.0]}]
    assert found.says.endswith(
        "At the stream the gradient's norm is 2.00 after block 1 and 4.00 after block 3, and is largest after "
        "block 2 (8.00): 4.00-fold between the largest and the smallest."
    )


def test_gradients_that_are_zero_or_not_finite_are_named() -> None:
    from normlab.inspection.gradients import gradients
    from normlab.table import from_rows

    rows = [
        {"stack": "decoder", "layer": layer, "sublayer": "attn", "role": "q", "quantity": "grad_norm", "value": value,
         "status": status}
        for layer, value, status in ((1, 0.0, "exact-zero"), (2, 1.0, "ok"), (3, math.nan, "nonfinite"), (4, 1.0, "ok"))
    ]  # fmt: skip
    found = gradients(from_rows(rows), backward=True)
    assert found.found
    assert found.says == "The gradient of q (attn) is exactly zero in block 1 and not finite in block 3."


def test_no_backward_pass_is_said(seen: Callable[..., Inspection]) -> None:
    found = seen("clean", backward=False)
    (gradients,) = [one for one in found.findings if one.topic == "gradients"]
    assert not gradients.found and "no backward pass" in gradients.says and not found.backward


def test_large_logits_are_named_by_block_and_head(finding: Found) -> None:
    found = finding("with_large_logits", "attention logits")
    large = [(one["layer"], one["head"]) for one in found.numbers["heads"] if one["max_abs"] > 100]
    assert found.found and large == [(4, 1)] and "head 1 in the attention of block 4" in found.says


def test_updates_that_bfloat16_loses_are_found(finding: Found) -> None:
    found = finding("with_lost_updates", "rounding of bf16")
    assert found.found and all(one["median_token"] > 0.1 for one in found.numbers["updates"])


def test_doublings_are_those_to_fp16s_largest_number(finding: Found) -> None:
    found = finding("with_massive_token", "range of fp16").numbers
    assert found["max_abs"] == pytest.approx(5000, rel=0.01)
    assert found["doublings"] == pytest.approx(math.log2(65504 / found["max_abs"]), rel=1e-12)


def test_every_finding_states_a_threshold_and_is_json(seen: Callable[..., Inspection]) -> None:
    import json

    found = seen("with_massive_token").to_dict()
    assert all(one["threshold"] for one in found["findings"]) and len(found["findings"]) == 8
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again["findings"] == found["findings"] and again["layers"] == found["layers"]


def test_a_model_of_zeros_has_no_number_that_is_not_finite(planted: ModuleType) -> None:
    model = planted.clean()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = nl.inspect(model, tokens=8)
    said = {one.topic: one for one in found.findings}
    assert not said["numbers that are not finite"].found and "no finite value" not in str(found)
    assert said["massive activations"].says == "None: the stream is zero."
    assert said["attention logits"].says.startswith("Every logit of 24 heads is zero.")
    rows = found.table[found.table["quantity"] == "fp16_doublings"]
    assert rows["value"].isna().all() and set(rows["status"]) == {"zero tensor"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"backward": 1}, "backward is 1: give True or False"),
        ({"backward": None}, "backward is None"),
        ({"tokenizer": 3}, "tokenizer is 3: give one as those of transformers"),
        ({"text": 3}, "text is 3"),
        ({"seed": "x"}, "seed is 'x'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_an_argument_of_another_kind_is_one_sentence(planted: ModuleType, given: dict[str, Any], says: str) -> None:
    model = planted.clean()
    with pytest.raises(DataError, match=says):
        nl.inspect(model, tokens=8, **given)
    if "tokenizer" not in given:
        with pytest.raises(DataError, match=says):
            nl.compare(model, model, tokens=8, **given)


def test_the_heads_with_least_head_room_are_named_in_order(finding: Found) -> None:
    found = finding("clean", "attention logits")
    worst = sorted(found.numbers["heads"], key=lambda one: -one["max_abs"])[:5]
    heads = [f"head {one['head']} in the attention of block {one['layer']}" for one in worst]
    places = [found.says.index(head) for head in heads]
    assert places == sorted(places)
    assert found.says.count(" doublings)") == 4


def test_the_median_tokens_update_is_not_that_of_all_entries(seen: Callable[..., Inspection]) -> None:
    found = seen("with_massive_token")
    rows = found.layers.query("sublayer != 'embed'")
    table = found.table.query("quantity == 'median_update_ratio'")
    assert rows["median update ratio"].tolist() == pytest.approx(table["value"].tolist())
    assert (rows["update ratio"] > 3 * rows["median update ratio"]).any()
