"""Whether a text speaks well or ill of something: an LSTM over its words. For a user's own table of texts and labels.

The weights carry the vocabulary, so that a prediction needs nothing else. The top of this module is torch-free.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from engine import scores
from engine.data import sources, text
from engine.data.options import TextData
from engine.data.words import Vocabulary
from engine.errors import Problem, Refused
from engine.tasks.base import Dataset, Options, Sizes, Splits, Task

if TYPE_CHECKING:
    import torch


class SentimentData(TextData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    label_kind: Literal["class", "binary", "float"] = "binary"
    """What labels are: 0 or 1 in one column, `binary`; nothing else is learned here."""


class SentimentModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    embedding: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 64
    """Numbers that stand for a word."""
    hidden: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 64
    """Numbers in the LSTM's state."""
    layers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """LSTMs, each over the states of the one before."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.3
    """Share of the features that a training step drops between layers and before the last one."""
    pool: Literal["mean", "last"] = "mean"
    """What is made of the states: their mean over the words, or the last word's."""


class Sentiment(Task):
    """Tells whether a text is positive."""

    data_options: ClassVar[type[Options]] = SentimentData
    model_options: ClassVar[type[Options]] = SentimentModel
    meters: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    scores: ClassVar[tuple[str, ...]] = ("auc",)

    def __init__(self) -> None:
        self._vocabulary: Vocabulary | None = None
        self._net: Any = None

    def sizes(self, data: SentimentData, seed: int) -> Sizes:
        """As the table says."""
        if data.label_kind != "binary" or not isinstance(data.label, str):
            raise Refused([Problem("data.label_kind", "a sentiment is one binary label: name one column of 0 and 1")])
        if data.pad != "right":
            raise Refused([Problem("data.pad", "the LSTM reads from the left, so texts are padded on the right")])
        return sources.sizes(data, seed)

    def num_folds(self, data: SentimentData) -> int:
        """As the keys or the table say."""
        return sources.num_folds(data)

    def load(self, data: SentimentData, seed: int) -> Splits:
        """Texts as numbers, padded to one length; the vocabulary is that of the training texts."""
        splits = text.load(data, seed)
        assert isinstance(splits.train, text.Texts)
        self._vocabulary = splits.train.vocabulary
        return splits

    def model(self, options: SentimentModel, data: SentimentData) -> torch.nn.Module:
        """Embedding, LSTM, last layer; as many words as the keys allow, whichever they come to be."""
        from engine.models.text import LstmClassifier, WordList

        self._net = LstmClassifier(
            data.max_words,
            options.embedding,
            options.hidden,
            layers=options.layers,
            dropout=options.dropout,
            pool=options.pool,
        )
        self._net.words = WordList(self._vocabulary.words if self._vocabulary is not None else ())
        net: torch.nn.Module = self._net
        return net

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logit` [examples]."""
        return {"logit": model(batch["words"], batch["length"])[:, 0]}

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Binary cross-entropy, and whether the likelier answer is the right one."""
        from engine import losses

        logit, label = predictions["logit"], batch["label"].reshape(-1)
        right = ((logit > 0) == (label > 0.5)).float()
        return {"loss": losses.bce_with_logits(logit, label), "accuracy": right}

    def judged(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Logits beside labels."""
        return {"logit": predictions["logit"].float(), "label": batch["label"].reshape(-1)}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """`auc`."""
        return {"auc": scores.auc(judged["label"], judged["logit"]).value}

    def inputs(self, data: SentimentData, source: Path) -> Dataset:
        """Texts of a table, by the vocabulary in the weights."""
        return text.inputs(data, source, self._known_words())

    def test_split(self, data: SentimentData) -> Dataset:
        """Rows that say `test`, by the vocabulary in the weights."""
        return text.load_test(data, self._known_words())

    def _known_words(self) -> Vocabulary:
        words = self._net.words.words if self._net is not None else ()
        if not words:
            raise ValueError("the weights hold no vocabulary; take those that a run of this task saved")
        return Vocabulary(words)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The probability that the text is positive."""
        return {"probability positive": 1 / (1 + np.exp(-predictions["logit"].astype(np.float64)))}
