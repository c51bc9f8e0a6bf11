"""Where losses and gradients begin to be NaN or infinite, found in what a report has fetched anyway.

Every process of a run looks at the figures of all cores, so all find the same in the same report. Must not touch a
device, and must not decide what is done about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from tputui.telemetry import events as ev

NORMS_TOLD = 8
"""Steps whose gradient norm is told, the bad one among them."""
NAMED = 3
"""Cores or weights that are told by name."""

Losses = npt.NDArray[np.float32]


class NonFiniteStart(NamedTuple):
    """A beginning."""

    metric: str
    """`loss` or `gradient norm`."""
    row: int
    """Place of the step among those that were looked at."""
    columns: list[int]
    """Places of the cores; all of them where it is of none alone."""
    value: float
    others_row: int | None
    """Place of the first step in which another core's loss was not finite either."""


class NonFiniteDetector:
    """Looks at the steps of one split in order, and tells when they begin to be bad."""

    def __init__(self, split: ev.Split, core_ids: Sequence[int], policy: str, tell: Callable[[ev.Event], None]) -> None:
        """`core_ids` are the cores of the columns."""
        self.found: str | None = None
        """What began, in one sentence; None while everything is finite."""
        self._split = split
        self._core_ids = list(core_ids)
        self._policy = policy
        self._tell = tell
        self._norms: list[float] = []

    def look(self, first_step: int, losses: Losses, norms: Sequence[float] = (), *, apart: bool = True) -> None:
        """Looks at the losses, [steps, cores], and the gradient norms of the steps from `first_step` on.

        `apart` says that each column is of its own core. In an evaluation every row is of the step `first_step`.
        """
        began = beginning(losses, norms)
        if began is not None and self.found is None:
            event = self._event(began, first_step, losses, norms, apart=apart)
            self.found = event.text
            self._tell(event)
        elif self.found is not None and losses.size and not _is_bad(losses[-1], norms[-1:]):
            # It has passed, and may begin again.
            self.found = None
        self._norms = [*self._norms, *norms][-NORMS_TOLD:]

    def _event(
        self, began: NonFiniteStart, first_step: int, losses: Losses, norms: Sequence[float], *, apart: bool
    ) -> ev.NonFiniteFound:
        training = self._split == "train"
        at = [first_step + row if training else first_step for row in range(len(losses))]
        known = [*self._norms, *norms[: began.row + 1]][-NORMS_TOLD:] if len(norms) else []
        several = apart and len(self._core_ids) > 1 and began.metric == "loss"
        everywhere = len(began.columns) == len(self._core_ids)
        cores = [self._core_ids[column] for column in began.columns] if several else []
        others = at[began.others_row] if began.others_row is not None and several else None
        where = ""
        if several:
            where = " on all cores at once" if everywhere else f" on {_cores(cores)}"
            if not everywhere and training:
                where += _lead(others, at[began.row], at[-1])
        when = f"at step {at[began.row]}" if training else f"in the evaluation after step {first_step}"
        shown = ", ".join(f"{norm:.3g}" for norm in known)
        text = f"the {began.metric} began to be {began.value:g}{where} {when}"
        return ev.NonFiniteFound(
            t=time.time(),
            text=f"{text}; gradient norm up to there: {shown}" if shown else text,
            split=self._split,
            metric=began.metric,
            step=at[began.row],
            cores=cores,
            value=began.value,
            others_step=others,
            until_step=at[-1],
            gradient_norms=known,
            policy=self._policy,
        )


def beginning(losses: Losses, norms: Sequence[float]) -> NonFiniteStart | None:
    """The first step, of [steps, cores], with a loss or a gradient norm that is not finite."""
    bad: npt.NDArray[np.bool_] = ~np.isfinite(losses)
    loss_row = _first(bad.any(axis=1))
    norm_row = _first(~np.isfinite(np.array(norms, dtype=np.float32)))
    if norm_row is not None and (loss_row is None or norm_row < loss_row):
        return NonFiniteStart("gradient norm", norm_row, list(range(losses.shape[1])), float(norms[norm_row]), None)
    if loss_row is None:
        return None
    columns: list[int] = np.flatnonzero(bad[loss_row]).tolist()
    others_row = _first(np.delete(bad, columns, axis=1).any(axis=1))
    return NonFiniteStart("loss", loss_row, columns, float(losses[loss_row, columns[0]]), others_row)


def _first(marked: npt.ArrayLike) -> int | None:
    """Place of the first that is marked."""
    places = np.flatnonzero(marked)
    return int(places[0]) if len(places) else None


def unfit(weights: Mapping[str, object], buffers: Collection[str]) -> list[str]:
    """Names of the weights that no run should go on from: with a NaN, or an infinity where that cannot be meant.

    A network may keep infinities in a buffer, such as a mask, and what is no tensor at all.
    """
    return [name for name, value in weights.items() if _is_unfit(value, is_buffer=name in buffers)]


def named(names: Iterable[str]) -> str:
    """The first names, and how many there are besides."""
    known = list(names)
    more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
    return f"{', '.join(known[:NAMED])}{more}"


def _is_bad(losses: Losses, norms: Sequence[float]) -> bool:
    return not (np.isfinite(losses).all() and np.isfinite(norms).all())


def _is_unfit(value: object, *, is_buffer: bool) -> bool:
    if not isinstance(value, torch.Tensor) or not torch.is_floating_point(value):
        return False
    if bool(torch.isfinite(value.sum())):
        # No NaN or infinity is lost in a sum, and it takes a tenth of the time to look at each.
        return False
    bad = torch.isnan(value) if is_buffer else ~torch.isfinite(value)
    return bool(bad.any())


def _cores(cores: list[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {named(str(core) for core in cores)}"


def _lead(others: int | None, step: int, until: int) -> str:
    """How much earlier it began there than elsewhere."""
    if others is None:
        return f", and on no other up to step {until},"
    return f", {others - step} step{'s' if others - step > 1 else ''} before the first other one,"
