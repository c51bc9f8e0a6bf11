"""What callbacks of frameworks share: their errors never reach the training, and what they log by name is reported."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from tputui.logs.damage_notes import ReportedDamage
from tputui.logs.tags import TagMeaning, TagNames, TagRule
from tputui.reporting.device_values import PENDING_MAX, DeviceValues, host_row
from tputui.reporting.run import Run
from tputui.reporting.start import current, join
from tputui.telemetry.events import LossNamed
from tputui.telemetry.logged_values import LoggedColumns, values_logged

FLOAT32 = 1e-6
"""Relative difference of two values that differ in their last bits in float32."""
WRITE_INTERVAL_S = 1.0
VALUES_MAX = 4_096
"""Most values that wait to be written."""
_log = logging.getLogger("tputui")
_Hook = TypeVar("_Hook", bound=Callable[..., None])


_attached: Run | None = None
"""The run that callbacks report to which tputui attached; None if the script has another source."""


def attached_run() -> Run | None:
    """The run of the callbacks that tputui attached, if it is open."""
    return _attached if _attached is not None and current() is _attached else None


class Harmless:
    """Base of callbacks whose errors are reported once and never reach the training."""

    is_attached = False
    """Whether tputui attached the callback, so that it leaves the run to any other source."""
    _run: Run | None = None
    _error_reported = False
    _is_own = True
    """Whether the callback opened the run, and closes it."""
    _step_shift = _epoch_shift = 0
    """Steps and epochs of earlier trainings in the run, which are added to those that the framework counts."""

    def __init__(self, runs_dir: str | None = None) -> None:
        """`runs_dir` is the folder for the run directory; by default `$TPUTUI_RUNS`, else `./runs`."""
        super().__init__()
        self._runs_dir = runs_dir

    def _join(
        self,
        task: str,
        config: Mapping[str, Any],
        loss_from: str,
        *,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Opens the run, or joins it; neither if another source reports to it. `loss_from` tells where the framework
        has its loss from; empty if that is not known yet."""
        global _attached
        before = current()
        if self.is_attached and before is not None and before is not _attached:
            self._run = None
            return
        self._is_own = before is None or (before is self._run and self._is_own)
        run = join(task, config, self._runs_dir, rank=rank, world_size=world_size)
        # A run without a journal: tputui launched this process and reports it already, or only rank 0 is shown.
        self._run = run if run.is_active else None
        _attached = self._run if self.is_attached else None
        if self._run is not None and loss_from:
            self._run.emit(LossNamed(t=time.time(), name="loss", source=loss_from))

    def _count_from(self, run: Run, step: int, epoch: int) -> None:
        """Begins a training that the framework counts from a step and an epoch, both the ones before the first."""
        self._step_shift = max(0, run.last_step - step)
        self._epoch_shift = max(0, run.last_epoch - epoch)

    def _end_training(self, reason: str) -> None:
        """Closes the run if the callback opened it. One that tputui launched lasts as long as the script."""
        run = self._run
        if run is None:
            return
        if run.is_launched:
            run.pause(reason)
        elif self._is_own:
            run.close(reason=reason)
            self._run = None

    def _report_once(self, error: Exception, where: str) -> None:
        if self._error_reported:
            return
        self._error_reported = True
        if self._run is not None and self._run.is_active:
            self._run.warn_of(error, f"{type(self).__name__}.{where}")
        else:
            reason = f"{type(error).__name__}: {error}"
            _log.warning("%s.%s failed: %s; training continues", type(self).__name__, where, reason, exc_info=error)


class StepLosses(Harmless):
    """Base of callbacks that have the loss of each step from hooks, where tputui attached them."""

    take_step_loss: Callable[[], tuple[str, str, Any] | None] | None = None
    """Name, place and value of the loss since the last call, by hooks, for callbacks that tputui attaches. None once
    the first step of the process had none: two sources would be no curve."""
    _is_exact = False
    """Whether they have the loss of each step."""
    _loss_name = ("", "")
    """Its name, and where it is from."""

    def _begin_losses(self, *, is_scaled: bool) -> None:
        """Begins a training; `is_scaled`: it does not differentiate the loss itself."""
        self._loss_name = ("", "")
        if self.take_step_loss is not None:
            self.take_step_loss()
        if is_scaled:
            type(self).take_step_loss, type(self)._is_exact = None, False

    def _loss_of_step(self) -> Any:
        """The loss since the last call, a number or a tensor on a device. Called by the thread that trains."""
        if self.take_step_loss is None:
            return None
        if (taken := self.take_step_loss()) is not None:
            type(self)._is_exact = True
            self._name_loss(taken[0], taken[1])
            return taken[2]
        if not self._is_exact:
            type(self).take_step_loss = None
        return None

    def _name_loss(self, name: str, source: str) -> None:
        if self._run is not None and self._loss_name != (name, source):
            self._loss_name = name, source
            self._run.emit(LossNamed(t=time.time(), name=name, source=source))


