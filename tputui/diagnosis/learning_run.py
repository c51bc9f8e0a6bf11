"""`LearningRun`: the curves of a run as the rules about learning need them, whatever reported them."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from tputui import formatting as fmt
from tputui.diagnosis.curve import Curve
from tputui.diagnosis.verdict import RuleName, Verdict, VerdictStatus
from tputui.logs.tags import choice_rank, has_direction, is_falling, role_of
from tputui.state.chart_data import Segment
from tputui.state.metric_series import LOSS, LR, MetricSeries, MetricSource, metric_series
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.telemetry.logged_values import class_of, first_of

_NORM = re.compile(r"(?:.*[/_.])?(?:gnorm|grad(?:ient)?s?_?norm|total_norm)(?:[/_.].*)?|.*/grad_norm", re.IGNORECASE)
_ADVERSARIAL = re.compile(
    r"(?:.*[/_.])?(?:g|d|gen|disc|generator|discriminator|critic|adv|actor|policy|reward|return|rew|advantage|"
    r"explained_variance|approx_kl|ep_rew_mean|ep_len_mean)(?:[/_.].*)?",
    re.IGNORECASE,
)
"""Metrics of trainings whose loss need not fall: two networks against each other, and reinforcement learning."""
FAR_ENOUGH = 0.3
"""Share of a planned training before which a loss that has not fallen may still be in its warm-up."""
POINTS_MAX = 320
"""Values of a curve that most rules need."""
LOGGED_MAX = 256
"""Metrics that a script logged itself, losses and results of validation first."""
STEPS_FEW = 60
"""Steps before which a loss that has not fallen says nothing."""


class LearningRun:
    """The curves of a run. Losses fall; a result whose higher values are better is turned around."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        # The loss of single steps is taken from the snapshot: as points it would cost more than all rules.
        source = MetricSource.of(snapshot)._replace(loss=[])
        logged = first_of(source.logged, LOGGED_MAX, lambda view: class_of(view.name, view.split))
        self.series = metric_series(source._replace(logged=logged))
        self._by_name = {metric.name: metric for metric in self.series}
        losses = [metric for metric in self.series if choice_rank(metric.name) in (0, 1) and is_falling(metric.name)]
        ranked = sorted(losses, key=lambda metric: (not metric.train, choice_rank(metric.name) or 0))
        self._loss: MetricSeries | None = self._by_name.get(LOSS) or (ranked[0] if ranked else None)
        self.name = LOSS if snapshot.loss or self._loss is None else self._loss.name
        """Name of the loss."""
        norm = next((one for one in self.series if one.train and _NORM.fullmatch(one.name)), None)
        self.norm_name = norm.name if norm is not None else ""
        self.norm = Curve.of(norm.train if norm is not None else ())
        """The gradient norm, if it is reported."""

    @cached_property
    def fine_loss(self) -> Curve:
        """The training loss, as finely as it is known."""
        segments: Sequence[Segment] = self.snapshot.loss
        train = self._loss.train if self._loss is not None else []
        logged = next((one for one in self.snapshot.logged if (one.name, one.split) == (self.name, "train")), None)
        if not segments and logged is not None and len(logged.points) > len(train):
            segments = logged.points
        if not segments:
            return Curve.of(train)
        finite = [one for one in segments if one.num_values]
        return Curve([one.last_step for one in finite], [one.mean for one in finite],
                     ends_badly=segments[-1].num_bad > 0 and not segments[-1].num_values)  # fmt: skip

    @cached_property
    def loss(self) -> Curve:
        """The training loss over at most `POINTS_MAX` blocks of steps."""
        return self.fine_loss.coarse(POINTS_MAX)

    @cached_property
    def valid_loss(self) -> Curve:
        """The validation loss."""
        return Curve.of(self._loss.valid if self._loss is not None else ())

    @cached_property
    def judged(self) -> tuple[str, Curve, Curve]:
        """What overfitting is judged by: its name, training and validation. The loss, or else the main result."""
        if self.valid_loss.values or self.falls:
            return self.name, self.loss, self.valid_loss
        for one in sorted(self.series, key=lambda one: (not one.is_monitored, choice_rank(one.name) or 99)):
            if one.valid and one.train and has_direction(one.name):
                falls = is_falling(one.name)
                return one.name, Curve.of(one.train, falls=falls), Curve.of(one.valid, falls=falls)
        return self.name, self.loss, self.valid_loss

    @cached_property
    def epoch_means(self) -> Curve:
        """Mean training loss of every epoch that took as many examples; empty if epochs differ."""
        epochs = [epoch for epoch in self.snapshot.epochs if self.name in epoch.train]
        if len({epoch.train[self.name].count for epoch in epochs}) != 1:
            return Curve((), ())
        return Curve([one.step for one in epochs], [one.train[self.name].avg for one in epochs])

    @cached_property
    def lr(self) -> Curve:
        """The learning rate."""
        named = self._by_name.get(LR) or next((one for one in self.series if role_of(one.name) == "lr"), None)
        return Curve.of(named.train or named.valid if named is not None else ())

    @cached_property
    def results(self) -> list[tuple[str, str, Curve]]:
        """Losses and results whose better direction is known by their names, with their split."""
        named = [one for one in self.series if has_direction(one.name)]
        return [
            (one.name, split, Curve.of(points, falls=is_falling(one.name)))
            for one in named
            for split, points in (("valid", one.valid), ("train", one.train))
        ]

    @cached_property
    def is_adversarial(self) -> bool:
        """Whether the loss need not fall while the run learns."""
        return any(_ADVERSARIAL.fullmatch(one.name) for one in self.series if one.name != LR)

    @property
    def falls(self) -> bool:
        """Whether the run has a training loss."""
        return bool(self.loss.values)

    @property
    def steps(self) -> int:
        """Newest step of any curve."""
        newest = (points[-1].step for one in self.series for points in (one.train, one.valid) if points)
        return max([self.snapshot.steps, *newest])

    @property
    def is_one_epoch(self) -> bool:
        """Whether every example is seen once, so that the noise of the data hides a slow fall for long."""
        plan = self.snapshot.plan
        return (plan is not None and plan.num_epochs == 1) or len(self.snapshot.epochs) == 1

    @property
    def epoch_ends(self) -> list[int]:
        """Last steps of epochs of equal length; empty if they differ."""
        ends = [epoch.step for epoch in self.snapshot.epochs]
        widths = {after - before for before, after in itertools.pairwise(ends)}
        return ends if ends and max(widths, default=0) - min(widths, default=0) <= 1 and ends[0] in widths else []

    @property
    def is_far_enough(self) -> bool:
        """Whether a loss that has not fallen yet should have."""
        plan = self.snapshot.plan
        total = plan.total_steps if plan is not None else 0
        return self.steps >= STEPS_FEW and (self.snapshot.condition in ENDED or self.steps >= FAR_ENOUGH * total)

    @property
    def has_learned(self) -> bool:
        """Whether an accuracy is at its end, or the loss near zero."""
        newest = [curve.shown(curve.values[-1]) for name, _, curve in self.results if "acc" in name and curve.values]
        if any(accuracy >= (90 if accuracy > 1 else 0.9) for accuracy in newest):
            return True
        return bool(self.loss.values) and abs(self.loss.values[-1]) < 0.05 * abs(self.loss.values[0])

    @property
    def validation_improves(self) -> bool:
        """Whether any validation result is better in its last fifth than before, beyond noise."""
        curves = [curve for _, split, curve in self.results if split == "valid" and len(curve.values) >= 5]
        return any(curve.share(0.8, 1.0).level.is_below(curve.share(0.4, 0.8).level, 2) for curve in curves)

    @property
    def lr_has_decayed(self) -> bool:
        """Whether the newest learning rate is below half of the highest."""
        return bool(self.lr.values) and self.lr.values[-1] < 0.5 * max(self.lr.values)

    def lr_rises(self, steps: Sequence[int]) -> bool:
        """Whether the learning rate rises by more than a tenth near most of these steps, as at warm restarts."""
        pairs = [(self.lr.values_between(0, step), self.lr.since(step + 1).values) for step in steps]
        rises = [after[0] > 1.1 * before[-1] for before, after in pairs if before and after]
        return sum(rises) > len(rises) / 2

    def lr_at(self, step: float) -> float | None:
        """The learning rate at a step; None if unknown."""
        rates = self.lr
        return rates.values[max(bisect_right(rates.steps, step) - 1, 0)] if rates.values else None

    def guesses(self, usual: Sequence[int]) -> Iterator[tuple[float, str, bool]]:
        """Losses of a guess, what they are, and whether the run says so itself, by the entropy of its label frequencies
        or the number of classes in its configuration; `usual` are tried if it says neither."""
        known = self.snapshot.plan.guess_loss if self.snapshot.plan is not None else None
        if known is not None and 0 < known < math.inf:
            yield known, "the entropy of the label frequencies", True
        config = self.snapshot.config
        tables = [table for table in (config, config.get("model"), config.get("data")) if isinstance(table, dict)]
        keys = ("classes", "num_classes", "num_labels", "vocab_size")
        given = [table.get(key) for table in tables for key in keys]
        named = [number for number in given if isinstance(number, int) and number > 1]
        for number in dict.fromkeys(named or (usual if known is None else ())):
            yield math.log(number), f"ln {number}, {number} classes", bool(named)

    def moment(self, curve: Curve, at: int) -> str:
        """`epoch 3` at its end, or `step 1,200` of a curve over steps."""
        step = curve.steps[at]
        ended = next((epoch.epoch for epoch in self.snapshot.epochs if epoch.step == step), None)
        return f"epoch {ended}" if ended else f"step {fmt.count(step)}"

    def epoch_at(self, step: int) -> int | None:
        """The epoch that a step belongs to; None if the run has none."""
        epochs = self.snapshot.epochs
        return next((epoch.epoch for epoch in epochs if step <= epoch.step), self.snapshot.epoch if epochs else None)

    def _kept(self, step: int | None) -> str | None:
        """The newest checkpoint that was saved up to a step, the best one first."""
        saved = [(one.step, one.best, one.path) for one in self.snapshot.checkpoints if one.step <= (step or 0)]
        return max(saved)[2] if saved else None

    def verdict(
        self, rule: RuleName, text: str, *, since: tuple[Curve, int] | None = None, keep_step: int | None = None,
        status: VerdictStatus = "found", **fields: Any,
    ) -> Verdict:  # fmt: skip
        """A verdict with the step and the epoch since when, and the checkpoint to keep."""
        if since is not None:
            step = since[0].steps[since[1]]
            fields |= {"since_step": step, "since_epoch": self.epoch_at(step)}
        return Verdict(rule=rule, status=status, text=text, keep=self._kept(keep_step), **fields)
