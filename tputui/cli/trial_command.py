"""`tputui try -- COMMAND`: a user's own command, with and without a change of its arguments or environment.

Each block is a run of the command, which is stopped after its steps. Steps, times and losses are those that the
training process reports: by the hooks, `tputui.start`, a callback of its framework, or what a JAX script reads.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from tputui import config
from tputui import formatting as fmt
from tputui.cli import launch, script
from tputui.cli.console import UsageError, usage_errors
from tputui.cli.parser import Parser
from tputui.cli.rehearse import STOP_GRACE_S, follow
from tputui.cli.trial_run import CACHE_VARIABLE, OutOfTime, TrialFailed, TrialProcess, handlers
from tputui.compare.agreement import Agreement
from tputui.formatting import inert
from tputui.state.snapshot import Snapshot
from tputui.state.steady_pace import warmup
from tputui.telemetry import float_blocks, redaction
from tputui.telemetry.events import ProgressReported, RequestKind, StepsRecorded
from tputui.telemetry.merge import JournalEvent
from tputui.trial_protocol import SEED_VARIABLE, BlockResult

BLOCK_S = 5.0
"""Length of a run after its first step, if its steps are not given."""
REPORTS_MIN = 4
"""Reports of a run, one a second: the first ones are its warm-up."""
LOGGED_S = 10.0
"""Seconds after the first logged value in which a process that reports its steps has reported one."""
OPTIONS = {
    "--with": ("with_", "ARG=VALUE", "set an argument, in the form that the command has: --ARG VALUE, ARG=VALUE"),
    "--with-env": ("with_env", "NAME=VALUE", "set an environment variable"),
    "--with-args": ("with_args", "'ARG ...'", "add arguments at its end"),
}
NO_STEP = (
    "no step of `{}` is known: its Python environment needs tputui, and it has to train with torch, read losses in a "
    "loop of JAX, or call run.step() of tputui.start() in each step"
)
_KEY_VALUE = re.compile(r"\+{0,2}[A-Za-z_][\w.]*=", re.ASCII)


def add_options(parser: Parser) -> None:
    for name, (dest, metavar, what) in OPTIONS.items():
        what = f"of a command: {what}; repeatable"
        parser.add_option(name, dest=dest, action="append", default=[], metavar=metavar, help=what)


def changed(words: list[str], args: argparse.Namespace) -> tuple[config.ScriptRun, config.ScriptRun, list[str]]:
    """The command, the command with all changes, and these as text. The changes may also be behind the words, if no
    options before `--` have any. Raises `CommandError`."""
    given = args
    if not (args.with_ or args.with_env or args.with_args):
        at = next((at for at, word in enumerate(words) if word.partition("=")[0] in OPTIONS), len(words))
        parser = Parser("tputui try")
        add_options(parser)
        words, given = words[:at], parser.parse(words[at:])
    base = script.from_words(words)
    new, env = list(words), {}
    for assignment in given.with_:
        name, value = _split(assignment, "--with", r"[-+]*[^-+\s].*")
        if _assign(new, name, value) == value:
            raise UsageError(f"try: {inert(assignment)}: the command has it already")
    for assignment in given.with_env:
        name, value = _split(assignment, "--with-env", r"[A-Za-z_]\w*")
        if os.environ.get(name) == value:
            raise UsageError(f"try: {inert(assignment)}: this environment has it already")
        env[name] = value
    with usage_errors(ValueError, prefix="try: --with-args: "):
        new += [word for text in given.with_args for word in shlex.split(text)]
    if new == words and not env:
        message = "try: give a change of the command, such as --with batch_size=64 or --with-env OMP_NUM_THREADS=2"
        raise UsageError(message)
    changes = redaction.masked_argv([*given.with_, *given.with_env, *given.with_args])
    return base, replace(base, script=replace(base.script, command=new, env=env)), changes


def _split(assignment: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = assignment.partition("=")
    if not (equals and re.fullmatch(form, name, re.ASCII)):
        raise UsageError(f"try: {option} {inert(assignment)}: expected NAME=VALUE")
    return name, value


def _assign(words: list[str], name: str, value: str) -> str | None:
    """Sets an argument, in the form in which the command has it last, else at the end; returns its value before.

    `batch_size` is found as `batch_size=`, `--batch_size` and `--batch-size`; a name with dashes only as it is. It is
    added as `--batch_size=`, unless the command has arguments such as `epochs=2`, or the name has a dot.
    """
    forms, is_plain = {name}, not name.startswith(("-", "+"))
    if is_plain:
        forms |= {f"+{name}", f"++{name}", f"--{name}", *(f"--{name.replace(*pair)}" for pair in ("_-", "-_"))}
    for at in reversed(range(1, len(words))):
        word, equals, before = words[at].partition("=")
        if word not in forms or not (equals or word.startswith("-")):
            continue
        # The next word is the value, unless it is another option; `-1` is none.
        if not equals and at + 1 < len(words) and not re.match(r"-(?![\d.]|$)", words[at + 1]):
            before, words[at + 1] = words[at + 1], value
        else:
            words[at] = f"{word}={value}"
        return before
    if is_plain and "." not in name and not any(map(_KEY_VALUE.match, words[1:])):
        name = f"--{name}"
    words += [name, value] if re.fullmatch(r"-\w", name) else [f"{name}={value}"]
    return None


class CommandRuns(TrialProcess):
    """The runs of a command on one side of the comparison, one for each block."""

    def __init__(self, name: str, run: config.ScriptRun, folder: Path, seed: int, twin: CommandRuns | None) -> None:
        """`twin`: the other side, which has trained already: both train as many steps. Raises `CommandError`."""
        run = replace(run, script=replace(run.script, stop_grace_s=STOP_GRACE_S, exit_grace_s=STOP_GRACE_S))
        command = script.prepared(run, "try")
        defaults = {"PYTHONHASHSEED": str(seed), CACHE_VARIABLE: str(folder / "programs")}
        super().__init__(name, folder, 0, 1, {**defaults, **command.environ, SEED_VARIABLE: str(seed)})
        names = [f"{key}={value}" for key, value in run.script.env.items()]
        self.shown = inert(shlex.join(redaction.masked_argv([*names, *run.script.command])))
        self.losses: list[dict[int, list[float]]] = []
        """Of each run by step, [cores], float32."""
        self._command = command._replace(environ=self._environ)
        self._run, self._folder, self._twin = run, folder, twin

    @property
    def is_started(self) -> bool:
        """Whether the first run is over."""
        return bool(self.losses)

    def start(self) -> None:
        """Each run starts by itself."""

    def warm_up(self, deadline: float, waiting: Callable[[], None]) -> float:
        """The first run, which fills the caches of files and programs; returns the seconds of a step."""
        if self._twin is not None:
            self.steps = self._twin.steps
        result = self.measure(deadline, waiting)
        return result.seconds / result.steps

    def measure(self, deadline: float, waiting: Callable[[], None]) -> BlockResult:
        """A run of the command; 0 examples if they are not known."""
        name = f"{'with' if self._twin is not None else 'without'}-{len(self.losses)}"
        self._run_dir = launch.create_run(
            self._folder, self._run, config_path=self.shown, name=name, argv=["tputui", "try"], command=self._command
        )
        watch = _Watch(self.steps, deadline, waiting)
        with handlers(watch.interrupt):
            follow(self._run_dir, self._command, watch.ask, "try")
        if watch.is_interrupted:
            raise KeyboardInterrupt
        if watch.is_late and watch.reports:
            raise OutOfTime
        if watch.condition in ("failed", "lost") and not watch.is_stopped:
            raise TrialFailed(f"the command {self.name} failed: {self._failure()}")
        if not watch.reports:
            raise TrialFailed(NO_STEP.format(self.shown))
        timed = [report for report in watch.reports if 0 < report.step_s < math.inf]
        if len(timed) < 2:
            raise TrialFailed(f"the command {self.name} ended before it was known how long steps take after warm-up")
        self.losses.append(watch.losses())
        timed = timed[warmup([-math.log(report.step_s) for report in timed]) :]
        steps, seconds = sum(one.report_steps for one in timed), sum(one.report_steps * one.step_s for one in timed)
        examples = sum(report.report_steps * report.step_s * report.examples_per_s for report in timed)
        known = round(examples) if math.isfinite(examples) else 0
        return BlockResult(steps=steps, examples=known, seconds=seconds, compile_s=0.0)


class _Watch:
    """Decides when a run has done its steps, and keeps what its process reports."""

    def __init__(self, steps: int, deadline: float, waiting: Callable[[], None]) -> None:
        """With 0 steps, the run takes `BLOCK_S` after its first report."""
        self._steps = steps
        self._deadline = deadline
        self._waiting = waiting
        self._events: dict[str, list[ProgressReported | StepsRecorded]] = defaultdict(list)
        self._since: float | None = None
        """When the first step, or a logged value, was seen."""
        self.condition = ""
        self.is_stopped = self.is_late = self.is_interrupted = False

    @property
    def reports(self) -> list[ProgressReported]:
        """Of the first process that reports steps."""
        each = (
            [one for one in self._events[name] if isinstance(one, ProgressReported)] for name in sorted(self._events)
        )
        return next(filter(None, each), [])

    def ask(self, snapshot: Snapshot, events: Sequence[JournalEvent]) -> RequestKind | None:
        """The request that the run gets now."""
        self.condition = snapshot.condition
        for writer, _, event in events:
            if isinstance(event, ProgressReported) or (isinstance(event, StepsRecorded) and event.metric == "loss"):
                self._events[writer].append(event)
        if self.is_interrupted and not self.is_stopped:
            self.is_stopped = True
            return "stop_now"
        if self.is_stopped:
            return None
        self._waiting()
        tick, reports = time.monotonic(), self.reports
        if self._since is None and (reports or snapshot.logged):
            self._since = tick
        passed_s = tick - self._since if self._since is not None else 0.0
        self.is_late = tick > self._deadline
        if self.is_late or (not reports and passed_s > LOGGED_S):
            self.is_stopped = True
            return "stop_now"
        is_long = bool(reports) and (reports[-1].step >= self._steps if self._steps else passed_s > BLOCK_S)
        self.is_stopped = is_long and len(reports) >= REPORTS_MIN
        return "stop" if self.is_stopped else None

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handles Ctrl-C: the run is stopped at once, and no further one begins."""
        self.is_interrupted = True

    def losses(self) -> dict[int, list[float]]:
        """The losses by step, of the process that reports the steps."""
        values: dict[int, list[float]] = {}
        for events in self._events.values():
            for event in events if self.reports[0] in events else ():
                if isinstance(event, StepsRecorded):
                    block = float_blocks.unpack(event.block, event.n * event.cores).tolist()
                    rows = (block[at : at + event.cores] for at in range(0, len(block), event.cores))
                    values.update(enumerate(rows, event.first))
        return values


def judged(unchanged: Agreement | None, pairs: Agreement | None) -> tuple[str, str]:
    """Whether it is the same training, in a word or two and as a sentence. `unchanged`: how far runs without the change
    agree with each other; `pairs`: with those with it."""
    if unchanged is None or pairs is None:
        return "not known", "not known: the script reports no losses"
    if unchanged.likeness == "different":
        why = f"two unchanged runs already differ ({unchanged.text})"
        return "not comparable", f"cannot be compared: the script is not deterministic, since {why}"
    if pairs.likeness == "different":
        return pairs.likeness, f"different: not the same training ({pairs.text})"
    within = f" ({pairs.text})" if pairs.likeness == "within rounding" else ""
    return pairs.likeness, f"{pairs.likeness} in {fmt.counted(pairs.num_steps, 'step')} of every pair{within}"
