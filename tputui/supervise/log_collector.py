"""Collects what a command of the user writes: its log files and its console output, as the events of `logs-0`.

The command need not know of tputui, so the supervisor reports for it: a heartbeat every second, and the values that it
logs. A thread reads the logs, so that the supervisor never waits for a disk. Once a process of the command reports its
steps, what the command writes are metrics beside its loss.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tputui.logs.console import ConsoleParser, check_pattern
from tputui.logs.damage_notes import ReportedDamage
from tputui.logs.formats import is_log, open_log
from tputui.logs.jsonl_log import TrainerStateReader
from tputui.logs.rows import LoggedValue, LogReader, UnknownLog
from tputui.logs.tags import BadPattern, TagRule, loss_rank, meaning_of
from tputui.logs.text_log import TextLogReader
from tputui.logs.tfevents import EventFileReader
from tputui.logs.value_events import ValueEvents
from tputui.supervise.log_files import LogFinder, shown_path
from tputui.supervise.log_tail import Printed
from tputui.supervise.torch_traces import TorchTraces
from tputui.supervise.training_positions import PLAN_WAIT_S, TrainingPositions
from tputui.telemetry import events as ev
from tputui.telemetry.logged_values import CONSOLE
from tputui.telemetry.reporter import Reporter

HEARTBEAT_INTERVAL_S = 1.0
LOOK_INTERVAL_S = 0.2
"""Seconds between two looks at the logs."""
EVENTS_INTERVAL_S = 0.5
"""Seconds between two batches of events."""
VALUES_PER_LOOK = 50_000
"""Values read in one look; the rest is read in the next one, after a short pause."""
PAUSE_S = 0.02
LOGS_MAX = 1_000
LAUNCHERS = ("srun", "mpirun", "mpiexec", "prun")
LABELS_MAX = 65_536
"""A number in front of a line of theirs that is less than this is a rank."""
LINES_MAX = 20_000
"""Lines of console output that wait for the thread; older ones are left out."""
LINES_PER_LOOK = 2_000
"""Lines parsed in one look, which takes about 2 s."""
CLOSE_POLL_S = 0.2
CLOSE_S = 10.0
"""Seconds without progress after which reading the rest of the logs is given up, after the command has ended. Counted
in polls of `CLOSE_POLL_S`, so that a machine that was suspended, or too busy for either thread, costs no values."""
CLOSE_MAX_S = 120.0
"""Seconds after which it is given up in any case."""
GIVE_UP_S = 0.5
"""Seconds that the thread then has to report what it has read."""
UNWRITTEN_MAX = 64
"""Events that wait for the journal before the next look waits too, for at most `FLUSH_S`."""
FLUSH_S = 5.0
PLACE_MAX_S = 2.0
"""Seconds for which a line or a value waits for the journal of the training to tell where that was."""
TRIES_MAX = 50
"""Looks at a file that is not recognised yet, because its first line is not complete; only after it has changed."""


class _Log:
    def __init__(self, path: Path, source: str, prefix: str, reader: LogReader, *, is_accepted: bool) -> None:
        self.path = path
        self.source = source
        self.prefix = prefix
        self.reader = reader
        self.is_accepted = is_accepted
        """Whether its values are known to be metrics."""
        self.was_read = False
        """Whether it has had values."""
        self.num_outputs_before = 0
        """Looks at the output after which all is known that was printed before the log was found."""
        self.reported = ReportedDamage()
        self.unplaced: list[LoggedValue] = []
        """Values that wait until it is known where training was at their time."""

    @property
    def is_late(self) -> bool:
        """Whether the log is only written with checkpoints."""
        return isinstance(self.reader, TrainerStateReader)

    def read(self) -> list[LoggedValue]:
        """The next values. Raises `OSError`."""
        values = self.reader.read()
        self.was_read = self.was_read or bool(values)
        if not self.prefix:
            return values
        return [value._replace(tag=f"{self.prefix}/{value.tag}") for value in values]


class LogCollector:
    """Reports for one command. No method blocks or raises; only `close` waits, until the logs are read."""

    def __init__(
        self, run_dir: Path, pid: int, reporter: Reporter, script_config: Mapping[str, Any], host_index: int = 0
    ) -> None:
        """`pid` is the command, `reporter` writes the journal `logs-0`, `script_config` is the table `[script]`."""
        self._run_dir = run_dir
        self._pid = pid
        self._reporter = reporter
        self._started = time.time()
        self._beat_due = self._started
        self.newest_step = 0
        """Newest step that was read; 0 before the first, or if a process reports its own."""
        self.num_lines = 0
        """Lines of console output so far."""
        self.num_values = 0
        """Values read so far."""
        self._epoch = 0
        self._lines: deque[tuple[Printed, float]] = deque(maxlen=LINES_MAX)
        """Lines that the thread has not parsed yet, with the unix times at which they were read."""
        self._num_outputs = 0
        """Looks at the output so far."""
        self._num_lines_due = 0
        """How many of them were printed before the newest look at the files."""
        self._console = _console_parser(script_config)
        # A launcher may begin lines with the number of a process, which runs elsewhere.
        is_launcher = any(os.path.basename(word) in LAUNCHERS for word in _texts(script_config, "command"))
        self._num_labels = LABELS_MAX if is_launcher else 0
        self._closing = threading.Event()
        self._is_given_up = False
        self._num_parts_read = 0
        """What the thread has read so far, of any kind: it grows as long as the disks answer."""
        self._cwd = Path(str(script_config.get("cwd") or Path.cwd()))
        self._events = ValueEvents(_tag_rule(script_config))
        patterns, arguments = _texts(script_config, "logs"), _texts(script_config, "command")
        self._finder = LogFinder(pid, run_dir, self._cwd, patterns, self._started - 1.0, arguments)
        self._traces = TorchTraces(run_dir, pid, self._cwd, reporter.emit)
        self._logs: list[_Log] = []
        self._event_folder: Path | None = None
        """Folder of the first TensorBoard event file."""
        self._states: dict[Path, _Log] = {}
        """The newest `trainer_state.json` of each training with Hugging Face's `Trainer`, by its folder."""
        self._tries: dict[Path, int] = {}
        self._warned: set[str] = set()
        self._positions = TrainingPositions(run_dir, host_index)
        self._thread = threading.Thread(target=self._run, name="tputui-logs", daemon=True)
        self._thread.start()

    @property
    def has_reporter(self) -> bool:
        """Whether a process of the command reports its steps."""
        return self._positions.is_known

    def take_console(self, parts: Sequence[Printed], *, is_cut: bool = False) -> None:
        """Takes what the command printed. `is_cut`: some of it is left out."""
        self.num_lines += len(parts)
        now = time.time()
        if (is_cut or len(self._lines) + len(parts) > LINES_MAX) and not self.has_reporter:
            self._warn("the command prints faster than its metrics can be read; some of those printed are left out")
        self._lines.extend([(part, now) for part in parts])
        self._num_outputs += 1

    def poll(self, now: float) -> None:
        """Sends the heartbeat. `now` is unix time in seconds."""
        if now < self._beat_due and self._beat_due - now <= HEARTBEAT_INTERVAL_S:
            return
        self._beat_due = now + HEARTBEAT_INTERVAL_S
        phase_s = max(0.0, now - self._started)
        self._reporter.emit(
            ev.HeartbeatSent(t=now, phase="unknown", phase_s=phase_s, step=self.newest_step, epoch=self._epoch)
        )

    def close(self, is_stop_requested: Callable[[], bool] = lambda: False) -> None:
        """Reads the rest, after the command has ended. Warns if that takes too long, or was stopped by a request."""
        self._closing.set()
        ends, why = time.monotonic() + CLOSE_MAX_S, "it took too long"
        before, idle_s = self._num_parts_read, 0.0
        while self._thread.is_alive() and idle_s < CLOSE_S and time.monotonic() < ends:
            self.poll(time.time())
            if is_stop_requested():
                why = "a stop was requested"
                break
            self._thread.join(CLOSE_POLL_S)
            idle_s = idle_s + CLOSE_POLL_S if self._num_parts_read == before else 0.0
            before = self._num_parts_read
        if self._thread.is_alive():
            self._is_given_up = True
            self._thread.join(GIVE_UP_S)
            end = f"to step {self.newest_step:,}" if self.newest_step else "in part"
            self._warn(
                f"the logs of the command were read only {end}, because {why} after the command had ended; "
                "later values are missing. `tputui replay LOG` opens a log file completely"
            )

    def _run(self) -> None:
        events_due = time.monotonic() + EVENTS_INTERVAL_S
        while True:
            is_closing = self._closing.is_set()
            try:
                is_behind = self._look(final=is_closing)
                if is_closing or time.monotonic() >= events_due:
                    events_due = time.monotonic() + EVENTS_INTERVAL_S
                    self._emit(final=is_closing and (not is_behind or self._is_given_up))
            except Exception as error:  # noqa: BLE001, RUF100 - it would end the reading of all logs; it is reported
                self._warn(f"a log of the script could not be read: {type(error).__name__}: {error}")
                is_behind = False
            if (is_closing and not is_behind) or self._is_given_up:
                break
            if self._reporter.num_unwritten > UNWRITTEN_MAX:
                # The reporter would drop what the disk does not take.
                self._reporter.flush(FLUSH_S)
                self._num_parts_read += 1
            self._closing.wait(PAUSE_S if is_behind else LOOK_INTERVAL_S)
        for log in self._logs:
            with contextlib.suppress(Exception):
                if log.is_accepted and not self._is_given_up and (sentence := log.reader.incomplete):
                    self._warn(sentence)
                log.reader.close()
        self._positions.close()

    def _look(self, *, final: bool) -> bool:
        """Reads what was written since the last look; returns whether there is more."""
        self._traces.read(final=final)
        self._num_parts_read += 1
        self._positions.read()
        self._console.reported = self._positions.planned
        if self.has_reporter and self._events.position_at is None:
            self._events.place_by(self._positions.at)
        for tag, first_step, values in self._positions.reported:
            self._events.take_reported(tag, first_step, values)
        for path, is_chosen in self._finder.find(final=final):
            self._open(path, is_chosen=is_chosen)
            self._num_parts_read += 1
        # Before the values of a file, which may repeat them.
        num_outputs = self._num_outputs
        self._num_lines_due = len(self._lines)
        for note in self._finder.notes:
            self._warn(note)
        self._finder.notes.clear()
        self._use_ranks()
        if self._take_lines():
            return True
        # Files that are written with checkpoints come last: they repeat what was printed long before.
        is_behind = self._read_logs([log for log in self._logs if not log.is_late])
        if self._num_lines_due > 0:
            return is_behind  # They wait for their place.
        late = [log for log in self._logs if log.is_late and (final or log.num_outputs_before <= num_outputs)]
        return self._read_logs(late) or is_behind

    def _read_logs(self, logs: list[_Log]) -> bool:
        """Reads logs to their ends, or as much as one look may; returns whether there is more."""
        num_left, is_behind = VALUES_PER_LOOK, False
        for log in logs:
            num_left -= (num_read := self._read(log, num_left))
            is_behind = is_behind or (num_read > 0 and num_left <= 0) or self._is_given_up
        return is_behind

    def _use_ranks(self) -> None:
        """Hands the number of ranks to the readers."""
        num_ranks = self._finder.num_ranks
        self._events.expect_cores(num_ranks if num_ranks > 1 else 0)
        self._console.num_ranks = num_ranks
        self._console.num_labels = max(self._num_labels, num_ranks if num_ranks > 1 else 0)

    def _open(self, path: Path, *, is_chosen: bool) -> None:
        if len(self._logs) >= LOGS_MAX:
            self._warn(f"the script writes more than {LOGS_MAX} logs; {path} and others are not read")
            return
        try:
            reader = open_log(path)
        except UnknownLog as error:
            self._tries[path] = tries = self._tries.get(path, 0) + 1
            if tries < TRIES_MAX and (is_chosen or is_log(path.name) or tries < 5):
                self._finder.find_changed(path, is_chosen=is_chosen)
            elif is_chosen:
                self._warn(f"script.logs: {error}")
            return
        if isinstance(reader, TextLogReader) and not is_chosen:
            return  # It repeats what the command prints.
        is_accepted = is_chosen or not _is_table(path)
        source, prefix = shown_path(path, self._cwd), ""
        if isinstance(reader, EventFileReader):
            source, prefix = self._event_source(path)
        elif isinstance(reader, TrainerStateReader):
            folder = path.parent.parent if path.parent.name.startswith("checkpoint-") else path.parent
            if (log := self._states.get(folder)) is not None and isinstance(log.reader, TrainerStateReader):
                # Every checkpoint has the whole history.
                log.reader.move_to(path)
            else:
                log = self._states[folder] = _Log(path, source, prefix, reader, is_accepted=is_accepted)
                self._logs.append(log)
            log.num_outputs_before = self._num_outputs + 2  # The next look may have begun before.
            return
        self._logs.append(_Log(path, source, prefix, reader, is_accepted=is_accepted))

    def _event_source(self, path: Path) -> tuple[str, str]:
        """The folder of a TensorBoard event file, and the prefix of its tags: that of its folder, if it is another than
        that of the first event file."""
        folder = path.parent
        self._event_folder = first = self._event_folder or folder
        if folder == first:
            return shown_path(folder, self._cwd), ""
        prefix = str(folder.relative_to(first)) if folder.is_relative_to(first) else folder.name
        return shown_path(folder, self._cwd), prefix

    def _read(self, log: _Log, most: int) -> int:
        """Reads one log until its end, or until `most` values were read; returns their number."""
        num_values = 0
        try:
            while num_values < most and not self._is_given_up:
                values = log.read()
                self._num_parts_read += 1
                if not values:
                    break
                if not log.is_accepted:
                    log.is_accepted = _are_metrics(values)
                    if not log.is_accepted:
                        self._logs.remove(log)
                        log.reader.close()
                        return num_values
                num_values += len(values)
                self._events.take_config(log.reader.config)
                log.unplaced += self._without_repeated(log, values)
                self._take_placed(log)
            if log.unplaced:
                self._take_placed(log)
        except OSError as error:
            self._warn(f"{log.source} can no longer be read: {error.strerror or error}")
            self._take_placed(log, waits=False)
            self._logs.remove(log)
        except Exception as error:  # noqa: BLE001, RUF100 - it would end the reading of the other logs; it is reported
            self._warn(f"{log.source} is no longer read: {type(error).__name__}: {error}")
            self._take_placed(log, waits=False)
            self._logs.remove(log)
        if log.is_accepted:
            for sentence in log.reported.new(log.reader.damage, final=self._closing.is_set()):
                self._warn(sentence)
        return num_values

    def _take_placed(self, log: _Log, *, waits: bool = True) -> None:
        """Takes the values, with `waits` up to the first one whose time the journal of the training has not reached."""
        values, due = log.unplaced, len(log.unplaced)
        if waits:
            timed = ((place, value.t) for place, value in enumerate(values) if value.t is not None)
            due = next((place for place, t in timed if not self._is_placed(t)), due)
        log.unplaced = values[due:]
        if due:
            self._events.take(log.source, values[:due], time.time(), is_late=log.is_late)

    def _without_repeated(self, log: _Log, values: list[LoggedValue]) -> list[LoggedValue]:
        """The values of a log; of a session of `add_hparams`, those that its run has not logged itself."""
        run = self._event_folder
        if run is None or log.path.parent.parent != run:
            return values
        if not (isinstance(log.reader, EventFileReader) and log.reader.has_session):
            return values
        folder, source = f"{log.prefix}/", shown_path(run, self._cwd)
        beside = (other for other in self._logs if other is not log and other.path.parent.parent == run)
        for other in beside:
            if isinstance(other.reader, EventFileReader) and (other.reader.has_session or not other.was_read):
                return values
        named = [value._replace(tag=value.tag.removeprefix(folder)) for value in values]
        return [value for value in named if not self._events.has(source, value.tag)]

    def _take_lines(self) -> bool:
        """Reads values from the lines that are due; returns whether there are more."""
        values = []
        for _ in range(min(self._num_lines_due, LINES_PER_LOOK)):
            if self._is_given_up or not self._lines or not self._is_due(self._lines[0][1]):
                break
            part, t = self._lines.popleft()
            evaluates = self._positions.evaluates_at(part.end)
            values += self._console.parse(part.text, self._positions.printed_at(part.end, t), evaluates=evaluates)
            self._num_lines_due -= 1
            self._num_parts_read += 1
        if self._closing.is_set() and not self._lines:
            values += self._console.finish()
        if values:
            self._events.take_config(self._console.config)
            self._events.take(CONSOLE, values, time.time())
        if self._console.is_mixed:
            self._warn(
                f"{self._console.num_ranks} ranks print metrics without their rank, so these are shown as one series; "
                "begin each line with the rank, as `torchrun --tee 3` and `srun --label` do"
            )
        return self._num_lines_due > 0 and self._is_due(self._lines[0][1])

    def _is_due(self, t: float) -> bool:
        """Whether a line of a unix time is read now: its positions mean nothing without the plan."""
        return self._is_placed(t) and (not self._positions.awaits_plan or self._is_over(t, PLAN_WAIT_S))

    def _is_placed(self, t: float) -> bool:
        """Whether it is known where training was at a unix time, or is not awaited any more."""
        return t <= self._positions.known_until or self._is_over(t, PLACE_MAX_S)

    def _is_over(self, t: float, wait_s: float) -> bool:
        """Whether nothing waits any more that would wait for `wait_s` from a unix time on."""
        return not self.has_reporter or self._closing.is_set() or time.time() - t >= wait_s

    def _emit(self, *, final: bool) -> None:
        now = time.time()
        for event in self._events.events(now, final=final):
            self._reporter.emit(event)
        if not self.has_reporter:
            self.newest_step = max(self.newest_step, self._events.newest_step)
        self.num_values, self._epoch = self._events.num_values, self._events.epoch

    def _warn(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < LOGS_MAX:
            self._warned.add(text)
            self._reporter.emit(ev.WarningRaised(t=time.time(), text=text))


def _tag_rule(table: Mapping[str, Any]) -> TagRule:
    """The rule of the configuration, which was checked before the start."""
    tags = table.get("tags")
    if not isinstance(tags, Mapping):
        return TagRule()
    pattern, loss = tags.get("pattern"), tags.get("loss")
    with contextlib.suppress(BadPattern):
        return TagRule(str(pattern) if pattern else None, str(loss) if loss else None)
    return TagRule()


def _console_parser(table: Mapping[str, Any]) -> ConsoleParser:
    """The parser with the pattern of the configuration, which was checked before the start."""
    console = table.get("console")
    pattern = console.get("pattern") if isinstance(console, Mapping) else None
    return ConsoleParser(pattern if isinstance(pattern, str) and check_pattern(pattern) is None else None)


def _texts(table: Mapping[str, Any], key: str) -> list[str]:
    texts = table.get(key)
    return [str(text) for text in texts] if isinstance(texts, list) else []


def _is_table(path: Path) -> bool:
    """Whether a file may as well contain data as metrics."""
    name = path.name.lower()
    return "tfevents" not in name and not name.endswith((".wandb", "trainer_state.json"))


def _are_metrics(values: Sequence[LoggedValue]) -> bool:
    """Whether the values of a table are metrics: they have steps, epochs or times, or one is named like a loss."""
    return any(
        value.step is not None
        or value.epoch is not None
        or value.t is not None
        or "loss" in value.tag.lower()
        or loss_rank(meaning_of(value.tag)) is not None
        for value in values[:1_000]
    )
