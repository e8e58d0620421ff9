"""Where single tokens part though the median token does not."""

import math

import pytest
import torch

import normlab as nl
from normlab.inspection import Comparison
from normlab.models import Transformer

TOKENS = 16


def clean() -> Transformer:
    return nl.build(nl.ModelSpec(depth=4, width=16, heads=2), seed=0)


def nudged(layer: int, token: int, by: float) -> Transformer:
    """A model whose MLP of one block gives one token of the second sequence something else."""
    model = clean()

    def hook(module: torch.nn.Module, args: object, result: torch.Tensor) -> torch.Tensor:
        change = torch.zeros_like(result)
        if result.shape[1] == TOKENS:  # not the short example of discovery
            change[1, token] = by
        return result + change

    model.stack("decoder").blocks[layer - 1].sublayers["mlp"].mixer.register_forward_hook(hook)
    return model


def worst(found: Comparison, quantity: str, layer: int) -> float:
    rows = found.table[(found.table["quantity"] == quantity) & (found.table["layer"] == layer)]
    return float(rows.loc[rows["sublayer"] == "mlp", "value"].iloc[0])


def test_one_token_that_differs_is_not_passed_over() -> None:
    found = nl.compare(clean(), nudged(3, TOKENS - 1, 2.0), tokens=TOKENS)
    assert found.parts is None and "to the bit" not in str(found)
    assert found.tokens_part is not None and (found.tokens_part.layer, found.tokens_part.sublayer) == (3, "mlp")
    assert "no block adds more than 9.54e−07 of its length, the tolerance, to the median token" in str(found)
    assert "Single tokens part in the MLP of block 3: it adds" in str(found)
    assert f"to token {TOKENS - 1} (" in str(found) and "of sequence 1" in str(found)
    said = found.to_dict()
    assert said["parts"] is None and said["tokens_part"]["layer"] == 3
    at_three = [one for one in said["worst_tokens"] if one["layer"] == 3 and one["quantity"] == "added"]
    assert [(one["sequence"], one["token"]) for one in at_three] == [(1, TOKENS - 1)]


@torch.no_grad()
def test_the_worst_token_is_that_of_blocks_run_by_hand() -> None:
    one, two = clean(), nl.build(nl.ModelSpec(depth=4, width=16, heads=2), seed=1)
    with torch.enable_grad():
        found = nl.compare(one, two, tokens=TOKENS)
    tokens, _ = nl.data.text_batch(batch=2, tokens=TOKENS, seed=0)
    a, b = (model.stack("decoder").embedding(tokens) for model in (one, two))
    for layer, (mine, others) in enumerate(
        zip(one.stack("decoder").blocks, two.stack("decoder").blocks, strict=True), 1
    ):
        y, a, b = others(a), mine(a), others(b)
        length = a.double().norm(dim=-1)
        assert worst(found, "added_worst", layer) == pytest.approx(
            float(((y - a).norm(dim=-1) / length).max()), rel=1e-5
        )
        total = float(((b - a).norm(dim=-1) / length).max())
        assert worst(found, "divergence_worst", layer) == pytest.approx(total, rel=1e-5)


def test_models_that_agree_in_every_token_say_so() -> None:
    found = nl.compare(clean(), nudged(2, 3, 1e-7), tokens=TOKENS)
    assert found.parts is None and found.tokens_part is None
    assert (
        "The streams do not part: no block adds more than 9.54e−07 of its length, the tolerance, to any token."
        in str(found)
    )


def test_a_token_that_is_not_finite_in_one_parts_before_the_median_does() -> None:
    found = nl.compare(clean(), nudged(2, 3, math.inf), tokens=TOKENS)
    assert found.parts is not None and found.parts.layer == 2
    assert found.tokens_part is not None and found.tokens_part.at == found.parts.at
    assert "no finite value" not in str(found) and "Single tokens" not in str(found)
