"""`Verdict`: one thing that slows a run down or keeps it from learning, with the evidence and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

LearningRule = Literal[
    "divergence",
    "learning_rate",
    "guessing",
    "overfitting",
    "plateau",
    "gradient_norm",
    "constant_metric",
    "epoch_jump",
    "validation_gap",
    "evaluation_mode",
    "core_loss",
    "lr_scaling",
]
"""The rules about what a run learns; the others are about its pace and its memory."""

RuleName = Literal[
    "out_of_memory",
    "memory_trend",
    "recompile",
    "sync",
    "fallback",
    "graph_break",
    "compile_limit",
    "input",
    "tracing",
    "slow_steps",
    "garbage",
    "compile_cache",
    "donation",
    "replicated",
    "op_by_op",
    "device_put",
    "extra_execution",
    "padding",
    "batch_multiple",
    "feature_multiple",
    "precision",
    "device_idle",
    "throttling",
    "link_health",
    "slow_host",
    LearningRule,
]

VerdictStatus = Literal["found", "hint", "not enough data yet", "not available", "ignored"]
"""`found`: costs time, or ended the run. `hint`: worth a try, but its cost cannot be measured here. `not enough data
yet`: the run is too short so far. `not available`: the run does not record the evidence; the text is the reason.
`ignored`: found, or a hint, at a line with a comment `# tputui: ignore`."""

GainBase = Literal["time of steps", "wall time"]
"""What a predicted factor refers to."""

Strict = Literal["recompile", "fallback", "sync"]
"""Rules that `tputui run --strict` accepts."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that slows a run down or keeps it from learning, or the reason why a rule has no answer."""

    rule: RuleName
    """The rule that found it."""
    status: VerdictStatus
    """Whether it was found."""
    text: str
    """What happens, in one sentence without the line."""
    file: str | None = None
    """Source file of the user's code; null if the line is not known."""
    line: int | None = None
    """Line number in it."""
    function: str | None = None
    """Name of the function."""
    where: str | None = None
    """`train.py:41`: relative to the working directory of the run if the file is in it; null if not known."""
    code: str | None = None
    """Text of the line, and comments that ignore rules at its statement; null if it is not known."""
    line_reason: str | None = None
    """Why the line is not known; null if it is, and if the verdict is about no line."""
    lost_s: float | None = None
    """Seconds of wall time lost so far, at least; null if that cannot be measured."""
    share: float | None = None
    """`lost_s` as a share of the wall time so far."""
    evidence: list[str] = []
    """What it was concluded from, a sentence each."""
    fix: str = ""
    """What to do, in one sentence."""
    change: str | None = None
    """The fix as a change of the run's configuration, such as `data.workers=2`, which `tputui try` measures; null if it
    is none."""
    speedup: float | None = None
    """Predicted factor on the pace of training if it is fixed; null if that cannot be predicted."""
    speedup_of: GainBase | None = None
    """What the factor refers to: the time of the steps at their steady pace with what is lost besides, or the wall time
    if the run reports no steps; null without a factor."""
    overlap: str | None = None
    """Which other verdict counts the same seconds; null if none does."""
    joined: list[RuleName] = []
    """Other rules with a verdict on the same cause, which is a part of this one."""
    fatal: bool = False
    """Whether it ended the run, or will end it."""

    since_step: int | None = None
    """Step since which a run does not learn as it should; null for other rules."""
    since_epoch: int | None = None
    """Epoch of that step; null if unknown."""
    keep: str | None = None
    """The best checkpoint to keep, relative to the run directory; null if none was saved."""

    @property
    def is_learning(self) -> bool:
        """Whether it is about what the run learns, not about its pace."""
        return self.rule in get_args(LearningRule)

    @property
    def is_severe(self) -> bool:
        """Whether it is found that further steps are in vain, since nothing is learned."""
        return self.status == "found" and self.rule in ("divergence", "learning_rate", "guessing", "gradient_norm")

    @property
    def rules(self) -> tuple[RuleName, ...]:
        """The rules that it answers: its own, and those of the verdicts that are a part of it."""
        return (self.rule, *self.joined)


def found(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts that were found, without hints and rules without an answer."""
    return tuple(verdict for verdict in verdicts if verdict.status == "found")


_COMMENT = re.compile(r"#\s{0,8}tputui:\s{0,8}ignore\b[ :]*([\w-]+(?: ?, ?[\w-]+)*)?")


def is_ignored(rule: RuleName, code: str) -> bool:
    """Whether a comment at a line, `# tputui: ignore sync, recompile`, names the rule, or no rule at all."""
    named = [(match.group(1) or "").replace("-", "_").replace(" ", "") for match in _COMMENT.finditer(code)]
    return any(not names or rule in names.split(",") for names in named)


def assigned_key(change: str | None) -> str:
    """The key of a change: `data.workers` of `data.workers=2`."""
    return (change or "").partition("=")[0].strip()


def in_order(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """What ends the run first, then by seconds lost, then those whose cost is not known, hints, and the rest."""
    ranks = {status: rank for rank, status in enumerate(get_args(VerdictStatus))}
    return tuple(
        sorted(
            verdicts,
            key=lambda verdict: (
                ranks[verdict.status],
                not verdict.fatal,
                -(verdict.lost_s or 0.0),
                verdict.lost_s is None,
            ),
        )
    )
