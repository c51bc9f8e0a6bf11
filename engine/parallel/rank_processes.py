"""The other processes of a run under `replica`: started, watched and ended by the worker, which is the first rank.

They are started before the runtime is imported, so that all import it at the same time. The first one to break is
named; those that only lost their connection to it are not. Must not touch a device, and must not import torch.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from engine.errors import PEER_LOST, THROUGH
from tputui.exit_codes import ExitCode
from tputui.telemetry import events as ev
from tputui.telemetry.journal import SUFFIX, Tail

ROLE = "rank"
"""Role of a rank's journal, `rank-3.jsonl`; the first rank's is the worker's."""
GRACE_S = 2.0
"""What a rank has for its last words before it is killed."""
LAST_STEP_S = 15.0
"""By so much the ranks may come to a regular end later than the first."""
BROKEN_CODE = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)
"""Signals by which native code ends its own process."""
SECOND_LOOK_S = 3.0
"""Where only ranks have ended that lost another one, or that refused, the one behind it shows within this time."""


class LostRank(NamedTuple):
    """A process of the run that has ended when it should not have."""

    who: str
    """`rank 3 (core 3, pid 123)`."""
    words: str
    """What became of it."""
    failure: ev.FailureRaised | None
    """What it said itself."""
    code: ExitCode
    process: str
    """Writer name of it, `rank-3`."""
    pid: int
    kind: ev.FailureKind
    """How it broke."""

    @property
    def sentence(self) -> str:
        """Who broke, and why."""
        if self.failure is not None:
            return f"{self.who}: {self.failure.error}: {self.failure.message}"
        return f"{self.who} {self.words}"


class RankProcess:
    """A process that drives one or more ranks."""

    def __init__(self, run_dir: Path, ranks: range, process: subprocess.Popen[bytes]) -> None:
        self._run_dir = run_dir
        self._ranks = ranks
        self._told = False
        self.process = process

    @property
    def broke(self) -> bool:
        """Whether it has ended, and not as one that was through or that lost another one."""
        return self.process.poll() not in (None, THROUGH, PEER_LOST)

    def exited(self, *, ending: bool) -> ev.RankExited | None:
        """The fact that it is gone, once; None where it lives or came to a regular end."""
        code = self.process.poll()
        if self._told or code is None or code == THROUGH:
            return None
        self._told = True
        return ev.RankExited(
            t=time.time(),
            process=f"{ROLE}-{self._ranks[0]}",
            pid=self.process.pid,
            exit_code=code if code >= 0 else None,
            signal=_signal_name(-code) if code < 0 else None,
            ending=ending,
        )

    def loss(self) -> LostRank:
        """What is to be said of its end."""
        code, failures = self.process.poll(), self._failures()
        rank, failure = min(failures, key=lambda told: told[1].t, default=(self._ranks[0], None))
        cores = f"core {rank}"
        words = "lost the others" if code == PEER_LOST else f"ended with exit code {code} during training"
        if code is not None and code < 0:
            words = f"was ended by {_signal_name(-code)}"
        # Without a failure in its journal the code is not ours: the user's own code ended the process.
        exit_code = ExitCode.FAILED
        if failure is not None and code in (ExitCode.USAGE, ExitCode.ENVIRONMENT):
            exit_code = ExitCode(code)
        who = f"rank {rank} ({cores}, pid {self.process.pid})"
        kind = failure.kind if failure else _kind_of_end(code)
        return LostRank(who, words, failure, exit_code, f"{ROLE}-{rank}", self.process.pid, kind)

    def _failures(self) -> list[tuple[int, ev.FailureRaised]]:
        found: list[tuple[int, ev.FailureRaised]] = []
        for rank in self._ranks:
            path = self._run_dir / f"{ROLE}-{rank}{SUFFIX}"
            if not path.exists():
                continue
            tail = Tail(path)
            while records := tail.read():
                found += [(rank, record.event) for record in records if isinstance(record.event, ev.FailureRaised)]
            tail.close()
        return found


class RankProcesses:
    """The processes besides this one."""

    def __init__(self, run_dir: Path, num_processes: int, ranks_each: int, *, telemetry: bool) -> None:
        """Starts them. Raises `OSError`."""
        self.num_processes = num_processes
        self.num_ranks = num_processes * ranks_each
        pairs = [socket.socketpair() for _ in range(1, self.num_ranks)]
        self.links = [ours for ours, _ in pairs]
        """The first rank's link to each other rank, in order."""
        self.beside = [theirs for _, theirs in pairs[: ranks_each - 1]]
        """The other ends, of the ranks that are threads of this process."""
        self._odd_since: float | None = None
        self._members: list[RankProcess] = []
        for process in range(1, num_processes):
            ranks = range(process * ranks_each, (process + 1) * ranks_each)
            argv = [sys.executable, "-P", "-m", "engine.rank", str(run_dir)]
            argv += ["--process", f"{process}/{num_processes}", "--ranks", f"{ranks.start}-{ranks.stop - 1}"]
            ends = [pairs[rank - 1][1] for rank in ranks]
            inherited = [end.fileno() for end in ends]
            argv += ["--of", str(self.num_ranks), "--links", ",".join(map(str, inherited))]
            argv += ["--parent", str(os.getpid())]
            argv += [] if telemetry else ["--no-telemetry"]
            started = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=inherited)
            self._members.append(RankProcess(run_dir, ranks, started))
            # The process alone holds them now, so that its end closes them.
            for end in ends:
                end.close()

    def lost(self) -> LostRank | None:
        """The first process that broke; None where all are well, or where it cannot be told yet."""
        gone = [member for member in self._members if member.process.poll() not in (None, THROUGH)]
        if not gone:
            return None
        broke = [member.loss() for member in gone if member.broke]
        if sure := [loss for loss in broke if loss.code == ExitCode.FAILED]:
            return min(sure, key=lambda loss: loss.failure.t if loss.failure else 0.0)
        # One that lost another tells nothing, and what one refuses this process refuses too, with a word of its own.
        self._odd_since = self._odd_since or time.monotonic()
        if time.monotonic() - self._odd_since < SECOND_LOOK_S:
            return None
        return broke[0] if broke else gone[0].loss()

    def exits(self, *, ending: bool) -> list[ev.RankExited]:
        """Processes that are gone before a regular end and were not told of yet."""
        return [told for member in self._members if (told := member.exited(ending=ending)) is not None]

    def end(self, *, patience_s: float = 0.0) -> None:
        """Waits for those that are about to end by themselves, then ends the rest: asked first, killed then."""
        self._wait(patience_s)
        for member in self._members:
            if member.process.stdin is not None:
                # What a rank reads there is nothing; the end of it is what it waits for.
                member.process.stdin.close()
        self._wait(GRACE_S)
        for member in self._members:
            member.process.kill()
            member.process.wait()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for member in self._members:
            try:
                member.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                return


def _kind_of_end(code: int | None) -> ev.FailureKind:
    """How a process broke that left no word."""
    if code is None or code >= 0:
        return "exited"
    return "aborted" if -code in BROKEN_CODE else "killed"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
