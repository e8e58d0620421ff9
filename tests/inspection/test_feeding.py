"""From a text to a batch."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import normlab as nl
from normlab.errors import DataError
from normlab.inspection import Subject, Windows
from normlab.inspection.subject import Task


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("one two three four five six seven eight nine ten " * 30)
    return path


def subject(checkpoints: ModuleType, kind: str) -> Subject:
    task = {"llama": "next token", "bert": "masked tokens", "t5": "same tokens"}[kind]
    return Subject(kind, checkpoints.model(kind), checkpoints.tokenizer(), task)  # type: ignore[arg-type]


def test_bytes_are_the_windows_of_data(text: Path) -> None:
    model = nl.build(nl.ModelSpec(depth=1, width=8, heads=2))
    feed = Windows(3, 10, text, seed=4).feed(Subject("m", model))
    tokens, targets = nl.data.Text(3, 10, str(text)).draw(4)
    assert torch.equal(feed.tokens, tokens) and feed.targets is not None and torch.equal(feed.targets, targets)
    assert "".join(feed.words[0]) in text.read_text()


@pytest.mark.needs("transformers")
def test_tokens_are_words_of_the_text_and_targets_follow(checkpoints: ModuleType, text: Path) -> None:
    feed = Windows(2, 12, text).feed(subject(checkpoints, "llama"))
    assert feed.targets is not None and torch.equal(feed.tokens[:, 1:], feed.targets[:, :-1])
    for row, target in zip(feed.tokens.tolist(), feed.targets.tolist(), strict=True):
        window = "".join(map(chr, [*row, target[-1]]))
        assert window in text.read_text() and window[0] != " "


@pytest.mark.needs("transformers")
def test_masked_tokens_are_the_only_targets(checkpoints: ModuleType, text: Path) -> None:
    feed = Windows(2, 15, text).feed(subject(checkpoints, "bert"))
    hidden = feed.kwargs["input_ids"] == 129
    assert feed.targets is not None and hidden.sum() == 4
    assert torch.equal(feed.targets[hidden], feed.tokens[hidden]) and (feed.targets[~hidden] == -100).all()


@pytest.mark.needs("transformers")
def test_a_decoder_sees_each_token_one_position_later(checkpoints: ModuleType, text: Path) -> None:
    feed = Windows(2, 9, text).feed(subject(checkpoints, "t5"))
    shown = feed.kwargs["decoder_input_ids"]
    assert torch.equal(shown[:, 1:], feed.tokens[:, :-1]) and not shown[:, 0].any()


@pytest.mark.needs("transformers")
def test_the_same_seed_is_the_same_batch_and_another_is_not(checkpoints: ModuleType, text: Path) -> None:
    first, again, other = (Windows(2, 9, text, seed).feed(subject(checkpoints, "llama")).tokens for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


@pytest.mark.needs("transformers")
@pytest.mark.parametrize("seed", range(6))
def test_the_windows_are_the_same_whatever_is_predicted(checkpoints: ModuleType, text: Path, seed: int) -> None:
    model, tokenizer = checkpoints.model("llama"), checkpoints.tokenizer()
    feeds = [Windows(2, 9, text, seed).feed(Subject("m", model, tokenizer, aim)) for aim in ("next token", "probe")]
    assert torch.equal(*(feed.tokens for feed in feeds))


@pytest.mark.needs("transformers")
@pytest.mark.parametrize(("content", "says"), [("short", "gives 5 tokens"), ("", "empty")])
def test_a_text_that_is_too_short_is_said(tmp_path: Path, checkpoints: ModuleType, content: str, says: str) -> None:
    path = tmp_path / "short.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=says):
        Windows(1, 9, path).feed(subject(checkpoints, "llama"))


@pytest.mark.needs("transformers")
def test_a_decoder_gets_its_tokens_without_a_tokenizer_too(text: Path) -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=256, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=7
    )
    model = transformers.T5ForConditionalGeneration(config)
    feed = Windows(2, 9, text).feed(Subject("t5", model))
    shown = feed.kwargs["decoder_input_ids"]
    assert torch.equal(shown[:, 1:], feed.tokens[:, :-1]) and (shown[:, 0] == 7).all()
    assert feed.targets is not None and torch.equal(feed.targets, feed.tokens)
    with torch.no_grad():
        loss = model.eval()(input_ids=feed.tokens, labels=feed.tokens, decoder_input_ids=shown).loss
    found = nl.inspect(model, text=text, tokens=9)
    assert [stack.name for stack in found.architecture.stacks] == ["encoder", "decoder"]
    assert "same tokens" in found.loss_says and found.loss == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.needs("transformers")
def test_a_model_of_masked_tokens_without_a_mask_predicts_the_same_tokens(checkpoints: ModuleType, text: Path) -> None:
    one = Subject("bert", checkpoints.model("bert"))
    feed = Windows(2, 9, text).feed(one)
    assert one.aim == "same tokens" and feed.targets is not None and torch.equal(feed.targets, feed.tokens)


@pytest.mark.needs("transformers")
def test_tokens_above_the_vocabulary_are_one_sentence(checkpoints: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "accents.txt"
    path.write_text("déjà vu " * 40, encoding="utf-8")
    with pytest.raises(
        DataError, match="llama knows the tokens 0 to 129, and the text, read as bytes, gives 195"
    ) as error:
        Windows(1, 32, path).feed(Subject("llama", checkpoints.model("llama")))
    assert "\n" not in str(error.value)
    small = nl.build(nl.ModelSpec(depth=1, width=8, heads=2, vocab=100))
    with pytest.raises(DataError, match="knows the tokens 0 to 99"):
        nl.inspect(small, text=path, tokens=32)


def test_a_strangers_model_with_too_few_tokens_says_what_it_got(tmp_path: Path) -> None:
    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(64, 8)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.embed(tokens)

    path = tmp_path / "text.txt"
    path.write_text("zebra " * 40)
    with pytest.raises(DataError, match="numbered up to 122, so give fewer tokens or the tokenizer"):
        nl.inspect(Small(), text=path, tokens=32)


@pytest.mark.needs("transformers")
def test_more_tokens_than_positions_are_one_sentence(text: Path) -> None:
    import transformers

    config = transformers.GPT2Config(vocab_size=256, n_embd=16, n_layer=2, n_head=2, n_positions=24)
    with pytest.raises(DataError, match="24 positions and the batch 32 tokens, so give at most 24 tokens"):
        nl.inspect(transformers.GPT2LMHeadModel(config), text=text, tokens=32)


@pytest.mark.needs("transformers")
def test_a_model_of_something_else_says_what_it_takes() -> None:
    import transformers

    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=16))
    with pytest.raises(DataError, match="ViTModel takes pixel_values, not tokens of text"):
        nl.inspect(model)


def test_a_text_of_one_byte(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("x")
    with pytest.raises(DataError, match=r"has 1 byte and a window takes 9: give a longer text$"):
        nl.inspect(nl.ModelSpec(depth=1, width=8, heads=2), text=path, tokens=8)
    path.write_text("xy")
    with pytest.raises(DataError, match="has 2 bytes and a window takes 9: give a longer text or at most 1 token$"):
        nl.inspect(nl.ModelSpec(depth=1, width=8, heads=2), text=path, tokens=8)


class Gives(torch.nn.Module):
    """Two blocks and a head, of whose result something is given."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.embed, self.head, self.what = torch.nn.Embedding(256, 8), torch.nn.Linear(8, 256), what
        self.mix = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
            for _ in range(2)
        )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for mix in self.mix:
            x = x + mix(x)
        if self.what == "pooled":
            return x.mean(1)
        logits = self.head(x)
        return logits[:, -1:] if self.what == "last" else logits.flatten(0, 1)


