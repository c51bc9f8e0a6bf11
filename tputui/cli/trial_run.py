"""The measuring of `tputui try`: two training processes, with and without a change, train blocks of steps in turn.

While one trains its block, the other one is stopped (SIGSTOP). Two processes cannot hold TPU chips at once: there each
block is trained by a new process, and the compiler's cache on disk saves most of the compilations.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.cli.console import ProgressLine, handling
from tputui.formatting import inert
from tputui.session import session
from tputui.supervise import spawn
from tputui.trial_protocol import CONNECTION_VARIABLE, MESSAGE_BYTES_MAX, BlockOrder, BlockResult

BLOCK_S = 2.0
"""Length of a block, if its steps are not given."""
STEPS_MIN = 4
"""Steps of a block, at least."""
SKIPPED = 3
"""Steps at the start of a block that are not measured: caches are cold after a pause."""
WARM_UP_STEPS = 6
WARM_UP_ROUNDS = 8
"""Rounds of steps after which one without a compilation is expected; a block with one is repeated as often."""
EXIT_WAIT_S = 10.0
POLL_S = 0.25
LOG = "worker.log"
CACHE_VARIABLE = "XLA_PERSISTENT_CACHE_PATH"


class TrialFailed(Exception):
    """A process failed, or the time was over before anything could be concluded; the text is one sentence."""


class OutOfTime(Exception):
    """The total time is over."""


class TrialPlan(NamedTuple):
    pairs: int
    """Blocks with the change, and as many without it."""
    steps: int | None
    """Steps of a block; None for as many as take `BLOCK_S`."""
    timeout_s: float
    """Total time."""
    restarts: bool
    """Whether each block is trained by a new process, which `TrialProcess` does not do by itself."""
    block_s: float = BLOCK_S
    """Length of a block, if its steps are not given."""


class MeasuredBlocks(NamedTuple):
    """Blocks of one side, in the order of the pairs."""

    steps: int
    blocks: list[BlockResult]

    @property
    def rates(self) -> list[float]:
        """Examples per second of each block."""
        return [block.examples / block.seconds for block in self.blocks]

    @property
    def rate(self) -> float:
        """Examples per second over all blocks."""
        return sum(block.examples for block in self.blocks) / sum(block.seconds for block in self.blocks)


class Outcome(NamedTuple):
    without: MeasuredBlocks
    changed: MeasuredBlocks
    is_cut: bool
    """Whether the time was over before all blocks were measured."""
    is_interrupted: bool
    """Whether Ctrl-C was pressed before that."""
    unit: Literal["examples/s", "steps/s"]
    """Of the rates: where the number of examples is not known, each step counts as one."""


class TrialProcess:
    def __init__(self, name: str, run_dir: Path, skip: int, multiple: int, environ: dict[str, str]) -> None:
        """`name` is for the user. A block begins with `skip` steps that are not measured, and has a multiple of
        `multiple` steps."""
        self.name = name
        self.steps = 0
        self._run_dir = run_dir
        self._skip = skip
        self._multiple = multiple
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._received = b""
        self._is_held = False

    @property
    def is_started(self) -> bool:
        """Whether its process was started and not ended."""
        return self._process is not None

    def start(self) -> None:
        """Starts the process. Raises `OSError`."""
        for journal in self._run_dir.glob("*.jsonl"):
            journal.unlink()
        ours, theirs = socket.socketpair()
        fd = os.open(self._run_dir / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            # A group of its own in this session: if this process is killed, the kernel continues a stopped group whose
            # members have lost their parent, and the process then finds its connection closed.
            self._process = subprocess.Popen(
                spawn.engine_argv(self._run_dir),
                stdin=subprocess.DEVNULL,
                stdout=fd,
                stderr=fd,
                env=self._environ | {CONNECTION_VARIABLE: str(theirs.fileno())},
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        finally:
            os.close(fd)
            theirs.close()
        ours.settimeout(POLL_S)
        self._connection, self._received, self._is_held = ours, b"", False

    def warm_up(self, deadline: float, waiting: Callable[[], None]) -> float:
        """Trains until a round of steps needs no compilation; returns the seconds of a step.

        Raises `TrialFailed` and `OutOfTime`, as does `measure`.
        """
        steps = self.rounded(WARM_UP_STEPS)
        for _ in range(WARM_UP_ROUNDS):
            result = self._train(BlockOrder(skip=0, steps=steps), deadline, waiting)
            if not result.compile_s:
                break
        return result.seconds / result.steps

    def measure(self, deadline: float, waiting: Callable[[], None]) -> BlockResult:
        """Trains a block. One in which something was compiled is repeated."""
        for _ in range(WARM_UP_ROUNDS):
            result = self._train(BlockOrder(skip=self._skip, steps=self.steps), deadline, waiting)
            if not result.compile_s:
                return result
        raise TrialFailed(
            f"training {self.name} compiles in every block of {self.steps} steps, so its pace cannot be measured; "
            "`tputui doctor RUN` finds recompilations"
        )

    def rounded(self, steps: float) -> int:
        """A number of steps for a block: a multiple of those between two updates of the weights."""
        return max(1, math.ceil(max(steps, 1) / self._multiple)) * self._multiple

    def hold(self) -> None:
        """Stops the process until the next block."""
        if self._process is not None and not self._is_held:
            self._signal(signal.SIGSTOP)
            self._is_held = True

    def end(self) -> None:
        """Ends the process and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._connection is not None:
            self._connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EXIT_WAIT_S)

    def _train(self, order: BlockOrder, deadline: float, waiting: Callable[[], None]) -> BlockResult:
        assert self._connection is not None
        if self._is_held:
            self._signal(signal.SIGCONT)
            self._is_held = False
        try:
            self._connection.sendall(msgspec.json.encode(order) + b"\n")
            line = self._line(deadline, waiting)
        except OSError:
            line = b""
        if not line:
            raise TrialFailed(f"training {self.name} failed: {self._failure()}")
        return msgspec.json.decode(line, type=BlockResult)

    def _line(self, deadline: float, waiting: Callable[[], None]) -> bytes:
        """The next line of the process; empty if it has ended."""
        assert self._connection is not None
        while b"\n" not in self._received:
            if time.monotonic() > deadline:
                raise OutOfTime
            waiting()
            try:
                more = self._connection.recv(MESSAGE_BYTES_MAX)
            except TimeoutError:
                continue
            if not more:
                return b""
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _failure(self) -> str:
        """Why the process ended, in one sentence."""
        code: int | None = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(EXIT_WAIT_S)
        with contextlib.suppress(OSError, ValueError):
            snapshot = session.load(self._run_dir)
            if snapshot.failure is not None:
                first = snapshot.failure.message.strip().partition("\n")[0]
                return inert(f"{snapshot.failure.error}: {first}" if first else snapshot.failure.error)
        with contextlib.suppress(OSError):
            last = (self._run_dir / LOG).read_text(errors="replace").strip().splitlines()[-1:]
            if last:
                return inert(last[0])
        return f"its process ended with exit code {code}"

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def measure(without: TrialProcess, changed: TrialProcess, plan: TrialPlan, progress: ProgressLine) -> Outcome:
    """Measures both in pairs of neighbouring blocks: first without and then with the change, then the other way round.

    Raises `TrialFailed` and `OSError`; no process is left in any case. Ctrl-C ends it.
    """
    deadline, is_interrupted = time.monotonic() + plan.timeout_s, False
    sides = (without, changed)
    results: tuple[list[BlockResult], ...] = ([], [])
    with handlers(_interrupt):
        try:
            for side in sides:
                _start(side, plan, deadline, progress)
            for number in range(plan.pairs):
                order = (0, 1) if number % 2 == 0 else (1, 0)
                pair = {index: _block(sides[index], number, plan, deadline, progress) for index in order}
                for index, blocks in enumerate(results):
                    blocks.append(pair[index])
        except OutOfTime:
            pass
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            progress.rewrite()
            with handlers(signal.SIG_IGN):
                for side in sides:
                    side.end()
    has_examples = all(block.examples for blocks in results for block in blocks)
    if not has_examples:
        results = tuple([replace(block, examples=block.steps) for block in blocks] for blocks in results)
    first, second = (MeasuredBlocks(side.steps, blocks) for side, blocks in zip(sides, results, strict=True))
    is_cut = len(first.blocks) < plan.pairs
    return Outcome(first, second, is_cut, is_interrupted, "examples/s" if has_examples else "steps/s")


def _start(side: TrialProcess, plan: TrialPlan, deadline: float, progress: ProgressLine) -> None:
    """Starts a process and trains its first steps, in which its programs are compiled."""
    side.start()
    step_s = side.warm_up(deadline, lambda: progress.show(f"starting training {side.name}"))
    if not side.steps:
        side.steps = side.rounded(plan.steps or max(STEPS_MIN, plan.block_s / max(step_s, 1e-6)))
        _rest(side, plan)


def _block(side: TrialProcess, number: int, plan: TrialPlan, deadline: float, progress: ProgressLine) -> BlockResult:
    if not side.is_started:
        _start(side, plan, deadline, progress)
    text = f"measuring {fmt.counted(plan.pairs, 'block')} with the change and as many without it"
    newest = f"measuring block {number + 1} of {plan.pairs} {side.name}"
    result = side.measure(deadline, lambda: progress.show(text, newest))
    _rest(side, plan)
    return result


def _rest(side: TrialProcess, plan: TrialPlan) -> None:
    if plan.restarts:
        side.end()
    else:
        side.hold()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def handlers(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> AbstractContextManager[None]:
    """A context in which the signals that end a command have this handler."""
    return handling(handler, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
