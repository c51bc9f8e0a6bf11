"""Base of the tasks with labelled examples: one class, several binary labels, or numbers per example.

Subclasses define the examples and the network, whose outputs are [n, labels]. Numbers are learned in units of their
standard deviation in the training rows, which is saved with the weights. Importing this module does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from engine import scores
from engine.data import sources
from engine.data.options import SourceOptions
from engine.data.rows import Ints, Rows
from engine.errors import Refused
from engine.task import Sizes, Task

if TYPE_CHECKING:
    import torch

NUMBER_METERS, NUMBER_SCORES = ("loss", "mae"), ("rmse", "r2")
"""Meters if labels are numbers."""
LABELS_SHOWN = 3
"""Number of labels of one example in the title of its picture."""
LABELS_SCORED = 20
"""With more labels than this, scores are not computed per label."""


class Labelled(Task):
    """A task whose loss and scores follow from `label_kind`: class, binary or float."""

    meters: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    scores: ClassVar[tuple[str, ...]] = ("auc",)

    def __init__(self) -> None:
        self._classes = False
        self._names: tuple[str, ...] = ()
        self._weights: list[float] = []
        """Weight of each label or class in the loss; empty if all are 1."""
        self._numbers = False
        self._targets: tuple[list[float], list[float]] | None = None
        """Mean and standard deviation of each float label, in the training rows."""

    def configure(self, data: Any, model: Any) -> None:
        """Float labels have other meters."""
        self._numbers = data.label_kind == "float"
        if self._numbers:
            # Class variables by their type, because most tasks have the same meters whatever their options.
            vars(self).update(meters=NUMBER_METERS, scores=NUMBER_SCORES)

    def sizes(self, data: SourceOptions, seed: int) -> Sizes:
        """Sizes of the splits. Raises `Refused` if there is no label column, or an option does not fit the kind of
        labels."""
        if not data.label:
            raise Refused.of("data.label", "no column is named, so there is nothing to predict")
        if self._numbers and getattr(data, "balanced", False):
            raise Refused.of("data.balanced", "float labels cannot be balanced; remove it")
        return sources.sizes(data, seed)

    def num_folds(self, data: SourceOptions) -> int:
        """The class names."""
        return sources.num_folds(data)

    def outcomes(self, predictions: dict[str, torch.Tensor], batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Cross-entropy over classes or labels and the share of correct labels, float32 [n] each; for numbers the mean
        squared error in units of their standard deviation, and the mean absolute error."""
        from engine import losses

        if self._numbers:
            values, spread = predictions["values"], predictions["spread"]
            distance = values - batch["label"].reshape(values.shape)
            return {"loss": ((distance / spread) ** 2).mean(dim=1), "mae": distance.abs().mean(dim=1)}
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
        """Logits or numbers with the labels."""
        if self._numbers:
            return {"values": predictions["values"], "label": batch["label"]}
        return {"logits": predictions["logits"].float(), "label": batch["label"]}

    def score(self, judged: dict[str, npt.NDArray[Any]]) -> dict[str, float]:
        """`auc`, the mean over the labels, and `ap`, the average precision; also per label. For numbers `rmse` over all
        labels and `r2`, the mean over the labels; also per label."""
        if self._numbers:
            return self._number_scores(judged["values"], judged["label"])
        logits, label = judged["logits"], judged["label"]
        targets = label.reshape(logits.shape) if not self._classes else np.eye(logits.shape[1])[label]
        by_auc = scores.by_label(scores.auc, targets, logits, self._names)
        by_ap = scores.by_label(scores.average_precision, targets, logits, self._names)
        figures = {"auc": by_auc.macro.value, "ap": by_ap.macro.value}
        if 1 < len(self._names) <= LABELS_SCORED:
            figures |= {f"auc {name}": score.value for name, score in zip(self._names, by_auc.each, strict=True)}
        return figures

    def _number_scores(self, values: npt.NDArray[Any], label: npt.NDArray[Any]) -> dict[str, float]:
        label = label.reshape(values.shape)
        pairs = {name: (label[:, place], values[:, place]) for place, name in enumerate(self._names)}
        by_name = {name: (scores.rmse(*pair).value, scores.r2(*pair).value) for name, pair in pairs.items()}
        figures = {"rmse": scores.rmse(label, values).value, "r2": float(np.mean([r2 for _, r2 in by_name.values()]))}
        if 1 < len(self._names) <= LABELS_SCORED:
            figures |= {f"rmse {name}": rmse for name, (rmse, _) in by_name.items()}
            figures |= {f"r2 {name}": r2 for name, (_, r2) in by_name.items()}
        return figures

    def _finished(self, net: torch.nn.Module) -> torch.nn.Module:
        """The network; for numbers, with their mean and standard deviation as buffers."""
        import torch

        if self._numbers:
            count = len(self._names)
            mean, spread = self._targets or ([0.0] * count, [1.0] * count)
            net.register_buffer("target_mean", torch.tensor(mean, dtype=torch.float32))
            net.register_buffer("target_spread", torch.tensor(spread, dtype=torch.float32))
        return net

    def _answer(self, model: torch.nn.Module, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Outputs [n, labels] as `logits`; for numbers as `values`, in the units of the labels."""
        import torch

        if not self._numbers:
            return {"logits": outputs}
        mean, spread = model.get_buffer("target_mean"), model.get_buffer("target_spread")
        return {"values": outputs.float() * spread + mean, "spread": spread + torch.zeros_like(outputs)}

    def _told(self, label: npt.NDArray[Any]) -> str:
        """The label as text: the class, the labels that are 1, or the numbers."""
        if self._numbers:
            return ", ".join(f"{value:.4g}" for value in label.reshape(-1)[:LABELS_SHOWN])
        if self._classes:
            return self._names[int(label)]
        positive = [name for name, value in zip(self._names, label.reshape(-1), strict=True) if value > 0.5]
        more = f" and {len(positive) - LABELS_SHOWN} more" if len(positive) > LABELS_SHOWN else ""
        if len(self._names) == 1:
            return f"{self._names[0]} {int(bool(positive))}"
        return (", ".join(positive[:LABELS_SHOWN]) + more) or "none"

    def _guessed(self, predictions: dict[str, npt.NDArray[Any]], row: int) -> str:
        """The prediction as text, with the probability of a class or single label."""
        if self._numbers:
            return self._told(predictions["values"][row])
        shares = _shares(predictions["logits"][row : row + 1].astype(np.float64), classes=self._classes)[0]
        if self._classes:
            return f"{self._names[int(shares.argmax())]} {shares.max():.0%}"
        if len(self._names) == 1:
            return f"{self._names[0]} {shares[0]:.0%}"
        return self._told(shares)

    def columns(self, predictions: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The probability of each label, and the most likely class; or the numbers."""
        if self._numbers:
            return {f"predicted {name}": predictions["values"][:, place] for place, name in enumerate(self._names)}
        shares = _shares(predictions["logits"].astype(np.float64), classes=self._classes)
        by_name = {f"probability {name}": shares[:, place] for place, name in enumerate(self._names)}
        return {"class": np.array(self._names)[shares.argmax(axis=1)], **by_name} if self._classes else by_name

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names of the network; empty if labels are not classes."""
        return self._names if self._classes else ()

    def _learn_names(self, data: SourceOptions, rows: Rows | None) -> None:
        """Names of the labels: from the options if set, else from the rows."""
        self._classes = not self._numbers and data.label_kind == "class"
        if rows is not None:
            self._names = rows.label_names
        elif self._classes:
            self._names = tuple(data.classes) or sources.open_rows(data).label_names
        else:
            self._names = (data.label,) if isinstance(data.label, str) else tuple(data.label)

    def _learn_targets(self, rows: Rows, train: Ints) -> None:
        """Mean and standard deviation of the numbers in the training rows; a constant label is only shifted. Of classes
        and binary labels the entropy of their frequencies, in nats."""
        if rows.labels is None:
            return
        if not self._numbers:
            held = rows.labels[train]
            shares = np.bincount(held) / len(held) if self._classes else np.array([held.mean(0), 1 - held.mean(0)])
            terms = -shares * np.log(np.where(shares > 0, shares, 1.0))
            self.guess_loss = float(terms.sum() if self._classes else terms.sum(0).mean())
        else:
            held = rows.labels[train].astype(np.float64)
            spread = held.std(axis=0)
            self._targets = held.mean(axis=0).tolist(), np.where(spread > 0, spread, 1.0).tolist()

    def _balance(self, rows: Rows, train: Ints) -> None:
        """Sets the label weights by how rare each label is in the training rows."""
        if rows.labels is not None:
            self.guess_loss = None
            self._weights = class_weights(rows.labels[train], len(self._names))


def _shares(logits: npt.NDArray[np.float64], *, classes: bool) -> npt.NDArray[np.float64]:
    """Probabilities of logits [n, labels]; those of classes add up to 1."""
    if not classes:
        alone: npt.NDArray[np.float64] = 1 / (1 + np.exp(-logits))
        return alone
    shares: npt.NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def class_weights(labels: npt.NDArray[Any], num_labels: int) -> list[float]:
    """Label weights float32 [labels] from labels [rows] (classes) or [rows, labels] (0 or 1); 1 for one that never
    occurs."""
    if labels.ndim == 1:
        counts = np.bincount(labels.astype(np.int64), minlength=num_labels).astype(float)
        shares = np.where(counts > 0, len(labels) / np.maximum(counts, 1) / max(1, (counts > 0).sum()), 1.0)
        return [float(share) for share in shares]
    positives = labels.sum(axis=0)
    return [float((len(labels) - count) / count) if count else 1.0 for count in positives]


def _constants(values: list[float], like: torch.Tensor) -> torch.Tensor:
    """Numbers as a tensor [values], created on the device: a host tensor would be transferred at every step."""
    import torch

    return torch.stack([torch.full((), value, device=like.device) for value in values])
