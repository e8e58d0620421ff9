"""Recording tiny random models of transformers in every way that they are run."""

import copy
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
from recorded_parts import heard
from torch import Tensor, nn

import normlab as nl

pytestmark = [
    pytest.mark.needs("transformers"),
    # transformers says so of every tiny configuration.
    pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning"),
]

Value = Callable[..., float]
TOKENS: dict[str, Any] = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
SIZES: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=50, max_position_embeddings=40, **TOKENS,
)  # fmt: skip


def build(kind: str, config: str, dtype: torch.dtype = torch.float64, **sizes: Any) -> nn.Module:
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: nn.Module = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
    return model.to(dtype).eval()


def llama(dtype: torch.dtype = torch.float64, **more: Any) -> nn.Module:
    return build("LlamaForCausalLM", "LlamaConfig", dtype, **SIZES, **more)


def gpt2(depth: int = 2, dtype: torch.dtype = torch.float64) -> nn.Module:
    sizes: dict[str, Any] = dict(n_embd=32, n_layer=depth, n_head=4, vocab_size=50, n_positions=40, **TOKENS)
    return build("GPT2LMHeadModel", "GPT2Config", dtype, **sizes)


def tokens(batch: int = 3, length: int = 7) -> Tensor:
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(0))


def mean_square(x: Tensor) -> float:
    return float(x.detach().double().square().mean())


def backward(model: nn.Module, **options: Any) -> pd.DataFrame:
    model.zero_grad()
    with nl.record(model, **options) as recorder:
        model(tokens(), labels=tokens(), use_cache=False).loss.backward()
    return recorder.table()


def stream(table: pd.DataFrame, quantity: str) -> pd.DataFrame:
    return table[(table["site"] == "stream") & (table["quantity"] == quantity)]


def test_the_last_state_is_the_stream_or_the_final_norm_and_both_have_rows(value: Value) -> None:
    model = gpt2(depth=16)
    with nl.record(model) as recorder, torch.no_grad():
        states = model(tokens(), output_hidden_states=True).hidden_states
    kept: list[Tensor] = []
    handle = model.transformer.ln_f.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    with torch.no_grad():
        model(tokens())
    handle.remove()
    table = recorder.table()
    last = value(table, layer=16, sublayer="mlp", site="stream", quantity="mean_square")
    final = value(table, layer=16, sublayer="final", site="final", quantity="mean_square")
    assert last == pytest.approx(mean_square(kept[0]), rel=1e-12)
    assert final == pytest.approx(mean_square(states[-1]), rel=1e-12)
    assert final > 100 * last


