"""`tputui try -- COMMAND`: a user's own command, with and without a change of its arguments or environment.

Each block is a run of the command of its own, which is stopped after its steps. Steps, times and losses are those that
the training process reports: by the hooks, `tputui.start`, a callback of its framework, or what a JAX script reads.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from tputui import config
from tputui import formatting as fmt
from tputui.cli import script
from tputui.cli.console import CommandError
from tputui.cli.short_run import STOP_GRACE_S, follow
from tputui.cli.trial_run import CACHE_VARIABLE, OutOfTime, TrialFailed
from tputui.compare.agreement import FIRST_REL, LATER_REL, Agreement, agreement, least
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.state.snapshot import Snapshot
from tputui.state.steady_pace import warmup
from tputui.telemetry import float_blocks, redaction
from tputui.telemetry.events import ProgressReported, RequestKind, StepsRecorded
from tputui.telemetry.merge import JournalEvent
from tputui.trial_protocol import SEED_VARIABLE, BlockResult

BLOCK_S = 5.0
"""Length of a run, if its steps are not given."""
REPORTS_MIN = 4
"""Reports of a run, one a second: the first ones are its warm-up."""
LOGGED_S = 10.0
"""Seconds after the first logged value in which a process that reports its steps has reported one."""
OPTIONS = ("--with", "--with-env", "--with-args")
NO_STEP = (
    "no step of `{}` is known: its Python environment needs tputui, and it has to train with torch, read losses in a "
    "loop of JAX, or call run.step() of tputui.start() in each step"
)
_KEY_VALUE = re.compile(r"\+{0,2}[A-Za-z_][\w.]*=", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Change(NamedTuple):
    """A change of a command."""

    what: str
    """The argument, the variable, or `arguments`."""
    before: str | None
    """None if the command did not have it."""
    after: str

    @property
    def text(self) -> str:
        """`lr=0.2`, with a secret masked."""
        return (
            self.after
            if self.before is None and self.what == "arguments"
            else "".join(redaction.masked_argv([f"{self.what}={self.after}"]))
        )


class ChangedCommand(NamedTuple):
    """The words of a command with all changes, and variables to set."""

    words: list[str]
    env: dict[str, str]
    changes: list[Change]


class Losses(NamedTuple):
    """Whether the change leaves the training as it is."""

    unchanged: Agreement | None
    """How far runs without the change agree with each other."""
    changed: Agreement | None
    """How far runs with it agree with those without it."""

    @property
    def verdict(self) -> str:
        """`equal bits`, `within rounding`, `different`, or why there is no answer."""
        if self.unchanged is None or self.changed is None:
            return "not known"
        return "not comparable" if self.unchanged.likeness == "different" else self.changed.likeness

    @property
    def sentence(self) -> str:
        """The answer with its figures."""
        if self.unchanged is None or self.changed is None:
            return "not known: the script reports no losses"
        if self.verdict == "not comparable":
            return (
                "cannot be compared: the script is not deterministic, since two unchanged runs already differ "
                f"({_difference(self.unchanged)})"
            )
        steps = fmt.counted(self.changed.num_steps, "step")
        if self.verdict == "equal bits":
            return f"equal bits in {steps} of every pair"
        limits = f"at most {FIRST_REL:g} in the first step, {LATER_REL:g} later"
        if self.verdict == "within rounding":
            return f"within rounding in {steps} of every pair ({_difference(self.changed)}; {limits})"
        return f"different: not the same training ({_difference(self.changed)})"


def take_options(args: argparse.Namespace) -> None:
    """Moves `--with` and its like from the end of the command to the options, unless some are before `--`."""
    given: tuple[list[str], ...] = (args.with_, args.with_env, args.with_args)
    moved: tuple[list[str], ...] = ([], [], [])
    words: list[str] = args.command
    while words and not any(given):
        if len(words) > 1 and words[-2] in OPTIONS:
            name, value, number = words[-2], words[-1], 2
        else:
            (name, equals, value), number = words[-1].partition("="), 1
            if name not in OPTIONS or not equals:
                break
        moved[OPTIONS.index(name)].insert(0, value)
        del words[-number:]
    for values, more in zip(given, moved, strict=True):
        values.extend(more)


def changed(words: Sequence[str], environ: Mapping[str, str], args: argparse.Namespace) -> ChangedCommand:
    """The command with the changes of the options. Raises `CommandError`."""
    made = ChangedCommand(list(words), {}, [])
    for assignment in args.with_:
        name, value = _split(assignment, "--with", "batch_size=64")
        before = _assign(made.words, name, value)
        if before == value:
            raise CommandError(ExitCode.USAGE, f"try: {inert(assignment)}: the command has it already")
        made.changes.append(Change(name, before, value))
    for assignment in args.with_env:
        name, value = _split(assignment, "--with-env", "OMP_NUM_THREADS=2")
        if not _NAME.fullmatch(name):
            raise CommandError(ExitCode.USAGE, f"try: --with-env {inert(assignment)}: {inert(name)} is no name")
        if environ.get(name) == value:
            raise CommandError(ExitCode.USAGE, f"try: {inert(assignment)}: this environment has it already")
        made.env[name] = value
        made.changes.append(Change(name, environ.get(name), value))
    for text in args.with_args:
        try:
            more = shlex.split(text)
        except ValueError as error:
            raise CommandError(ExitCode.USAGE, f"try: --with-args {inert(text)}: {error}") from None
        if not more:
            raise CommandError(ExitCode.USAGE, "try: --with-args: there is no argument in it")
        made.words.extend(more)
        made.changes.append(Change("arguments", None, shlex.join(more)))
    if not made.changes:
        message = "try: give a change of the command, such as --with batch_size=64 or --with-env OMP_NUM_THREADS=2"
        raise CommandError(ExitCode.USAGE, message)
    return made


def _split(assignment: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not (name.strip("-+ ") and equals):
        raise CommandError(ExitCode.USAGE, f"try: {option} {inert(assignment)}: expected NAME=VALUE, such as {example}")
    return name, value


def _assign(words: list[str], name: str, value: str) -> str | None:
    """Sets an argument, in the form in which the command has it last, else at the end; returns its value before.

    `batch_size` is found as `batch_size=`, `--batch_size` and `--batch-size`; a name with dashes only as it is. It is
    added as `--batch_size=`, unless the command has arguments such as `epochs=2`, or the name has a dot.
    """
    forms = {name} if name.startswith(("-", "+")) else {name, f"+{name}", f"++{name}"}
    if not name.startswith(("-", "+")):
        forms |= {f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}"}
    for at in reversed(range(1, len(words))):
        word, equals, before = words[at].partition("=")
        if word not in forms:
            continue
        if equals:
            words[at] = f"{word}={value}"
            return before
        if word.startswith("-") and at + 1 < len(words) and not _is_option(words[at + 1]):
            before, words[at + 1] = words[at + 1], value
            return before
        if word.startswith("-"):
            words[at] = f"{word}={value}"
            return ""
    if not name.startswith(("-", "+")) and "." not in name and not any(map(_KEY_VALUE.match, words[1:])):
        name = f"--{name}"
    words += [name, value] if re.fullmatch(r"-\w", name) else [f"{name}={value}"]
    return None


def _is_option(word: str) -> bool:
    """Whether a word is an option, not a value such as `-1`."""
    return word.startswith("-") and not re.match(r"-[\d.]|-$", word)


class CommandSide:
    """The runs of a command on one side of the comparison."""

    def __init__(self, name: str, run: config.ScriptRun, folder: Path, seed: int, twin: CommandSide | None) -> None:
        """`twin`: the other side, which has trained already: both train as many steps. Raises `CommandError`."""
        run = replace(run, script=replace(run.script, stop_grace_s=STOP_GRACE_S, exit_grace_s=STOP_GRACE_S))
        self.name = name
        self.steps = 0
        self.shown = _shown(run)
        self.losses: list[dict[int, list[float]]] = []
        """Of each run, in their order."""
        self.has_examples = True
        """Whether every run reported how many examples a step takes."""
        command = script.prepared(run, "try")
        environ = {"PYTHONHASHSEED": str(seed), CACHE_VARIABLE: str(folder / "programs"), **command.environ}
        self._command = command._replace(environ={**environ, SEED_VARIABLE: str(seed)})
        self._run, self._folder, self._twin = run, folder, twin
        self.is_started = False

    def start(self) -> None:
        """Nothing: each block is a run of its own."""
        self.is_started = True

    def warm_up(self, deadline: float, waiting: Callable[[], None]) -> float:
        """The first run, which fills the caches of files and programs; returns the seconds of a step."""
        if self._twin is not None:
            self.steps = self._twin.steps
        result = self._train(deadline, waiting)
        return result.seconds / result.steps

    def measure(self, deadline: float, waiting: Callable[[], None]) -> BlockResult:
        """A run of the command."""
        return self._train(deadline, waiting)

    def rounded(self, steps: float) -> int:
        """A number of steps for a run."""
        return math.ceil(steps)

    def hold(self) -> None:
        """Nothing: no process waits."""

    def end(self) -> None:
        """Nothing: no process is left."""

    def _train(self, deadline: float, waiting: Callable[[], None]) -> BlockResult:
        number = len(self.losses)
        name = f"{'with' if self._twin is not None else 'without'}-{number}"
        run_dir = script.create_run(
            self._folder, self._run, self._command, config_path=self.shown, name=name, argv=["tputui", "try"]
        )
        watch = _Watch(self.steps, deadline, waiting)
        follow(run_dir, self._command, watch.ask, "try")
        ended = watch.newest
        if watch.is_late and watch.has_steps:
            raise OutOfTime
        if ended is not None and ended.condition in ("failed", "lost") and not watch.is_stopped:
            raise TrialFailed(f"the command {self.name} failed: {_failure(ended)}")
        if not watch.has_steps:
            raise TrialFailed(NO_STEP.format(self.shown))
        result = watch.result()
        if result is None:
            short = "ended too early: its warm-up and the steps after it take at least two reports, one a second"
            raise TrialFailed(f"the command {self.name} {short}")
        self.losses.append(watch.losses())
        self.has_examples = self.has_examples and watch.has_examples
        return result


EventT = TypeVar("EventT", ProgressReported, StepsRecorded)


class _Watch:
    """Decides when a run has done its steps, and keeps what its process reports."""

    def __init__(self, steps: int, deadline: float, waiting: Callable[[], None]) -> None:
        """With 0 steps, the run takes about `BLOCK_S` after its first step."""
        self._steps = steps
        self._deadline = deadline
        self._waiting = waiting
        self._reports: dict[str, list[ProgressReported]] = defaultdict(list)
        self._recorded: dict[str, list[StepsRecorded]] = defaultdict(list)
        self._first: float | None = None
        self._logged: float | None = None
        self.newest: Snapshot | None = None
        self.is_stopped = self.is_late = False

    @property
    def has_steps(self) -> bool:
        """Whether a training process reported steps."""
        return bool(self._reports)

    @property
    def has_examples(self) -> bool:
        """Whether every report has examples per second."""
        return all(report.examples_per_s > 0 for report in self._of_one(self._reports))

    def ask(self, snapshot: Snapshot, events: Sequence[JournalEvent]) -> RequestKind | None:
        """The request that the run gets now."""
        self.newest = snapshot
        for writer, _, event in events:
            if isinstance(event, ProgressReported):
                self._reports[writer].append(event)
            elif isinstance(event, StepsRecorded) and event.metric == "loss":
                self._recorded[writer].append(event)
        if self.is_stopped:
            return None
        self._waiting()
        tick = time.monotonic()
        reports = self._of_one(self._reports)
        self._first = self._first or (tick if reports else None)
        self._logged = self._logged or (tick if snapshot.logged else None)
        is_silent = not reports and self._logged is not None and tick - self._logged > LOGGED_S
        self.is_late = tick > self._deadline
        if self.is_late or is_silent:
            self.is_stopped = True
            return "stop_now"
        is_long = reports and (reports[-1].step >= self._steps if self._steps else tick - (self._first or 0) > BLOCK_S)
        self.is_stopped = bool(is_long) and len(reports) >= REPORTS_MIN
        return "stop" if self.is_stopped else None

    def result(self) -> BlockResult | None:
        """The steps after the warm-up; None if there are too few reports. Steps count as examples if those are not
        known."""
        reports = [report for report in self._of_one(self._reports) if 0 < report.step_s < math.inf]
        measured = reports[warmup([-math.log(report.step_s) for report in reports]) :]
        if len(reports) < 2:
            return None
        seconds = sum(report.report_steps * report.step_s for report in measured)
        steps = sum(report.report_steps for report in measured)
        examples = sum(report.report_steps * report.step_s * report.examples_per_s for report in measured)
        return BlockResult(
            steps=steps, examples=round(examples) if self.has_examples else steps, seconds=seconds, compile_s=0.0
        )

    def losses(self) -> dict[int, list[float]]:
        """The losses by step, of the process that reports the steps."""
        values: dict[int, list[float]] = {}
        for event in self._of_one(self._recorded):
            block = float_blocks.unpack(event.block, event.n * event.cores).tolist()
            for row in range(event.n):
                values[event.first + row] = block[row * event.cores : (row + 1) * event.cores]
        return values

    def _of_one(self, by_writer: Mapping[str, list[EventT]]) -> list[EventT]:
        return by_writer.get(min(self._reports, default=""), [])


def losses_of(without: CommandSide, changed: CommandSide) -> Losses:
    """Compares all runs without the change with the first of them, and each pair."""
    first, *others = without.losses
    # The losses of the warm-up runs count too: only their speed does not.
    pairs = itertools.zip_longest(without.losses, changed.losses)
    return Losses(
        least(agreement(first, other) for other in others),
        least(agreement(one, other) for one, other in pairs if one is not None and other is not None),
    )


def as_json(without: CommandSide, changed: CommandSide, changes: Sequence[Change], seed: int) -> dict[str, Any]:
    """The fields of a command."""
    losses = losses_of(without, changed)
    pair = losses.changed
    return {
        "commands": {"without": without.shown, "with": changed.shown},
        "changes": [change.text for change in changes],
        "seed": seed,
        "unit": "examples/s" if without.has_examples and changed.has_examples else "steps/s",
        "losses": {
            "verdict": losses.verdict,
            "text": losses.sentence,
            "unchanged_runs": losses.unchanged.likeness if losses.unchanged is not None else None,
            "steps": pair.num_steps if pair is not None else None,
            "first_different_step": pair.first_step if pair is not None else None,
            "relative_difference": pair.greatest if pair is not None else None,
        },
    }


def seed_note(seed: int) -> str:
    """What the seed means for a foreign script."""
    return (
        f"PYTHONHASHSEED={seed} unless it was set; random, numpy and torch are seeded with {seed} at the import of "
        "torch, and the script's own seeds replace that"
    )


def _shown(run: config.ScriptRun) -> str:
    """The command as a line of a shell, with its variables, and its secrets masked."""
    names = [f"{name}={value}" for name, value in run.script.env.items()]
    return inert(shlex.join([*redaction.masked_argv(names), *redaction.masked_argv(run.script.command)]))


def _failure(snapshot: Snapshot) -> str:
    if snapshot.failure is not None:
        first = snapshot.failure.message.strip().partition("\n")[0]
        return inert(f"{snapshot.failure.error}: {first}" if first else snapshot.failure.error)
    return inert(snapshot.condition_reason)


def _difference(pair: Agreement) -> str:
    size = "not finite" if math.isinf(pair.greatest) else f"{pair.greatest:.1e}"
    since = f"from step {pair.first_step} on, " if pair.first_step is not None else ""
    return f"{since}relative difference up to {size}"
