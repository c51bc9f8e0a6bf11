"""The other processes of a `replica` run on this host: the worker, which leads them, starts, watches and ends them.

They are started before the worker imports the runtime, so that all import it at the same time. The first process to
fail is reported; those that only lost their connection to it are not. Must not touch a device or import torch.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from engine.errors import PEER_LOST, RANK_FINISHED
from engine.host_place import HostPlace
from tputui.engine_api import JOURNAL_SUFFIX, ExitCode, Tail, kind_of_end, signal_name
from tputui.reporting import events as ev

ROLE = "rank"
"""Role of a rank's journal, `rank-3.jsonl`; the leading rank of a host writes to the journal of the worker."""
GRACE_S = 2.0
"""Time that a rank has to report its end before it is killed."""
LAST_STEP_S = 15.0
"""How much later than the leading rank the others may reach their regular end."""
ROOT_CAUSE_S = 3.0
"""If only ranks have exited that lost another one, or that refused their configuration, the rank that caused it
shows within this time."""


class LostRank(NamedTuple):
    """A process of the run that exited before its regular end."""

    who: str
    """`rank 3 (core 3, pid 123)`."""
    exit_text: str
    """How it ended, as a verb phrase: `was ended by SIGKILL`."""
    failure: ev.FailureRaised | None
    code: ExitCode
    process: str
    """Writer name of its journal, `rank-3`."""
    pid: int
    kind: ev.FailureKind

    @property
    def sentence(self) -> str:
        if self.failure is not None:
            return f"{self.who}: {self.failure.error}: {self.failure.message}"
        return f"{self.who} {self.exit_text}"


class RankProcess:
    def __init__(self, run_dir: Path, ranks: range, popen: subprocess.Popen[bytes]) -> None:
        self._run_dir = run_dir
        self._ranks = ranks
        self._exit_reported = False
        self.popen = popen

    @property
    def has_failed(self) -> bool:
        """Whether it has exited, neither regularly nor because it lost another rank."""
        return self.popen.poll() not in (None, RANK_FINISHED, PEER_LOST)

    def new_exit(self, *, ending: bool) -> ev.RankExited | None:
        """The event of its exit, once; None if it runs or came to its regular end."""
        code = self.popen.poll()
        if self._exit_reported or code is None or code == RANK_FINISHED:
            return None
        self._exit_reported = True
        return ev.RankExited(
            t=time.time(),
            process=f"{ROLE}-{self._ranks[0]}",
            pid=self.popen.pid,
            exit_code=code if code >= 0 else None,
            signal=signal_name(code),
            ending=ending,
        )

    def lost_rank(self) -> LostRank:
        """How and why it exited."""
        code, failures = self.popen.poll(), self._failures()
        rank, failure = min(failures, key=lambda found: found[1].t, default=(self._ranks[0], None))
        cores = f"core {rank}"
        exit_text = "lost the others" if code == PEER_LOST else f"ended with exit code {code} during training"
        if code is not None and code < 0:
            exit_text = f"was ended by {signal_name(code)}"
        # Without a failure in its journal the exit code is not ours: the user's own code ended the process.
        exit_code = ExitCode.FAILED
        if failure is not None and code in (ExitCode.USAGE, ExitCode.ENVIRONMENT):
            exit_code = ExitCode(code)
        who = f"rank {rank} ({cores}, pid {self.popen.pid})"
        kind = failure.kind if failure else kind_of_end(code or 0)
        return LostRank(who, exit_text, failure, exit_code, f"{ROLE}-{rank}", self.popen.pid, kind)

    def _failures(self) -> list[tuple[int, ev.FailureRaised]]:
        found: list[tuple[int, ev.FailureRaised]] = []
        for rank in self._ranks:
            path = self._run_dir / f"{ROLE}-{rank}{JOURNAL_SUFFIX}"
            if not path.exists():
                continue
            tail = Tail(path)
            while records := tail.read():
                found += [(rank, record.event) for record in records if isinstance(record.event, ev.FailureRaised)]
            tail.close()
        return found


class RankProcesses:
    """All processes of the run on this host except the worker."""

    def __init__(
        self, run_dir: Path, num_processes: int, ranks_each: int, place: HostPlace, *, telemetry: bool
    ) -> None:
        """Starts the processes of the host at `place`. Raises `OSError`."""
        self.num_processes = num_processes
        of_host = num_processes * ranks_each
        self.num_ranks = of_host * place.num_hosts
        """Number of ranks of all hosts."""
        self.first_rank = of_host * place.index
        """The leading rank of this host."""
        pairs = [socket.socketpair() for _ in range(1, of_host)]
        self.links = [ours for ours, _ in pairs]
        """Links of the leading rank to each other rank of the host, in order."""
        self.local_links = [theirs for _, theirs in pairs[: ranks_each - 1]]
        """Links to the leading rank, of the ranks that are threads of this process."""
        self._unclear_since: float | None = None
        self._processes: list[RankProcess] = []
        for number in range(1, num_processes):
            first = self.first_rank + number * ranks_each
            ranks = range(first, first + ranks_each)
            argv = [sys.executable, "-P", "-m", "engine.rank", str(run_dir)]
            argv += ["--process", f"{number}/{num_processes}", "--ranks", f"{ranks.start}-{ranks.stop - 1}"]
            ends = [pairs[rank - self.first_rank - 1][1] for rank in ranks]
            inherited = [end.fileno() for end in ends]
            argv += ["--of", str(self.num_ranks), "--links", ",".join(map(str, inherited))]
            argv += ["--host", f"{place.index}/{place.num_hosts}", "--generation", str(place.generation)]
            argv += ["--parent", str(os.getpid())]
            argv += [] if telemetry else ["--no-telemetry"]
            started = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=inherited)
            self._processes.append(RankProcess(run_dir, ranks, started))
            # Only the new process holds them from here on, so that its exit closes them.
            for end in ends:
                end.close()

    def lost(self) -> LostRank | None:
        """The process that failed first; None if none has, or if it is not known yet."""
        exited = [process for process in self._processes if process.popen.poll() not in (None, RANK_FINISHED)]
        if not exited:
            return None
        failed = [process.lost_rank() for process in exited if process.has_failed]
        if causes := [lost for lost in failed if lost.code == ExitCode.FAILED]:
            return min(causes, key=lambda lost: lost.failure.t if lost.failure else 0.0)
        # Losing another rank is not the cause, and what a rank refuses is refused and reported by this process as well.
        self._unclear_since = self._unclear_since or time.monotonic()
        if time.monotonic() - self._unclear_since < ROOT_CAUSE_S:
            return None
        return failed[0] if failed else exited[0].lost_rank()

    def new_exits(self, *, ending: bool) -> list[ev.RankExited]:
        """Events of the processes that have exited, other than regularly, since the last call."""
        return [event for process in self._processes if (event := process.new_exit(ending=ending)) is not None]

    def end(self, *, wait_s: float = 0.0) -> None:
        """Waits for processes that are about to end, then asks the rest to end, and kills them after `GRACE_S`."""
        self._wait(wait_s)
        for process in self._processes:
            if process.popen.stdin is not None:
                # A rank ends when this pipe is closed.
                process.popen.stdin.close()
        self._wait(GRACE_S)
        for process in self._processes:
            process.popen.kill()
            process.popen.wait()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.popen.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                return
