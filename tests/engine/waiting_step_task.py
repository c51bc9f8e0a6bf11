"""Tasks that make a step wait: one for an operation without a lowering, one for a value that it reads."""

from __future__ import annotations

from typing import Any

from tests.engine.curve_task import CurveTask


class Median(CurveTask):
    """Takes a median, which runs on the host CPU."""

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """As the base class, and also reads a median that is not used."""
        import torch

        outcomes = super().outcomes(predictions, batch)
        return {**outcomes, "loss": outcomes["loss"] + 0.0 * torch.median(predictions["y"].detach())}


class Reading(CurveTask):
    """Reads the mean of each step's loss."""

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """As before."""
        outcomes = super().outcomes(predictions, batch)
        if outcomes["loss"].device.type == "xla":
            outcomes["loss"].mean().item()
        return outcomes


class Shifting(CurveTask):
    """Shifts each batch by another number of rows, from the fourth batch on."""

    batches = 0

    def outcomes(self, predictions: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
        """As the base class, with predictions that are shifted and shifted back."""
        import torch

        if torch.is_grad_enabled():
            Shifting.batches += 1
        rows = max(0, min(Shifting.batches - 3, 7))
        shifted = torch.roll(predictions["y"], rows, 0)
        return super().outcomes({**predictions, "y": torch.roll(shifted, -rows, 0)}, batch)
