"""A user's own task that uses every optional method: scores, pictures, examples that cannot be used."""

from __future__ import annotations

from typing import Any, ClassVar

from engine.task import Options, Picture, Sizes, Splits, Task

NUM_TRAIN, NUM_VALID = 64, 21


class ShadesData(Options, frozen=True, kw_only=True):
    """Keys of `[data]`."""

    max_bad_rows: int = 0
    """How many shades may be left out."""
    bad: tuple[int, ...] = ()
    """Validation shades that cannot be used."""


class ShadesModel(Options, frozen=True, kw_only=True):
    """Keys of `[model]`."""


class Shades:
    """Shades from -1 to 1; the label is whether they are bright."""

    def __init__(self, size: int, bad: tuple[int, ...]) -> None:
        self._size = size
        self._bad = bad

    def __len__(self) -> int:
        return self._size

    def fetch(self, indices: Any) -> dict[str, Any]:
        """`shade` and `bright`."""
        import torch

        from engine.errors import BadExample

        for index in indices.tolist():
            if index in self._bad:
                raise BadExample(index, f'shades.csv row {index + 2}, column "shade"', "it is empty")
        shade = torch.from_numpy(indices).float().mul(2 / self._size).sub(1).unsqueeze(1)
        return {"shade": shade, "bright": (shade[:, 0] > 0).float()}


class Bright(Task):
    """Classifies bright and dark."""

    data_options: ClassVar[type[Options]] = ShadesData
    model_options: ClassVar[type[Options]] = ShadesModel
    meters: ClassVar[tuple[str, ...]] = ("loss",)
    scores: ClassVar[tuple[str, ...]] = ("hits", "seen")

    def sizes(self, data: ShadesData, seed: int) -> Sizes:
        """Fixed."""
        return Sizes(NUM_TRAIN, NUM_VALID)

    def load(self, data: ShadesData, seed: int) -> Splits:
        """Shades."""
        return Splits(Shades(NUM_TRAIN, ()), Shades(NUM_VALID, data.bad))

    def model(self, options: ShadesModel, data: ShadesData) -> Any:
        """One weight and one bias."""
        import torch

        return torch.nn.Linear(1, 1)

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`logit` [n]."""
        return {"logit": model(batch["shade"])[:, 0]}

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Binary cross-entropy."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        return {"loss": binary_cross_entropy_with_logits(predictions["logit"], batch["bright"], reduction="none")}

    def judged(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Logits with labels."""
        return {"logit": predictions["logit"], "bright": batch["bright"]}

    def score(self, judged: dict[str, Any]) -> dict[str, float]:
        """The number of correct answers, and of all."""
        hits = ((judged["logit"] > 0) == (judged["bright"] > 0)).sum()
        return {"hits": float(hits), "seen": float(len(judged["logit"]))}

    def pictures(self, batch: dict[str, Any], predictions: dict[str, Any]) -> list[Picture]:
        """Each shade as one gray pixel."""
        import numpy as np

        grays = ((batch["shade"][:, 0] + 1) * 127).astype(np.uint8)
        return [Picture("input", f"shade {place}", np.full((1, 1, 3), gray)) for place, gray in enumerate(grays)]