def harmless(hook: _Hook) -> _Hook:
    """Catches every error of a hook, so that it does not end a training that it only reports."""

    @functools.wraps(hook)
    def guarded(self: Harmless, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001, RUF100 - reported once; an error of a callback would kill every rank
            self._report_once(error, hook.__name__)

    return cast(_Hook, guarded)


ATTACHED = "AttachedCallback"
"""The class of the callbacks that tputui attaches."""


def made_class(module: dict[str, Any], wanted: str, name: str, base: Callable[[], type]) -> type:
    """The class `name` of a module of a framework: its `_Hooks` as a subclass of what the framework calls; or the
    class `AttachedCallback`, which tputui attaches by itself.

    For `__getattr__` of the module with these globals, so that importing the module does not import the framework.
    `wanted`: the attribute that was accessed; raises `AttributeError` if it is another. `base` imports the framework.
    """
    if wanted not in (name, ATTACHED):
        raise AttributeError(f"module {module['__name__']!r} has no attribute {wanted!r}")
    hooks: type = module["_Hooks"]
    namespace = {"__doc__": hooks.__doc__, "__module__": module["__name__"], "is_attached": wanted == ATTACHED}
    made = module[wanted] = type(wanted, (hooks, base()), namespace)
    return made


_Place = tuple[str, int, float, float]
"""Tag, step, unix time and epoch of a value."""


class NamedMetrics:
    """Metrics that a framework logs by name, as `ValuesLogged`: exact, with their steps and epochs.

    The name of a metric and its split follow from its tag by the rule for log files: `eval_accuracy` is the `accuracy`
    of the validation split. Values on a device are fetched when they are written, about once a second. Used by the
    thread that trains.
    """

    def __init__(self, run: Run, source: str) -> None:
        """`source` is shown as the origin of the values, such as `Trainer.log`."""
        self._run = run
        self._source = source
        self._names = TagNames(TagRule())
        self._values: list[tuple[_Place, float]] = []
        self._reported = ReportedDamage()
        self._devices = DeviceValues(run.warn)
        self._written_at = -math.inf

    def leave_name(self, name: str) -> None:
        """Leaves a name to another source, before values have it: that of this one is `loss (Trainer.log)`."""
        self._names.meaning_of("", name)

    def meaning_of(self, tag: str) -> TagMeaning | None:
        """The metric of a tag, always the same; None if there are too many tags."""
        return self._names.meaning_of(self._source, tag)

    def take(self, values: Mapping[str, Any], step: int, epoch: float = math.nan) -> None:
        """Adds the numbers among the logged values, and writes them unless others were written within a second.

        Text, arrays with several elements and values that are not numbers are left out. `epoch` may be fractional.
        """
        now = time.time()
        for tag, value in values.items():
            if not isinstance(value, str) and value is not None:
                self._take((str(tag), step, now, epoch), value)
        self.write_if_due()

    def write_if_due(self) -> None:
        """Writes values that wait, if the last ones were written more than a second ago."""
        waiting = len(self._values) + len(self._devices)
        if waiting and (time.monotonic() - self._written_at >= WRITE_INTERVAL_S or waiting >= VALUES_MAX):
            self.write()

    def write(self, *, all_values: bool = False) -> None:
        """Writes values that wait; those of torch_xla that no program computes yet only with `all_values`."""
        self._written_at = time.monotonic()
        for place, row in self._devices.fetch(all_values=all_values) if len(self._devices) else ():
            self._values.append((place, row[0]))
        waiting, self._values = self._values, []
        columns: dict[str, list[tuple[_Place, float]]] = {}
        for place, value in waiting:
            columns.setdefault(place[0], []).append((place, value))
        for tag, entries in columns.items():
            self._write_column(tag, entries)
        for sentence in self._reported.new(filter(None, [self._names.left_out]), final=all_values):
            self._run.warn(sentence)

    def _take(self, place: _Place, value: Any) -> None:
        if math.prod(getattr(value, "shape", ())) != 1:
            return
        try:
            row = host_row(value)
        except (TypeError, ValueError):
            return
        if row is None:
            if len(self._devices) < PENDING_MAX:
                self._devices.add(place, value)
        elif len(row) == 1:
            self._values.append((place, row[0]))

    def _write_column(self, tag: str, entries: list[tuple[_Place, float]]) -> None:
        meaning = self.meaning_of(tag)
        if meaning is None:
            return
        places, values = zip(*entries, strict=True)
        _, steps, times, epochs = zip(*places, strict=True)
        columns = LoggedColumns(values, steps, times, epochs)
        self._run.emit(values_logged(time.time(), meaning.label, meaning.split, tag, self._source, columns))