def test_generation_with_a_cache_counts_every_token_once() -> None:
    model = llama()
    with nl.record(model) as recorder:
        generated = model.generate(tokens(), max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert generated.shape == (3, 11)
    table = recorder.table()
    counts = stream(table, "count")
    # Seven tokens of each sequence at first, then one at a time; the last new one is not read any more.
    assert (counts["value"] == 3 * (7 + 3)).all() and len(counts) == 5 and counts["call"].isna().all()
    with nl.record(model) as recorder, torch.no_grad():
        model(generated[:, :-1])
    whole = recorder.table()
    for quantity in ("mean_square", "max_abs", "median_rms", "kurtosis"):
        one, two = (stream(each, quantity)["value"].tolist() for each in (table, whole))
        assert one == pytest.approx(two, rel=1e-9)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_give_the_same_table(reentrant: bool) -> None:
    model = llama().train()
    plain = backward(model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    pd.testing.assert_frame_equal(backward(model), plain)


def test_padding_counts_nowhere() -> None:
    model, mask = llama(), torch.ones(3, 7, dtype=torch.bool)
    mask[0, :3] = mask[1, :1] = False
    numbers = tokens() * mask
    with nl.record(model, mask=mask) as recorder, torch.no_grad():
        states = model(numbers, attention_mask=mask.long(), output_hidden_states=True).hidden_states
    table = recorder.table()
    assert set(stream(table, "count")["value"]) == {17.0}
    rows = stream(table, "mean_square")
    found = rows[rows["sublayer"].isin(["embed", "mlp"])].sort_values("layer")["value"].tolist()
    expected = [mean_square(state[mask]) for state in states[:-1]]
    assert found[: len(expected)] == pytest.approx(expected, rel=1e-12)


def test_an_overflow_in_the_residual_add_is_seen_where_it_happens(value: Value) -> None:
    model = gpt2(dtype=torch.float16)
    with torch.no_grad():
        model.transformer.wte.weight[5, 3] = 40_000.0
        model.transformer.h[0].attn.c_proj.bias[3] = 40_000.0
    numbers = tokens()
    numbers[numbers == 5] = 6
    numbers[1, 4] = 5
    with nl.record(model) as recorder, torch.no_grad():
        model(numbers)
    table, here = recorder.table(), {"layer": 1, "sublayer": "attn", "quantity": "nonfinite"}
    assert value(table, site="update", **here) == value(table, site="skip", **here) == 0
    assert value(table, site="stream", **here) == 1
    assert value(table, layer=1, sublayer="attn", site="stream", quantity="count") == 20
    rows = table[(table["quantity"] == "nonfinite") & (table["value"] > 0)]
    assert rows.sort_values(["layer", "sublayer"]).iloc[0]["sublayer"] == "attn"


def test_what_bfloat16_loses_in_each_residual_add() -> None:
    model = gpt2(dtype=torch.bfloat16)
    terms: dict[int, list[Tensor]] = {}
    handles = []
    for layer, block in enumerate(model.transformer.h, 1):

        def note(module: nn.Module, args: Any, out: Any, layer: int = layer) -> None:
            terms.setdefault(layer, []).append((out[0] if isinstance(out, tuple) else out).clone())

        def before(module: nn.Module, args: Any, layer: int = layer) -> None:
            terms.setdefault(layer, []).append(args[0].clone())

        handles += [block.register_forward_pre_hook(before), block.attn.register_forward_hook(note)]
        handles.append(block.ln_2.register_forward_pre_hook(before))
    with torch.no_grad():
        model(tokens())
        for handle in handles:
            handle.remove()
        with nl.record(model) as recorder:
            model(tokens())
    rows = recorder.table().query("quantity == 'lost_share' and sublayer == 'attn'").set_index("layer")["value"]
    for layer, (skip, update, total) in terms.items():
        lost = total.double() - (skip.double() + update.double())
        assert rows[layer] == pytest.approx((mean_square(lost) / mean_square(update)) ** 0.5, rel=1e-6)
        assert rows[layer] > 0


def test_micro_batches_are_one_batch() -> None:
    model = llama()
    whole = backward(model)
    model.zero_grad()
    with nl.record(model) as recorder:
        for part in tokens().split(1):
            (model(part, labels=part, use_cache=False).loss / 3).backward()
    parts = recorder.table()
    keys = [name for name in whole.columns if name not in ("value", "se", "sd_log")]
    both = whole.merge(parts, on=keys, suffixes=("_1", "_2"))
    assert len(both) == len(whole) == len(parts)
    # Entries that cancel, as the gradients of key biases do, are compared with 1.
    same = (both["value_1"] - both["value_2"]).abs() <= 1e-9 * both["value_1"].abs() + 1e-12
    assert (same | both["value_1"].isna()).all()


def test_frozen_blocks_say_so_and_change_no_other_gradient() -> None:
    model = llama()
    expected = backward(model)
    model.model.embed_tokens.requires_grad_(False)
    model.model.layers[0].requires_grad_(False)
    table = backward(model)
    norms = table[
        (table["quantity"] == "grad_norm") & (table["layer"] == 1) & (table["sublayer"].isin(["attn", "mlp"]))
    ]
    assert len(norms) and set(norms["status"]) == {"frozen"} and norms["value"].isna().all()
    l2 = table[(table["quantity"] == "l2") & (table["layer"] == 1)]
    assert set(l2["status"]) == {"no gradient required"}
    rows = [each[(each["quantity"] == "l2") & (each["layer"] == 2)]["value"].tolist() for each in (expected, table)]
    assert rows[0] == rows[1]


def test_a_deep_copy_of_a_recorded_model_is_free_of_hooks() -> None:
    model = llama()
    with nl.record(model) as recorder, torch.no_grad():
        twin = copy.deepcopy(model)
        assert heard(model) and not heard(twin)
        twin(tokens(batch=5))
        model(tokens())
    assert set(stream(recorder.table(), "count")["value"]) == {21.0}


def test_two_recorders_of_a_model_agree() -> None:
    model = llama()
    with nl.record(model) as one, nl.record(model, sites=["stream"]) as two, torch.no_grad():
        model(tokens())
    rows = [stream(each.table(), "rms")["value"].tolist() for each in (one, two)]
    assert rows[0] == rows[1] and len(rows[0]) == 5


def test_experts_that_get_no_token_leave_no_mark() -> None:
    sizes = dict(**SIZES, num_local_experts=4, num_experts_per_tok=1, experts_implementation="eager")
    model = build("MixtralForCausalLM", "MixtralConfig", **sizes)
    with torch.no_grad():
        for layer in model.model.layers:
            # All scores are the same, so that one expert gets every token.
            layer.mlp.gate.weight.zero_()
    table = backward(model)
    assert set(stream(table, "count")["value"]) == {21.0}
    assert table[table["site"] == "stream"]["value"].notna().all()
    for layer, block in enumerate(model.model.layers, 1):
        rows = table[(table["layer"] == layer) & (table["role"] == "down") & (table["quantity"] == "grad_norm")]
        gradient = block.mlp.experts.down_proj.grad
        assert not all(expert.any() for expert in gradient) and gradient.any()
        assert rows["value"].item() == pytest.approx(float(gradient.norm()), rel=1e-12)


def test_packed_matrices_are_split_where_they_are_cut() -> None:
    model = build("Phi3ForCausalLM", "Phi3Config", **SIZES)
    table = backward(model)
    attention, mlp = model.model.layers[0].self_attn.qkv_proj.weight.grad, model.model.layers[0].mlp.gate_up_proj
    parts = dict(zip(("q", "k", "v"), attention.split([32, 16, 16]), strict=True))
    parts |= dict(zip(("gate", "up"), mlp.weight.grad.chunk(2), strict=True))
    rows = table[(table["layer"] == 1) & (table["quantity"] == "grad_norm")].set_index("role")["value"]
    for role, part in parts.items():
        assert rows[role] == pytest.approx(float(part.norm()), rel=1e-12)


def test_a_compiled_model_has_the_same_table() -> None:
    model = llama()
    plain = backward(model)
    compiled = torch.compile(model, backend="eager")
    pd.testing.assert_frame_equal(backward(compiled), plain)
    model.compile(backend="eager")
    pd.testing.assert_frame_equal(backward(model), plain)


def test_recording_changes_no_bit() -> None:
    batch = {"input_ids": tokens(), "use_cache": False}
    assert nl.check_transparent(gpt2(dtype=torch.float32), batch, repeats=1).gradients == 28
