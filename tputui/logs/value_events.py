"""Turns values that were read from logs into events of a run. Pure.

Every value becomes part of a `ValuesLogged`, exactly. The training loss also becomes `StepsRecorded`, per core if its
tags name cores; the values of single cores are only recorded there, as float32. Epochs and the pace are derived if the
log has epochs, steps and times.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tputui.logs.damage_notes import ReportedDamage
from tputui.logs.epochs import EpochTracker
from tputui.logs.repeats import Repeats, Shown
from tputui.logs.rows import STEP_MAX, LoggedValue
from tputui.logs.tags import (
    EPOCH_NAMES,
    PART_RANK,
    Role,
    TagMeaning,
    TagNames,
    TagRule,
    is_test,
    loss_rank,
    role_of,
    total_of,
)
from tputui.telemetry import events as ev
from tputui.telemetry import float_blocks
from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import CONSOLE, VALUES_PER_EVENT, LoggedColumns, values_logged
from tputui.telemetry.redaction import names_secret

ROWS_PER_EVENT = 256
"""Steps in one event, which have one time."""
WAITING_MAX = 1 << 17
"""Steps that wait for the values of other cores, whose file may be read later; older ones are left out."""
WAIT_S = 1.0
"""Seconds without a new core after which the cores are complete, if all that are known to exist have a value ..."""
WAIT_MAX_S = 5.0
"""... and after which they are complete in any case."""
_CUT = "a loss of a core is beyond float32, in which losses of cores are stored; its largest number is shown"
_LEFT_OUT = "some steps of the loss are left out, because not every core logged a value for them"
TRAINING_LOSS: tuple[Split, str] = ("train", "loss")
UNKNOWN = "unknown"
REASON = "the logs of a script do not name its devices"


class LossRow(NamedTuple):
    """The loss of one step: a value per core."""

    step: int
    values: Sequence[float]


class LossRows:
    """Gathers the values of the cores of a step, in any order."""

    def __init__(self, *, per_core: bool, num_expected: int = 0) -> None:
        """`per_core`: the log names cores."""
        self._per_core = per_core
        self._cores: list[int] = []
        """The cores in order, once they were declared."""
        self._seen: set[int] = set()
        self._since: float | None = None
        """Unix time at which the first core appeared that is not declared."""
        self._grown = 0.0
        """Unix time at which the newest core appeared."""
        self._num_seen = 0
        """Number of cores at the last look."""
        self.num_expected = num_expected
        """Number of cores that are known to exist; 0 if unknown."""
        self._waiting: dict[int, dict[int, float]] = {}
        """The values by step and core."""
        self.num_left_out = 0
        """Steps left out because a core had no value."""

    def add(self, core: int, step: int, value: float) -> None:
        """Adds the value of a core; 0 if the log names no cores."""
        self._seen.add(core)
        self._waiting.setdefault(step, {})[core] = value

    def events(self, now: float, *, final: bool = False) -> Iterator[ev.Event]:
        """The complete steps since the last call, after the cores if they are new. `now` is unix time."""
        if not self._waiting:
            return
        cores = sorted(self._seen)
        if not (self._per_core or self._cores or final) and len(self._waiting) == 1:
            return  # One value may be of an evaluation before a training whose process reports its steps itself.
        if cores != self._cores:
            if not (final or self._is_settled(now)):
                return
            self._cores, self._since = cores, None
            yield topology(now, cores)
        yield from steps_recorded(self._complete(), now)
        while len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
            self.num_left_out += 1

    def _is_settled(self, now: float) -> bool:
        """Whether no further cores are to be waited for. They may log to files of their own, which are read one after
        the other, or begin later than the first."""
        if not self._per_core or len(self._waiting) > WAITING_MAX:
            return True
        if self._num_seen != len(self._seen):
            self._num_seen, self._grown = len(self._seen), now
        self._since = now if self._since is None else self._since
        num_known = max(self.num_expected, max(self._seen) + 1)
        if len(self._seen) >= num_known > 1 and self.num_expected:
            return True
        is_whole = len(self._seen) >= num_known and now - self._grown >= WAIT_S
        return is_whole or now - self._since >= WAIT_MAX_S

    def _complete(self) -> list[LossRow]:
        size = len(self._cores)
        steps = [step for step, row in self._waiting.items() if len(row) == size]
        rows = [(step, self._waiting.pop(step)) for step in steps]
        return [LossRow(step, [values[core] for core in self._cores]) for step, values in rows]


def topology(t: float, cores: list[int]) -> ev.TopologyDeclared:
    """The cores that a log names, at the unix time `t`."""
    return ev.TopologyDeclared(
        t=t,
        strategy=UNKNOWN,
        device=UNKNOWN,
        device_reason=REASON,
        num_cores=len(cores),
        num_hosts=1,
        host_index=0,
        cores=cores,
    )


def planned(t: float, num_steps: int, num_epochs: int) -> ev.TrainingPlanned:
    """The totals that a log tells, 0 for unknown ones, at the unix time `t`."""
    per_epoch = -(-num_steps // num_epochs) if num_epochs else num_steps
    return ev.TrainingPlanned(
        t=t,
        task="",
        num_epochs=num_epochs,
        steps_per_epoch=per_epoch,
        valid_steps=0,
        first_step=1,
        batch_per_core=0,
        global_batch=0,
        train_examples=0,
        valid_examples=0,
        num_parameters=0,
        precision="",
        lr=math.nan,
        lr_rule="",
        num_steps=num_steps,
    )


def steps_recorded(rows: Sequence[LossRow], now: float) -> Iterator[ev.StepsRecorded]:
    """The steps as events; consecutive ones together."""
    start = 0
    for place in range(1, len(rows) + 1):
        is_next = place < len(rows) and rows[place].step == rows[place - 1].step + 1
        if is_next and place - start < ROWS_PER_EVENT:
            continue
        yield from _events(rows[start:place], now)
        start = place


def _events(rows: Sequence[LossRow], now: float) -> Iterator[ev.StepsRecorded]:
    """The rows as one event; as several if a finite value is beyond float32, since one alone stays exact."""
    exact = [value for row in rows for value in row.values]
    values = array("f", exact)
    mean, least, greatest, bad = float_blocks.summarise(values)
    if bad and any(map(float_blocks.is_beyond_float32, exact)):
        if len(rows) > 1:
            for row in rows:
                yield from _events([row], now)
            return
        values = float_blocks.float32(exact)
        mean, least, greatest, bad = float_blocks.summarise(exact)
    yield ev.StepsRecorded(
        t=now,
        first=rows[0].step,
        n=len(rows),
        cores=len(rows[0].values),
        mean=mean,
        min=least,
        max=greatest,
        bad=bad,
        block=float_blocks.pack(float_blocks.little_endian_bytes(values)),
    )


PACE_INTERVAL_S = 1.0
"""Shortest time over which the step time is measured."""
_PRINTED_MAX = 4_096
_POSITIONS_MAX = 1 << 16
"""Steps of which the epoch is remembered that a scalar named `epoch` tells."""
_TOTAL_MAX = 2**53
REPEAT_WAIT_S = 3.0
"""Seconds for which a value that another log does not have is held back, because that log may be behind."""
FIRST_LOSS_WAIT_S = 120.0
"""The same of a training loss, until the process reports its first one: it may compile after the script has printed."""


class _PendingValues:
    """Values of one tag that are not events yet."""

    def __init__(self, source: str, tag: str, meaning: TagMeaning) -> None:
        self.source = source
        self.tag = tag
        self.meaning = meaning
        self.is_loss = False
        self.role: Role = role_of(meaning.name)
        self.is_valid = meaning.split == "valid"
        self.is_test = meaning.split == "valid" and is_test(meaning.name)
        self.num_stepless = 0
        """Values that have had no step."""
        self.is_metric = self.role == "metric"
        self.shown = Shown()
        self.repeats: Repeats | None = None
        """Set if it may repeat what the other logs have; its values are held back until that is known."""
        self.num_repeated = 0
        """Values held back that repeat others."""
        self.num_taken = self.num_hidden = 0
        """All values with a step, and those of them that repeat others."""
        self.waits_since: float | None = None
        """Unix time since which a value is held back that does not."""
        self.num_values = 0
        self.x = ""
        """The x axis that the author chose; empty for steps."""
        self.is_late = False
        """Whether its log is written with checkpoints, long after its values."""
        self.values: list[float] = []
        self.steps: list[int] = []
        self.times: list[float] = []
        self.epochs: list[float] = []

    @property
    def is_counted(self) -> bool:
        """Whether none of its values has had a step."""
        return self.num_stepless == self.num_values

    @property
    def is_console(self) -> bool:
        """Whether its values were printed."""
        return self.source == CONSOLE

    def clear(self) -> None:
        self.values, self.steps, self.times, self.epochs = [], [], [], []


class _OfEpoch(NamedTuple):
    """A value with an epoch."""

    column: _PendingValues
    number: int
    """Among the values of its column, from 1."""
    value: float
    step: int
    epoch: float
    now: float
    has_step: bool
    """Whether the log gave the step."""


PositionAt = Callable[[float, bool], tuple[int, int, range] | None]
"""Step and epoch of a training at a unix time, or of the evaluation that had begun then, and the epochs that the newest
training has by then; None if not known."""


class ValueEvents:
    """Gathers values of one run from all of its logs."""

    def __init__(self, rule: TagRule | None = None, *, has_console: bool = True) -> None:
        """`has_console`: values of the console may come beside those of files."""
        self._rule = rule or TagRule()
        self._has_console = has_console
        self._names = TagNames(self._rule)
        self._columns: dict[tuple[str, str], _PendingValues | None] = {}
        self._metrics: dict[bool, list[_PendingValues]] = {True: [], False: []}
        """Those of them that are metrics, by whether they are of the console."""
        self._loss: str | None = None
        """Name of the metric that is the training loss, once it is known."""
        self._is_loss_printed = False
        """Whether that is a metric of the console."""
        self._num_ranked = 0
        """Columns among which the training loss was looked for."""
        self._per_core = False
        self._num_expected = 0
        self._rows = LossRows(per_core=False)
        self._epochs = EpochTracker()
        self._of_epochs: deque[_OfEpoch] = deque()
        """Values that are in no epoch yet, in the order in which they were read."""
        self._pace = _StepTime()
        self._events: list[ev.Event] = []
        self._reported = ReportedDamage()
        self._num_left_out = 0
        """Tags that are left out, at the last look."""
        self.position_at: PositionAt | None = None
        """Set if a process reports its steps. The values are metrics beside its loss then; those without a step or
        epoch get it from there."""
        self._of_process: dict[tuple[Split, str], Shown] = {}
        """What the process reports, by split and name; all training losses are one."""
        self._counts_from_0: dict[str, bool] = {}
        """Whether a source counts epochs from 0, of a training that reports them."""
        self._lr = self._examples_per_s = math.nan
        self._lr_name: str | None = None
        """The metric that is the learning rate."""
        self._totals: dict[str, int] = {}
        """Steps and epochs of the whole training, as the log tells."""
        self._has_new_totals = False
        self._newest_of: dict[str, int] = {}
        """Newest step by source, of those whose values have steps."""
        self._epoch_of: dict[str, float] = {}
        """Epoch of the newest value by source."""
        self._by_step: dict[str, dict[int, float]] = {}
        """Epochs by source and step, if a scalar tells them."""
        self._scanned: set[str] = set()
        """Sources whose first values were searched for such a scalar."""
        self._printed: set[str] = set()
        """Tags on the console whose values have steps."""
        self.newest_step = 0
        self.newest_t = 0.0
        """Newest time of a value, in unix seconds; 0 before the first."""
        self.num_values = 0

    @property
    def loss(self) -> str | None:
        """Name of the metric that is the training loss; None while it is not known."""
        return self._loss

    @property
    def epoch(self) -> int:
        """The current epoch; 0 if unknown."""
        return self._epochs.number

    def has(self, source: str, tag: str) -> bool:
        """Whether a log has had values of a tag."""
        return (source, tag) in self._columns

    def expect_cores(self, number: int) -> None:
        """Sets the number of cores that are known to exist; their loss is complete when all of them have one."""
        self._num_expected = self._rows.num_expected = number

    def place_by(self, position_at: PositionAt) -> None:
        """From now on a process reports its steps, so that no metric here is the training loss."""
        self.position_at = position_at
        for column in self._columns.values():
            if column is not None:
                column.is_loss = False
                if column.is_console and not column.shown.num_values:
                    column.repeats = Repeats()

    def take_reported(self, tag: str, first_step: int, values: Iterable[float]) -> None:
        """Takes the values of a tag in consecutive steps that the process reports; printed ones may repeat them."""
        key = self._key_of(tag)
        if key not in self._of_process and len(self._of_process) >= _PRINTED_MAX:
            return
        shown = self._of_process.setdefault(key, Shown())
        for step, value in enumerate(values, first_step):
            shown.add(step, value)

    def take(self, source: str, values: Sequence[LoggedValue], now: float, *, is_late: bool = False) -> None:
        """Adds values of one log; `source` is its path, or `console`. `now` is unix time.

        From a log that is late, which is written with checkpoints, a metric is taken only if neither the console has it
        with its steps nor the process reports it.
        """
        columns = self._columns
        by_step = self._epochs_of_steps(source, values)
        newest: int | None = None
        for tag, step, t, value, epoch, x in values:
            if is_late and (tag in self._printed or self._key_of(tag) in self._of_process):
                continue
            key = (source, tag)
            column = columns[key] if key in columns else self._add_column(source, tag, now)
            if column is None:
                continue
            if not column.is_metric and self._take_role(column, value):
                continue
            is_printed = source == CONSOLE and (column.repeats is None or self.position_at is not None)
            if is_printed and step is not None and len(self._printed) < _PRINTED_MAX:
                self._printed.add(tag)
            column.num_values += 1
            if self.position_at is not None:
                step = None if column.is_console and column.is_valid else step
                step, epoch = self._placed(column, step, epoch, now if t is None else t)
            if has_step := step is not None:
                if not -STEP_MAX <= step <= STEP_MAX:
                    continue
                newest = step
            if self.position_at is None and epoch is None and (by_step is not None or column.is_valid):
                epoch = self._epoch_at(source, step, by_step)
            if step is None:
                if newest is not None:
                    self._newest_of[source] = newest
                column.num_stepless += 1
                step = self._position_of(source, column, epoch)
            column.x, column.is_late = x, is_late
            column.num_taken += 1
            column.values.append(value)
            column.steps.append(step)
            column.times.append(math.nan if t is None else t)
            column.epochs.append(math.nan if epoch is None else epoch)
            if step > self.newest_step and not column.is_test:
                self.newest_step = step
            if epoch is not None:
                self._epoch_of[source] = epoch
                of_epoch = step if has_step else self.newest_step
                self._of_epochs.append(_OfEpoch(column, column.num_taken, value, of_epoch, epoch, now, has_step))
                self._fill_epochs()
            if t is not None and t > self.newest_t:
                self.newest_t = t
            if len(column.values) >= VALUES_PER_EVENT:
                self._flush(column, now)
        if newest is not None:
            self._newest_of[source] = newest
        self.num_values += len(values)

    def _fill_epochs(self) -> None:
        """Adds values to their epochs, in order, up to the first one that may repeat another log. Where the epochs of a
        log itself place its values, none waits."""
        while self._of_epochs:
            column, number, value, step, epoch, now, has_step = self._of_epochs[0]
            is_repeated = number <= column.num_hidden
            if self.position_at is not None and column.repeats is not None and not is_repeated:
                return
            self._of_epochs.popleft()
            if self.position_at is None or column.repeats is None:
                self._epochs.add(column.meaning, value, step, epoch, now, has_step=has_step, source=column.source)

    def _placed(
        self, column: _PendingValues, step: int | None, epoch: float | None, t: float
    ) -> tuple[int | None, float | None]:
        """The step of a value of a training that reports its own, and the epoch of one of an evaluation, or of one that
        is printed with an epoch where no steps are known."""
        evaluates = column.is_valid
        place = self.position_at(t, evaluates) if self.position_at is not None else None
        if epoch is not None and (epoch == 0 or epoch != int(epoch)):
            # One that writes fractions begins with 0.0, too.
            self._counts_from_0[column.source] = epoch == 0 and self._counts_from_0.get(column.source, True)
        if place is None:
            return step, None
        number, epochs = place[1:]
        if not number and epoch is not None and epoch == int(epoch):
            # The process knows of no epochs.
            return place[0] if step is None else step, epoch + self._counts_from_0.get(column.source, False)
        has_epoch = evaluates or (step is None and epoch is not None and not place[0])
        if epoch is not None and epoch == int(epoch) and number:
            # A file may be read long after the epoch, and a line when the next one has begun.
            as_logged = int(epoch) + self._counts_from_0.get(column.source, False) + epochs.start - 1
            # A printed one that is long over is of another training, which counts from 1 again.
            is_over = column.is_console and as_logged < number - 1
            number = as_logged if as_logged in epochs and not is_over else number
        return place[0] if step is None else step, float(number) if number and has_epoch else None

    def _epochs_of_steps(self, source: str, values: Sequence[LoggedValue]) -> dict[int, float] | None:
        """The epochs by step that a scalar named `epoch` tells, which Lightning logs beside the others; None if a log
        has none."""
        known = self._by_step.get(source)
        if source == CONSOLE or (known is None and source in self._scanned):
            return known
        self._scanned.add(source)
        for value in values:
            if value[0] in EPOCH_NAMES and value[1] is not None:
                known = self._by_step.setdefault(source, {}) if known is None else known
                known[value[1]] = value[3]
        while known is not None and len(known) > _POSITIONS_MAX:
            del known[next(iter(known))]
        return known

    def _epoch_at(self, source: str, step: int | None, by_step: dict[int, float] | None) -> float | None:
        """The epoch of a value without one: that of its step, or else of the value before."""
        at_step = by_step.get(step) if by_step is not None and step is not None else None
        return at_step if at_step is not None else self._epoch_of.get(source)

    def _position_of(self, source: str, column: _PendingValues, epoch: float | None) -> int:
        """The step of a value without one: the newest of its log, or the end of its epoch in another log. Where no log
        has steps, values are counted."""
        if source in self._newest_of:
            return self._newest_of[source]
        if not self._newest_of:
            return column.num_values
        end = self._epochs.end_of(source, epoch) if epoch is not None else None
        return self._newest_of[next(iter(self._newest_of))] if end is None else end

    def take_config(self, config: Mapping[str, Any]) -> None:
        """Takes the totals in the configuration of a log, such as `max_steps`, and the metric of its best epoch."""
        checkpoint = config.get("checkpoint")
        if isinstance(checkpoint, Mapping) and type(monitor := checkpoint.get("monitor")) is str:
            self._epochs.chosen = self._rule.meaning_of(monitor).name
        for name, value in config.items():
            if type(value) in (int, float) and (role := total_of(name)) != "nothing":
                self._take_total(role, value)

    def _take_total(self, role: Role, value: float) -> None:
        if math.isfinite(value) and 0 < value < _TOTAL_MAX and self._totals.get(role) != int(value):
            self._totals[role] = int(value)
            self._has_new_totals = True

    def _take_role(self, column: _PendingValues, value: float) -> bool:
        """Takes a value that is no metric; returns whether it is none."""
        role = column.role
        if role in ("total_steps", "total_epochs"):
            self._take_total(role, value)
            return True
        if role == "speed" and column.meaning.split == "train" and math.isfinite(value):
            self._examples_per_s = value
        return role in ("step", "epoch", "nothing")

    def events(self, now: float, *, final: bool = False) -> list[ev.Event]:
        """The events of the values since the last call, at the unix time `now`. `final`: no more values follow."""
        self._decide(now)
        columns = [column for column in self._columns.values() if column is not None and column.values]
        for column in sorted(columns, key=lambda column: column.repeats is not None):
            self._flush(column, now, final=final)
        self._fill_epochs()
        is_reported = self.position_at is not None
        steps = [] if is_reported else list(self._rows.events(now, final=final))
        self._events += steps
        self._warn([_CUT] if any(map(_is_cut, steps)) else [], now)
        self._warn([_LEFT_OUT] if self._rows.num_left_out else [], now)
        self._warn_of_left_out(now, final=final)
        place = self.position_at(now, False) if self.position_at is not None else None
        epochs = self._epochs.events(now, self._lr, final=final, running=place[1] if place is not None else 0)
        has_epochs = is_reported and (place is None or place[1] > 0)
        self._events += [event for event in epochs if not (has_epochs and isinstance(event, ev.EpochStarted))]
        progress = self._pace.event(now, self._epochs, self._lr, self._examples_per_s)
        if progress is not None and not is_reported:
            self._events.append(progress)
        events, self._events = self._events, []
        if self._has_new_totals and not is_reported:
            self._has_new_totals = False
            events.insert(0, planned(now, self._totals.get("total_steps", 0), self._totals.get("total_epochs", 0)))
        return events

    def _warn_of_left_out(self, now: float, *, final: bool) -> None:
        """Warns of tags that are left out, once no further ones appear."""
        before, self._num_left_out = self._num_left_out, self._names.num_left_out
        if self._num_left_out == before or final:
            self._warn(filter(None, [self._names.left_out]), now, final=final)

    def _warn(self, sentences: Iterable[str], now: float, *, final: bool = False) -> None:
        self._events += [ev.WarningRaised(t=now, text=text) for text in self._reported.new(sentences, final=final)]

    def _add_column(self, source: str, tag: str, now: float) -> _PendingValues | None:
        if source == CONSOLE and names_secret(tag, "0"):
            return None  # `password: 1234`, which is masked in the printed line too.
        meaning = self._names.meaning_of(source, tag)
        if tag in EPOCH_NAMES:
            self._by_step.setdefault(source, {})
        column = _PendingValues(source, tag, meaning) if meaning is not None else None
        if column is None:
            return None
        self._columns[source, tag] = column
        if column.role in ("metric", "lr", "speed"):
            self._metrics[column.is_console].append(column)
        if self._loss is not None:
            column.is_loss = self._is_loss(column)
        if self.position_at is not None and column.is_console:
            column.repeats = Repeats()
        elif self._has_console and self._others(column, of_any_split=True):
            is_of_loss = self._loss is not None and self._is_loss_printed == column.is_console
            column.repeats = None if is_of_loss else Repeats()
        return column

    def _others(self, column: _PendingValues, *, of_any_split: bool = False) -> list[_PendingValues]:
        """The metrics of files for one of the console, and the other way round."""
        others = self._metrics[not column.is_console]
        return [other for other in others if of_any_split or other.meaning.split == column.meaning.split]

    def _decide(self, now: float) -> None:
        """Chooses the metric that is the training loss among those known so far."""
        if self.position_at is not None or self._loss is not None or self._num_ranked == len(self._columns):
            return
        self._num_ranked = len(self._columns)
        ranked = []
        for place, column in enumerate(self._columns.values()):
            if column is None:
                continue
            meaning = column.meaning if column.meaning.core is not None else self._rule.meaning_of(column.tag)
            is_named = self._rule.loss in (column.tag, column.meaning.name)
            rank = loss_rank(meaning) if self._rule.loss is None else -1 if is_named else None
            if rank is not None:
                ranked.append((rank, place, column))
        kinds = {column.is_console: column for _, _, column in sorted(ranked, reverse=True)}
        if not ranked or (len({column.tag for _, _, column in ranked}) > 1 and min(ranked)[0] >= PART_RANK):
            return  # None, or losses of parts, whose sum is not logged.
        chosen = max(kinds.values(), key=lambda column: (column.num_values, not column.is_console))
        self._loss, self._is_loss_printed = chosen.meaning.name, chosen.is_console
        for column in self._columns.values():
            if column is not None:
                column.is_loss = self._is_loss(column)
                is_other = len(kinds) > 1 and column.is_console != chosen.is_console
                column.repeats = Repeats() if is_other else None
        loss_columns = [column for column in self._columns.values() if column is not None and column.is_loss]
        self._per_core = any(column.meaning.core is not None for column in loss_columns)
        self._rows = LossRows(per_core=self._per_core, num_expected=self._num_expected)
        name = chosen.meaning.name if self._per_core else chosen.tag
        self._events.append(ev.LossNamed(t=now, name=name, source=chosen.source))

    def _is_loss(self, column: _PendingValues) -> bool:
        is_named = column.meaning.split == "train" and column.meaning.name == self._loss
        return is_named and self.position_at is None

    def _flush(self, column: _PendingValues, now: float, *, final: bool = False) -> None:
        self._decide(now)
        if column.repeats is not None and self._is_repeated(column, column.repeats, now, final=final):
            return
        if self._has_console:
            for value, step, epoch in zip(column.values, column.steps, column.epochs, strict=True):
                column.shown.add(step if self._has_own_steps(column) else None, value, epoch)
        values, steps, times, epochs = column.values, column.steps, column.times, column.epochs
        meaning = column.meaning
        has_epochs = not all(map(math.isnan, epochs))
        if column.role == "lr" and meaning.split == "train" and self._lr_name in (None, meaning.name):
            self._lr_name, self._lr = meaning.name, values[-1]
        if column.is_loss:
            self._add_loss(column, now)
        if not (column.is_loss and meaning.core is not None):
            columns = LoggedColumns(values, steps, times, epochs if has_epochs else None)
            label, counted = meaning.label, column.is_counted and not self._newest_of
            tag, source, x = column.tag, column.source, column.x
            event = values_logged(now, label, meaning.split, tag, source, columns, counted=counted, x=x)
            self._events.append(event)
        column.clear()

    def _is_repeated(self, column: _PendingValues, repeats: Repeats, now: float, *, final: bool) -> bool:
        """Whether the values of a metric are held back, since they are those of another log so far."""
        others = [other.shown for other in self._others(column)]
        namesake = self._of_process.get(key := self._key_of(column.tag), Shown()) if column.is_console else None
        if namesake is not None:
            # The training loss may be printed under any name, such as `cost`.
            others[:0] = [namesake, self._of_process.get((key[0], "loss"), Shown())]
        while column.num_repeated < len(column.values):
            step = column.steps[column.num_repeated] if self._has_own_steps(column) else None
            value, epoch = column.values[column.num_repeated], column.epochs[column.num_repeated]
            if repeats.take(step, value, epoch, others, is_printed=column.is_console, namesake=namesake):
                column.num_repeated, column.waits_since = column.num_repeated + 1, None
                column.num_hidden += 1
                continue
            # The other log may be behind.
            column.waits_since = now if column.waits_since is None else column.waits_since
            is_late = now - column.waits_since > self._wait_s(column) or len(column.values) >= VALUES_PER_EVENT
            if final or is_late or not (column.num_repeated or self._has_namesake(column)):
                column.repeats = None
                return False
            return True
        if len(column.values) >= VALUES_PER_EVENT:
            column.clear()
            column.num_repeated = 0
        return True

    def _has_own_steps(self, column: _PendingValues) -> bool:
        """Whether the steps of a metric are those that its log names."""
        return not (column.is_counted or (self.position_at is not None and column.is_console and column.is_valid))

    def _wait_s(self, column: _PendingValues) -> float:
        is_first = self.position_at is not None and TRAINING_LOSS not in self._of_process
        return FIRST_LOSS_WAIT_S if is_first and self._key_of(column.tag) == TRAINING_LOSS else REPEAT_WAIT_S

    def _key_of(self, tag: str) -> tuple[Split, str]:
        """Split and name; one name for what is a training loss, however the script calls it. A test is a validation; a
        printed name may have its split twice."""
        meaning = self._rule.meaning_of(tag)
        if loss_rank(meaning) is not None:
            return TRAINING_LOSS
        prefixes = ("train_",) if meaning.split == "train" else ("valid/", "test_")
        name = meaning.name
        for prefix in prefixes:
            name = name.removeprefix(prefix)
        return meaning.split, name.removesuffix("_epoch")

    def _has_namesake(self, column: _PendingValues) -> bool:
        """Whether another log has a metric of the same name."""
        if self.position_at is not None and column.is_console:
            return True  # The journal of the process may be behind.
        meaning = self._rule.meaning_of(column.tag)
        namesakes = [other for other in self._others(column) if meaning == self._rule.meaning_of(other.tag)]
        # Beside a process, printed values wait for the exact ones of a file, not these for them.
        waits = column.is_late or self.position_at is None
        return any(waits or other.shown.num_values for other in namesakes)

    def _add_loss(self, column: _PendingValues, now: float) -> None:
        core = column.meaning.core
        if core is None and self._per_core:
            return
        if core is not None and not self._per_core:
            # Until now there was one loss; the first core's takes its place.
            self._per_core = True
            self._rows = LossRows(per_core=True, num_expected=self._num_expected)
        for value, step in zip(column.values, column.steps, strict=True):
            self._rows.add(core or 0, step, value)
        newest_t = column.times[-1]
        self._pace.add(column.steps[-1], newest_t if not math.isnan(newest_t) else now)


def _is_cut(event: ev.Event) -> bool:
    """Whether values of several cores are beyond float32."""
    if not isinstance(event, ev.StepsRecorded) or event.cores == 1:
        return False
    return any(map(float_blocks.is_beyond_float32, (event.min, event.max)))


class _StepTime:
    """The time of a step, from the times of two reports of the loss."""

    def __init__(self) -> None:
        self._from: tuple[int, float] | None = None
        self._to: tuple[int, float] | None = None

    def add(self, step: int, t: float) -> None:
        """Adds a step and the unix time at which it was logged."""
        if self._from is None or step < self._from[0] or t < self._from[1]:
            self._from = (step, t)
        elif self._to is None or step > self._to[0]:
            self._to = (step, t)

    def event(self, now: float, epochs: EpochTracker, lr: float, examples_per_s: float) -> ev.ProgressReported | None:
        """The progress, if the steps since the last one took long enough."""
        if self._from is None or self._to is None or self._to[1] - self._from[1] < PACE_INTERVAL_S:
            return None
        (first, since), (last, until) = self._from, self._to
        self._from, self._to = self._to, None
        if last <= first:
            return None
        return ev.ProgressReported(
            t=now,
            epoch=epochs.number,
            epoch_step=max(0, last - epochs.first_step + 1) if epochs.number else last,
            step=last,
            step_s=(until - since) / (last - first),
            examples_per_s=examples_per_s,
            lr=lr,
            report_steps=last - first,
        )
