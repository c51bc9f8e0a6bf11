"""A user's own task whose step needs more memory than any machine has."""

from __future__ import annotations

from typing import Any

from tests.engine.mytask import Line

SIDE = 600_000
"""Of a square of float32: 1.4 TB."""


class LargeStep(Line):
    """Fits a line, and wastes memory in every step."""

    def predict(self, model: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """`y`, to which the least product of a great many is added."""
        import torch

        rows = torch.arange(SIDE * 2, device=batch["x"].device).float().reshape(SIDE, 2)
        square = (rows * batch["x"][0]) @ rows.T
        return {"y": model(batch["x"]) + square.sort(dim=1).values[0, 0]}
