"""What tasks share whose examples have labels: one class, or several labels of which each is there or not.

They differ in what an example is and in the network, which gives `logits` [examples, labels]. The top of this module
is torch-free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from engine import scores
from engine.data import sources
from engine.data.options import SourceOptions
from engine.data.rows import Ints, Rows
from engine.errors import Problem, Refused
from engine.tasks.base import Sizes, Task

if TYPE_CHECKING:
    import torch

MOST_TOLD = 3
"""Labels of one example that are named above its picture."""
MOST_NAMED = 20
"""More labels than this are not scored one by one."""


class Labelled(Task):
    """A task whose loss and figures are those of labels."""

    meters: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    scores: ClassVar[tuple[str, ...]] = ("auc",)

    def __init__(self) -> None:
        self._classes = False
        self._names: tuple[str, ...] = ()
        self._weights: list[float] = []
        """Of each label or class in the loss; empty where all count the same."""

    def sizes(self, data: SourceOptions, seed: int) -> Sizes:
        """As the source says. Raises `Refused` where no labels of these kinds are asked for."""
        if not data.label:
            raise Refused([Problem("data.label", "it names no column, so there is nothing to tell of an example")])
        if data.label_kind == "float":
            message = f'the task tells labels, not numbers; write "class" or "binary", not "{data.label_kind}"'
            raise Refused([Problem("data.label_kind", message)])
        return sources.sizes(data, seed)

    def num_folds(self, data: SourceOptions) -> int:
        """As the keys or the source say."""
        return sources.num_folds(data)

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cross-entropy over classes or labels, and the share of the labels that is right."""
        from engine import losses

        logits, label = predictions["logits"], batch["label"]
        if self._classes:
            loss = losses.cross_entropy(logits, label)
            if self._weights:
                loss = loss * _constants(self._weights, logits)[label]
            return {"loss": loss, "accuracy": (logits.argmax(dim=1) == label).float()}
        weight = _constants(self._weights, logits) if self._weights else 1.0
        label = label.reshape(logits.shape)
        right = ((logits > 0) == (label > 0.5)).float().mean(dim=1)
        return {"loss": losses.bce_with_logits(logits, label, pos_weight=weight), "accuracy": right}

    def judged(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Logits beside labels."""
        return {"logits": predictions["logits"].float(), "label": batch["label"]}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """`auc`, the mean over the labels, and `ap`, the average precision; each label's own beside them."""
        logits, label = judged["logits"], judged["label"]
        targets = label.reshape(logits.shape) if not self._classes else np.eye(logits.shape[1])[label]
        by_auc = scores.by_label(scores.auc, targets, logits, self._names)
        by_ap = scores.by_label(scores.average_precision, targets, logits, self._names)
        found = {"auc": by_auc.macro.value, "ap": by_ap.macro.value}
        if 1 < len(self._names) <= MOST_NAMED:
            found |= {f"auc {name}": one.value for name, one in zip(self._names, by_auc.each, strict=True)}
        return found

    def _told(self, label: npt.NDArray[Any]) -> str:
        """A label in words: the class, or which of several labels are there."""
        if self._classes:
            return self._names[int(label)]
        there = [name for name, value in zip(self._names, label.reshape(-1), strict=True) if value > 0.5]
        more = f" and {len(there) - MOST_TOLD} more" if len(there) > MOST_TOLD else ""
        if len(self._names) == 1:
            return f"{self._names[0]} {int(bool(there))}"
        return (", ".join(there[:MOST_TOLD]) + more) or "none"

    def _guessed(self, logits: npt.NDArray[Any]) -> str:
        """A prediction in words, with the probability of one class or label."""
        shares = _shares(logits.astype(np.float64)[None], classes=self._classes)[0]
        if self._classes:
            return f"{self._names[int(shares.argmax())]} {shares.max():.0%}"
        if len(self._names) == 1:
            return f"{self._names[0]} {shares[0]:.0%}"
        return self._told(shares)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The probability of each label, and the likeliest class."""
        shares = _shares(predictions["logits"].astype(np.float64), classes=self._classes)
        by_name = {f"probability {name}": shares[:, place] for place, name in enumerate(self._names)}
        return {"class": np.array(self._names)[shares.argmax(axis=1)], **by_name} if self._classes else by_name

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes that the network tells; none where labels are no classes."""
        return self._names if self._classes else ()

    def _learn_names(self, data: SourceOptions, rows: Rows | None) -> None:
        """What the labels are called: by the keys where they say it, else by the rows."""
        self._classes = data.label_kind == "class"
        if rows is not None:
            self._names = rows.label_names
        elif self._classes:
            self._names = tuple(data.classes) or sources.open_rows(data).label_names
        else:
            self._names = (data.label,) if isinstance(data.label, str) else tuple(data.label)

    def _balance(self, rows: Rows, train: Ints) -> None:
        """A rare label counts more from now on, as rare as it is in the training rows."""
        if rows.labels is not None:
            self._weights = class_weights(rows.labels[train], len(self._names))


def _shares(logits: npt.NDArray[np.float64], *, classes: bool) -> npt.NDArray[np.float64]:
    """Probabilities of logits [examples, labels]: of classes they add up to 1."""
    if not classes:
        alone: npt.NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return alone
    shares: npt.NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def class_weights(labels: npt.NDArray[Any], num_labels: int) -> list[float]:
    """Weights of labels [rows] (classes) or [rows, labels] (0 or 1); one that never occurs counts once."""
    if labels.ndim == 1:
        counts = np.bincount(labels.astype(np.int64), minlength=num_labels).astype(float)
        shares = np.where(counts > 0, len(labels) / np.maximum(counts, 1) / max(1, (counts > 0).sum()), 1.0)
        return [float(share) for share in shares]
    positives = labels.sum(axis=0)
    return [float((len(labels) - count) / count) if count else 1.0 for count in positives]


def _constants(values: list[float], like: torch.Tensor) -> torch.Tensor:
    """Numbers as a tensor [values] that is made on the device: sent there, it would be a transfer a step."""
    import torch

    return torch.stack([torch.full((), value, device=like.device) for value in values])
