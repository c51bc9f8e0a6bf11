"""Texts encoded to one static length."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data import text
from engine.data.options import TextData
from engine.data.text import Vocabulary, encode, tokens
from tests.engine.data.files import write_table

PADS: tuple[Literal["left", "right"], ...] = ("left", "right")


def test_tokens_are_lower_case_words() -> None:
    assert tokens("It's GOOD<br />don\u2019t, 10/10 \u00c9t\u00e9!") == [
        "it's", "good", "br", "don't", "10", "10", "\u00e9t\u00e9",
    ]  # fmt: skip


@given(st.lists(st.text(max_size=40), min_size=1, max_size=8), st.integers(1, 12), st.sampled_from(PADS))
@settings(max_examples=100)
def test_known_words_come_back_and_the_shape_is_static(texts: list[str], length: int, pad: str) -> None:
    vocabulary = Vocabulary.of(texts, max_words=100_000)
    encoded = encode(texts, vocabulary, length, pad)
    assert encoded.words.shape == (len(texts), length)
    for row, words in enumerate(map(tokens, texts)):
        assert vocabulary.text(encoded.words[row].tolist()) == " ".join(words[:length])
        count = min(length, len(words))
        assert encoded.lengths[row] == count
        kept = encoded.words[row, length - count :] if pad == "left" else encoded.words[row, :count]
        assert (kept >= 2).all()
        assert (encoded.words[row] > 0).sum() == count


def test_vocabulary_is_ordered_by_frequency_then_alphabet() -> None:
    vocabulary = Vocabulary.of(["b a c c", "z b a"], max_words=5)
    assert vocabulary.words == ("a", "b", "c")
    assert len(vocabulary) == 5
    assert vocabulary.numbers("c z A") == [4, 1, 2]
    assert Vocabulary.of(["b a c c"], max_words=9, min_count=2).words == ("c",)


@given(st.lists(st.text(max_size=30), max_size=8))
@settings(max_examples=40)
def test_vocabulary_round_trips(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("words") / "vocabulary.json"
    made = Vocabulary.of(texts, max_words=50)
    made.save(path)
    assert Vocabulary.load(path).words == made.words


@pytest.mark.parametrize("content", ["", "[]", '{"first": 2, "words": ["a", "a"]}', '{"first": 2, "words": [1]}'])
def test_non_vocabulary_file_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "v.json").write_text(content)
    with pytest.raises(ValueError, match=r"v\.json is not a vocabulary"):
        Vocabulary.load(tmp_path / "v.json")


@pytest.fixture
def reviews(tmp_path: Path) -> str:
    """Ten short reviews, each with a unique word."""
    rows = (f'"a {"good" if number % 2 else "bad"} film, number{number}",{number % 2}' for number in range(10))
    return write_table(tmp_path / "reviews.csv", "text,label", *rows)


def options(source: str, **keys: Any) -> TextData:
    return TextData(source=source, **{"length": 6, "folds_by": "stratified", **keys})


def test_vocabulary_uses_training_texts_only(reviews: str) -> None:
    splits = text.load(options(reviews), 0)
    train, valid = (split.fetch(np.arange(len(split))) for split in (splits.train, splits.valid))
    assert train["words"].shape == (8, 6)
    assert train["words"].dtype == torch.int64
    assert train["length"].tolist() == [4] * 8
    assert (train["words"] != 1).all()
    assert (valid["words"] == 1).sum() == 2, "the own word of each validation text"
    assert sorted(valid["label"].tolist()) == [0, 1]


def test_a_prediction_uses_the_vocabulary_of_the_training(reviews: str, tmp_path: Path) -> None:
    wanted = options(reviews, pad="left")
    path = tmp_path / "vocabulary.json"
    train = text.load(wanted, 0).train
    assert isinstance(train, text.Texts)
    train.vocabulary.save(path)
    source = Path(write_table(tmp_path / "new.csv", "text", "a bad film", "unheard good"))
    given_rows = text.inputs(wanted, source, Vocabulary.load(path)).fetch(np.array([1, 0]))
    assert given_rows.keys() == {"words", "length"}
    assert given_rows["length"].tolist() == [2, 3]
    assert given_rows["words"][0, :4].tolist() == [0, 0, 0, 0]
    assert given_rows["words"][0, 4] == 1
    again = text.load(options(reviews, vocabulary=str(path)), 5).train
    assert isinstance(again, text.Texts)
    assert again.vocabulary.words == Vocabulary.load(path).words


def test_an_empty_text_is_named(tmp_path: Path) -> None:
    source = write_table(tmp_path / "t.csv", "text,label", "fine,1", '"",0', "bad,0")
    with pytest.raises(ValueError, match=r"t\.csv row 3, column text: the cell is empty"):
        text.load(options(source), 0)
