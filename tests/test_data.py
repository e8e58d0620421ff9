"""Batches of tokens: what they hold, and what cannot be used."""

import json
import pickle

import pytest
import torch

from normlab import data
from normlab.errors import DataError


def test_targets_are_the_bytes_that_follow(tmp_path):
    text = "Größe, 規模 and scale. " * 40
    path = tmp_path / "words.txt"
    path.write_text(text, encoding="utf-8")
    tokens, targets = data.text_batch(batch=8, tokens=50, seed=3, path=path)
    for row, following in zip(tokens.tolist(), targets.tolist(), strict=True):
        assert bytes([*row, following[-1]]) in text.encode()
        assert row[1:] == following[:-1]
    assert tokens.dtype == targets.dtype == torch.int64
    assert tokens.shape == targets.shape == (8, 50)


def test_the_default_text_is_the_documentation_of_python():
    from pydoc_data.topics import topics

    tokens, _ = data.text_batch(batch=4, tokens=64, seed=1)
    corpus = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    assert all(bytes(row) in corpus for row in tokens.tolist())


@pytest.mark.parametrize("source", [data.Text(3, 20), data.Random(3, 20, 7)], ids=["text", "random"])
def test_a_seed_gives_one_batch_whatever_was_drawn_before(source):
    first = source.draw(5)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(first, source.draw(5), strict=True))
    assert not torch.equal(first[0], source.draw(6)[0])
    assert torch.equal(state, torch.get_rng_state())


def test_every_window_of_a_short_text_is_drawn(tmp_path):
    path = tmp_path / "abcd"
    path.write_text("abcd")
    tokens, targets = data.Text(64, 2, str(path)).draw(0)
    assert {bytes(row) for row in tokens.tolist()} == {b"ab", b"bc"}
    assert {bytes(row) for row in targets.tolist()} == {b"bc", b"cd"}


def test_random_tokens_fill_the_vocabulary():
    tokens, targets = data.random_batch(batch=4, tokens=500, seed=0, vocab=11)
    assert set(tokens.flatten().tolist()) == set(range(11))
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_columns_name_the_text_and_its_content(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one two three")
    before = data.Text(1, 4, str(path)).columns()
    path.write_text("one two three!")
    after = data.Text(1, 4, str(path)).columns()
    assert before["data"].startswith("text:a.txt-") and len(before["data"]) == len("text:a.txt-") + 8
    assert before["data"] != after["data"]
    assert data.Text(2, 5).columns() == {"data": "text:pydoc", "batch": 2, "tokens": 5}
    assert data.Random(2, 5, 9).columns() == {"data": "random:9", "batch": 2, "tokens": 5}


@pytest.mark.parametrize("source", [data.Text(2, 9), data.Random(3, 5, 7)], ids=["text", "random"])
def test_sources_survive_json_and_pickle(source):
    assert data.from_dict(json.loads(json.dumps(source.to_dict()))) == source
    assert pickle.loads(pickle.dumps(source)) == source
    assert isinstance(source, data.Source)


def test_a_file_is_found_again_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_text("hello there")
    monkeypatch.chdir(tmp_path)
    values = data.Text(1, 3, "t.txt").to_dict()
    monkeypatch.chdir("/")
    assert data.from_dict(values).draw(0)[0].shape == (1, 3)


def test_needed_vocab_is_one_more_than_the_largest_token(tmp_path):
    (tmp_path / "t").write_text("abc")
    assert data.Text(1, 1, str(tmp_path / "t")).needed_vocab() == ord("c") + 1
    assert data.Random(1, 1, 12).needed_vocab() == 12


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\xff\xfe\x00a", "not UTF-8"), (b"abc\0def", "is binary"), (b"ab", "at most 1 token")],
)
def test_a_text_that_cannot_be_used_is_named(tmp_path, content, words):
    path = tmp_path / "t.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as error:
        data.text_batch(tokens=8, path=path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_an_unreadable_text_is_named(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        data.text_batch(path=tmp_path / "missing")
    with pytest.raises(DataError, match="Is a directory"):
        data.text_batch(path=tmp_path)


@pytest.mark.parametrize(("field", "value"), [("batch", 0), ("tokens", -1), ("batch", True), ("vocab", 0)])
def test_sizes_are_checked(field, value):
    with pytest.raises(DataError, match=f"{field} is {value!r}: give a whole number of at least 1"):
        data.Random(**{field: value})


def test_an_unknown_source_is_refused():
    with pytest.raises(DataError, match="did you mean 'text'"):
        data.from_dict({"source": "texts"})