def test_a_model_that_gives_the_last_tokens_logits(text: Path) -> None:
    torch.manual_seed(0)
    model = Gives("last")
    found = nl.inspect(model, text=text, tokens=8)
    tokens, targets = nl.data.Text(2, 8, str(text)).draw(0)
    expected = torch.nn.functional.cross_entropy(model(tokens)[:, 0], targets[:, -1])
    assert found.loss == pytest.approx(float(expected.detach())) and "next token" in found.loss_says


def test_a_model_that_gives_a_row_for_each_sequence_is_probed(text: Path) -> None:
    torch.manual_seed(0)
    model = Gives("pooled")
    found = nl.inspect(model, text=text, tokens=8)
    tokens, _ = nl.data.Text(2, 8, str(text)).draw(0)
    r = torch.randn(2, 8, generator=torch.Generator().manual_seed(0)) / 8**0.5
    assert found.loss == pytest.approx(float((r * model(tokens)).sum().detach()) / 2) and "probe" not in str(found)
    assert "no head was found" in found.loss_says and found.backward


def test_logits_of_another_shape_are_one_sentence(text: Path) -> None:
    with pytest.raises(DataError, match=r"gives \(16, 256\) for \(2, 8\) tokens: give a model whose result is"):
        nl.inspect(Gives("flat"), text=text, tokens=8)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"path": 3}, "text is 3: give the path of a UTF-8 file"),
        ({"path": b"book"}, "text is b'book'"),
        ({"seed": 1.5}, "seed is 1.5: give a whole number of at least 0"),
        ({"seed": True}, "seed is True"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
        ({"seed": None}, "seed is None"),
        ({"batch": 0}, "batch is 0"),
        ({"tokens": "8"}, "tokens is '8'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_windows_of_another_kind_are_refused_in_one_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says) as error:
        Windows(**given)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("unchecked")
def test_a_seed_of_numpy_is_a_seed() -> None:
    import numpy as np

    assert Windows(seed=np.int64(4)) == Windows(seed=4)


@pytest.mark.needs("transformers")
def test_bytes_that_a_model_of_words_reads_are_a_note() -> None:
    import transformers

    from normlab.inspection.feeding import notes_of

    sizes = dict(n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0)
    words, small = (
        transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=size, **sizes)) for size in (300, 256)
    )
    (note,) = notes_of(Subject("words", words))
    assert "256 of the model's 300 tokens" in note and "give the tokenizer" in note
    assert notes_of(Subject("small", small)) == notes_of(Subject("read", words, tokenizer=len)) == ()


