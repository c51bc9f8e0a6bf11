"""Task `sentiment`: predicts a binary label, a class or a number per text of a user's table, with an LSTM.

The weights include the vocabulary, so that predictions need no other file. Importing this module does not import torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from engine import scores
from engine.data import text
from engine.data.options import SourceOptions, TextData
from engine.data.text import Vocabulary
from engine.errors import Refused
from engine.task import Dataset, Options, Sizes, Splits
from engine.tasks.labelled import Labelled

if TYPE_CHECKING:
    import torch


class SentimentData(TextData, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    label_kind: Literal["class", "binary", "float"] = "binary"
    """Kind of labels: 0 or 1 in one column, `binary`; one of several classes, `class`; or a number, `float`."""


class SentimentModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""

    embedding: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 64
    """Size of the embedding of a word."""
    hidden: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 64
    """Size of the LSTM's state."""
    layers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Number of LSTM layers."""
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.3
    """Share of features dropped between layers and before the last one in training."""
    pool: Literal["mean", "last"] = "mean"
    """How the states are pooled: their mean over the words, or the state of the last word."""


class Sentiment(Labelled):
    """Predicts whether a text is positive, its class, or a number such as its rating."""

    data_options: ClassVar[type[Options]] = SentimentData
    model_options: ClassVar[type[Options]] = SentimentModel

    def __init__(self) -> None:
        super().__init__()
        self._binary = True
        self._vocabulary: Vocabulary | None = None
        self._net: Any = None

    def configure(self, data: SentimentData, model: SentimentModel) -> None:
        """The kind of label that is learned."""
        super().configure(data, model)
        self._binary = data.label_kind == "binary"

    def sizes(self, data: SourceOptions, seed: int) -> Sizes:
        """Sizes of the splits in the table."""
        assert isinstance(data, SentimentData)
        if self._binary and not isinstance(data.label, str):
            raise Refused.of("data.label", "the label of a sentiment is binary: name one column of 0 and 1")
        if data.pad != "right":
            raise Refused.of("data.pad", "the LSTM needs padding on the right")
        return super().sizes(data, seed)

    def load(self, data: SentimentData, seed: int) -> Splits:
        """Texts as word numbers, padded to one length; the vocabulary is that of the training texts."""
        splits = text.load(data, seed)
        assert isinstance(splits.train, text.Texts)
        self._vocabulary = splits.train.vocabulary
        self._learn_names(data, splits.train.rows)
        self._learn_targets(splits.train.rows, splits.train.which)
        return splits

    def model(self, options: SentimentModel, data: SentimentData) -> torch.nn.Module:
        """Embedding, LSTM, last layer, for the maximum vocabulary size of the options."""
        from engine.models.text_classifier import LstmClassifier, WordList

        if not self._names:
            self._learn_names(data, None)
        self._net = LstmClassifier(
            data.max_words,
            options.embedding,
            options.hidden,
            layers=options.layers,
            dropout=options.dropout,
            pool=options.pool,
            num_logits=1 if self._binary else len(self._names),
        )
        self._net.words = WordList(self._vocabulary.words if self._vocabulary is not None else ())
        return self._finished(self._net)

    def predict(self, model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`logit` float32 [n]; for classes `logits` [n, classes], for numbers `values` [n, labels]."""
        outputs = model(batch["words"], batch["length"])
        return {"logit": outputs[:, 0]} if self._binary else self._answer(model, outputs)

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cross-entropy and whether the answer is correct, float32 [n] each; for numbers squared and absolute error."""
        if not self._binary:
            return super().outcomes(predictions, batch)
        from engine import losses

        logit, label = predictions["logit"], batch["label"].reshape(-1)
        right = ((logit > 0) == (label > 0.5)).float()
        return {"loss": losses.bce_with_logits(logit, label), "accuracy": right}

    def judged(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Predictions with the labels."""
        if not self._binary:
            return super().judged(predictions, batch)
        return {"logit": predictions["logit"].float(), "label": batch["label"].reshape(-1)}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """`auc`; for classes and numbers the scores of `Labelled`."""
        if not self._binary:
            return super().score(judged)
        return {"auc": scores.auc(judged["label"], judged["logit"]).value}

    def inputs(self, data: SentimentData, source: Path) -> Dataset:
        """Texts of a table, encoded with the vocabulary in the weights."""
        return text.inputs(data, source, self._known_words(), self.classes)

    def test_split(self, data: SentimentData) -> Dataset:
        """The rows with split `test`, encoded with the vocabulary in the weights."""
        return text.load_test(data, self._known_words(), self.classes)

    def _known_words(self) -> Vocabulary:
        words = self._net.words.words if self._net is not None else ()
        if not words:
            raise ValueError("the weights contain no vocabulary; use weights saved by a run of this task")
        return Vocabulary(words)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The probability that the text is positive, or of each class; or the numbers."""
        if not self._binary:
            return super().columns(predictions)
        return {"probability positive": 1 / (1 + np.exp(-predictions["logit"].astype(np.float64)))}
