"""`TputuiTracker` for Hugging Face accelerate: `Accelerator(log_with=TputuiTracker())`.

The tracker joins the run that launched the script (`tputui run -- ...`), else it creates a run directory under
`./runs` (or `$TPUTUI_RUNS`). `accelerator.log(values, step=n)` reports every number in `values`; the training loss
among them is that of step `n`. accelerate starts trackers in the main process only; `tputui.start()` returns the run in
every process. It reports more, and has `should_stop()` and `save_if_asked()`.

Importing this module does not import accelerate, accessing the class does.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tputui.integrations.callbacks import Harmless, NamedMetrics, harmless, made_class
from tputui.logs.tags import loss_rank
from tputui.reporting.run import Run
from tputui.reporting.start import current, join, script_name

SOURCE = "Accelerator.log"


class _Hooks(Harmless):
    """The methods that accelerate calls."""

    name = "tputui"
    requires_logging_directory = False

    def __init__(self, project: str | None = None, *, runs_dir: str | None = None) -> None:
        """`project` is the name of a run that is created, by default that of the script. `runs_dir` is the folder for
        its directory; by default `$TPUTUI_RUNS`, else `./runs`."""
        super().__init__(runs_dir)
        self._project = project or script_name()
        self._logged: NamedMetrics | None = None
        self._loss_tag: str | None = None
        """The tag of the training loss, once one was logged."""
        self._reported_step = 0
        """Newest step that the tracker reported."""

    @property
    def tracker(self) -> Run:
        return self._open({})

    def start(self) -> None:
        """Called by `init_trackers`. The run is opened with its configuration, or else when it is used first."""

    @harmless
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Opens the run with the configuration that was passed to `init_trackers`."""
        self._open(values)

    def _open(self, config: Mapping[str, Any]) -> Run:
        if self._run is None:
            state = importlib.import_module("accelerate").PartialState()
            self._is_own = current() is None
            self._run = join(
                self._project, config, self._runs_dir, rank=state.process_index, world_size=state.num_processes
            )
            self._logged = NamedMetrics(self._run, SOURCE) if state.is_main_process else None
        return self._run

    @harmless
    def log(self, values: Mapping[str, Any], step: int | None = None, **given: Any) -> None:
        """Reports the numbers among the values. Without `step`, every call with a training loss is a step."""
        run, logged = self._open({}), self._logged
        if logged is None or not run.is_active:
            return
        loss = self._loss_in(values, logged)
        number = _number(step, values, default=run.last_step + (loss is not None))
        numbers = {tag: value for tag, value in values.items() if tag not in ("epoch", "step")}
        if loss is not None and run.last_step == self._reported_step:
            run.step(values[loss], step=number)
            self._reported_step = run.last_step
        logged.take(numbers, number, _epoch(values))

    def _loss_in(self, values: Mapping[str, Any], logged: NamedMetrics) -> str | None:
        """The tag of the training loss among the values; None if they contain none."""
        if self._loss_tag is None:
            ranked = []
            for place, tag in enumerate(values):
                meaning = logged.meaning_of(str(tag))
                rank = loss_rank(meaning) if meaning is not None and not isinstance(values[tag], str) else None
                if rank is not None:
                    ranked.append((rank, place, tag))
            self._loss_tag = min(ranked)[2] if ranked else None
        return self._loss_tag if self._loss_tag in values else None

    @harmless
    def finish(self) -> None:
        """Called by `end_training`: writes what is left, and closes the run if the tracker opened it."""
        if self._logged is not None:
            self._logged.write(all_values=True)
        if self._run is not None and self._is_own:
            self._run.close()


def _number(step: int | None, values: Mapping[str, Any], *, default: int) -> int:
    if step is None:
        step = values.get("step")
    return int(step) if isinstance(step, int | float) and math.isfinite(step) else default


def _epoch(values: Mapping[str, Any]) -> float:
    epoch = values.get("epoch")
    return float(epoch) if isinstance(epoch, int | float) else math.nan


if TYPE_CHECKING:

    class TputuiTracker(_Hooks):
        """Reports what `Accelerator.log` logs; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiTracker` a tracker of accelerate."""
    return made_class(
        globals(), name, "TputuiTracker", lambda: importlib.import_module("accelerate.tracking").GeneralTracker
    )