class Closing:
    """Words are tokens; each text begins with 1 and ends with 2, as with BERT's tokenizer, or with neither."""

    def __init__(self, closes: bool = True) -> None:
        self.closes = closes

    def __call__(self, text: str, truncation: bool, max_length: int) -> dict[str, list[int]]:
        room = max_length - 2 * self.closes
        words = [3 + sum(map(ord, word)) % 200 for word in text.split()][:room]
        return {"input_ids": [1, *words, 2] if self.closes else words}


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("size", [1, 40])
def test_a_window_is_the_same_whatever_is_to_be_predicted(tmp_path: Path, closes: bool, size: int) -> None:
    path = tmp_path / "words.txt"
    path.write_text(" ".join(str(number) * size for number in range(1000, 3000)))
    tasks: tuple[Task | None, ...] = (None, "next token", "same tokens", "probe")
    given = {task: Windows(3, 9, path).feed(Subject("m", Gives("logits"), Closing(closes), task)) for task in tasks}
    first = given[None]
    assert all(torch.equal(feed.tokens, first.tokens) and feed.digest == first.digest for feed in given.values())
    assert first.targets is not None and torch.equal(first.targets[:, :-1], first.tokens[:, 1:])
    assert ((first.targets[:, -1] == -100) == closes).all() and (first.tokens[:, -1] == 2).all() == closes


def test_a_window_begins_earlier_where_the_text_ends_too_soon(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a b c d e f g h i j k l " + "w" * 300)
    tokens = Windows(3, 9, path, seed=1).feed(Subject("m", Gives("logits"), Closing(False))).tokens
    assert tokens.shape == (3, 9)


@pytest.mark.needs("transformers")
def test_a_model_with_its_head_and_without_read_the_same_text(
    checkpoints: ModuleType, text: Path, tmp_path: Path
) -> None:
    whole = checkpoints.model("llama")
    pair = [Subject("whole", whole, checkpoints.tokenizer()), Subject("bare", whole.model, checkpoints.tokenizer())]
    found = nl.compare(*pair, text=text, tokens=9)
    assert found.parts is None and "the same to the bit" in str(found)
    runs = [nl.inspect(one.model, tokenizer=one.tokenizer, text=text, tokens=9).table for one in pair]
    assert not [word for word in nl.compare(*runs).differs if not word.startswith("loss")]


@pytest.mark.needs("transformers")
def test_masked_tokens_are_not_the_tokens_that_were_masked(checkpoints: ModuleType, text: Path) -> None:
    whole = checkpoints.model("bert")
    pair = [Subject("whole", whole, checkpoints.tokenizer()), Subject("bare", whole.bert, checkpoints.tokenizer())]
    with pytest.raises(DataError, match="whole alone reads every seventh token as a mask"):
        nl.compare(*pair, text=text, tokens=15)
    runs = [nl.inspect(one.model, tokenizer=one.tokenizer, text=text, tokens=15).table for one in pair]
    (differs,) = nl.compare(*runs).differs
    assert differs == "tokens that the text was turned into, or in which of them are masked"
