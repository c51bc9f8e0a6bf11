"""`TputuiCallback` for the Trainer of Hugging Face transformers: `Trainer(..., callbacks=[TputuiCallback()])`.

The callback joins the run that launched the script (`tputui run -- ...`), else it creates a run directory under
`./runs` (or `$TPUTUI_RUNS`). It reports what the Trainer logs, evaluates and saves, counts every step, and serves
requests to save and to stop at the end of a step. It never ends a training: an error of its own is reported once.

The Trainer logs the loss as a mean over `logging_steps` steps; it is recorded at the last of them. Only the first rank
reports values; the others report that they are alive. A callback that tputui attached has the loss of each step, on
every rank, from hooks. Importing this module does not import transformers, accessing the class does.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tputui.batch_rows import length_of
from tputui.integrations.callbacks import FLOAT32, NamedMetrics, StepLosses, harmless, made_class
from tputui.logs.repeats import is_same
from tputui.telemetry import events as ev
from tputui.telemetry.meters import without_split

SOURCE = "Trainer.log"
_NOT_SCORES = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "epoch")
"""Values that the Trainer adds to the results of an evaluation; they are logged, but are no scores."""


class _Hooks(StepLosses):
    """The hooks of the callback. What the Trainer passes is accessed by name only."""

    def __init__(self, runs_dir: str | None = None) -> None:
        super().__init__(runs_dir)
        self._is_begun = False
        """Whether the training is reported that runs now."""
        self._logged: NamedMetrics | None = None
        self._loss: Any = None
        """Of the newest step; it may be on a device."""
        self._shape = _Shape()
        self._examples_open = 0
        """Examples since the last logged loss."""
        self._lr: float | None = None
        self._epoch_number = 0
        self._epoch: AbstractContextManager[None] | None = None
        self._first_step = 1
        self._phase: AbstractContextManager[None] | None = None
        self._phase_name = ""
        self._phase_began = 0.0
        self._asked: list[Any] = []
        """Requests for which the Trainer is to save."""
        self._checkpoints: set[Path] = set()

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **given: Any) -> None:
        """Opens the run, and reports the plan; an attached callback waits for what other callbacks open."""
        self._is_begun = False
        if not self.is_attached:
            self._begin(args, state, model, given)

    def _begin(self, args: Any, state: Any, model: Any, given: Mapping[str, Any]) -> None:
        self._is_begun = True
        task = type(model).__name__ if model is not None else "Trainer"
        config = {"task": task, "epochs": state.num_train_epochs, **_changed(args)}
        self._join(task, config, "", rank=args.process_index, world_size=args.world_size)
        if self._run is None:
            return
        self._count_from(self._run, int(state.global_step), math.floor(state.epoch or 0))
        self._logged = NamedMetrics(self._run, SOURCE) if state.is_world_process_zero else None
        self._shape = _Shape.of(args, state, _passed("train_dataloader", given, state))
        self._epoch_number, self._first_step = 0, int(state.global_step) + 1
        self._run.emit(self._plan(args, state, model, given))
        self._begin_losses(is_scaled=bool(args.deepspeed))

    def _plan(self, args: Any, state: Any, model: Any, given: Mapping[str, Any]) -> ev.Event:
        shape, valid = self._shape, given.get("eval_dataloader")
        return ev.TrainingPlanned(
            t=time.time(),
            task=type(model).__name__,
            num_epochs=shape.num_epochs + self._epoch_shift,
            steps_per_epoch=shape.steps_per_epoch,
            num_steps=int(state.max_steps) + self._step_shift if int(state.max_steps) % shape.steps_per_epoch else 0,
            valid_steps=length_of(valid) or 0,
            first_step=self._first_step + self._step_shift,
            batch_per_core=shape.batch // max(1, args.world_size),
            global_batch=shape.batch,
            train_examples=shape.train_examples or shape.steps_per_epoch * shape.batch,
            valid_examples=length_of(_dataset(valid)) or 0,
            num_parameters=sum(p.numel() for p in model.parameters() if p.requires_grad) if model is not None else 0,
            precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
            lr=float(args.learning_rate),
            lr_rule=f"the Trainer's: {getattr(args.lr_scheduler_type, 'value', args.lr_scheduler_type)}",
        )

    @harmless
    def on_epoch_begin(self, args: Any, state: Any, control: Any, model: Any = None, **given: Any) -> None:
        """Ends the epoch before, whose evaluation is done by now, and begins the next one."""
        if not self._is_begun:
            self._begin(args, state, model, given)
        if self._run is None:
            return
        self._end_epoch()
        self._epoch_number = max(self._epoch_number, math.floor(state.epoch or 0)) + 1
        self._first_step = int(state.global_step) + 1
        self._epoch = self._run.epoch(self._epoch_number + self._epoch_shift)
        self._epoch.__enter__()

    def _end_epoch(self) -> None:
        self._leave_phase()
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.__exit__(None, None, None)

    @harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ends the evaluation or the save after the step before."""
        self._leave_phase()

    @harmless
    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Notes the learning rate before the scheduler changes it."""
        if self._run is not None and (optimizer := _passed("optimizer", given, state)) is not None:
            self._lr = optimizer.param_groups[0]["lr"]

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Reports the step, and passes requests on to the Trainer."""
        run = self._run
        if run is None:
            return
        examples = self._shape.examples_of(int(state.global_step) - self._first_step)
        self._examples_open += examples
        step = int(state.global_step) + self._step_shift
        self._loss = self._loss_of_step()
        run.step(self._loss, examples // max(1, args.world_size), lr=self._lr, step=step)
        if self._logged is not None:
            self._logged.write_if_due()
        self._asked = run.saves_asked()
        if self._asked:
            control.should_save = True
        if run.should_stop():
            control.should_training_stop = True
        self._enter_next(control)

    @harmless
    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Passes a request to stop after the epoch on to the Trainer; logs, evaluation and save are still to come."""
        if self._run is None:
            return
        self._leave_phase()
        self._asked = self._run.saves_asked()
        if self._asked:
            control.should_save = True
        if self._run.should_stop(ends_epoch=True):
            control.should_training_stop = True
        self._enter_next(control)

    def _enter_next(self, control: Any) -> None:
        """Begins the phase that the Trainer is going to enter."""
        if control.should_evaluate:
            self._enter_phase("evaluate")
        elif control.should_save:
            self._enter_phase("save")

    def _enter_phase(self, name: str) -> None:
        if self._run is None or self._phase_name == name:
            return
        self._leave_phase()
        self._phase, self._phase_name = self._run.phase(name), name
        self._phase_began = time.perf_counter()
        self._phase.__enter__()

    def _leave_phase(self) -> None:
        phase, self._phase, self._phase_name = self._phase, None, ""
        if phase is not None:
            phase.__exit__(None, None, None)

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **given: Any) -> None:
        """Reports what the Trainer logs, and its loss as that of the step."""
        if self._run is None or self._logged is None or not logs:
            return
        step = int(state.global_step) + self._step_shift
        values = {tag: value for tag, value in logs.items() if tag not in ("epoch", "step")}
        if self._is_exact:
            self._logged.leave_name("loss")
            if "loss" in values and self._loss is not None and _is_loss(float(values["loss"]), float(self._loss)):
                del values["loss"]
        self._logged.take(values, step, math.nan if state.epoch is None else float(state.epoch) + self._epoch_shift)
        if "loss" in values and step and not self._is_exact:
            self._name_loss("loss", SOURCE)
            self._run.loss(step, values["loss"], self._examples_open or 1)
            self._examples_open = 0

    @harmless
    def on_prediction_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begins an evaluation that the Trainer had not announced."""
        self._enter_phase("evaluate")

    @harmless
    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **given: Any
    ) -> None:
        if self._run is None:
            return
        self._leave_phase()
        if self._logged is not None:
            self._logged.write()
            scores = {without_split(_valid_name(tag), "valid"): value for tag, value in (metrics or {}).items()}
            self._run.valid({name: value for name, value in scores.items() if _is_score(name, value)})
        if control.should_save:
            self._enter_phase("save")

    @harmless
    def on_predict(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ends the phase that `on_prediction_step` began."""
        self._leave_phase()

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Reports the checkpoint, answers the requests for it, and reports older ones that the Trainer removed."""
        run, asked, self._asked = self._run, self._asked, []
        if run is None:
            return
        seconds = time.perf_counter() - self._phase_began if self._phase_name == "save" else 0.0
        self._leave_phase()
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if not state.is_world_process_zero or not path.is_dir():
            run.answer_saves(asked, None, seconds)
            return
        if asked:
            run.answer_saves(asked, path, seconds)
        else:
            best = state.best_model_checkpoint
            is_best = bool(best) and Path(best).absolute() == path.absolute()
            run.checkpoint_saved(path, seconds=seconds, best=is_best)
        self._checkpoints.add(path)
        for gone in [checkpoint for checkpoint in self._checkpoints if not checkpoint.exists()]:
            self._checkpoints.discard(gone)
            run.checkpoint_removed(gone)

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Reports the end of training, and closes the run if the callback opened it."""
        if self._run is None:
            return
        self._end_epoch()
        if self._logged is not None:
            self._logged.write(all_values=True)
        self._end_training(f"Trainer.train ended at step {state.global_step} of {state.max_steps}")


class _Shape:
    """The numbers of steps and examples of a training, over all ranks."""

    def __init__(self) -> None:
        self.num_epochs = self.steps_per_epoch = self.batch = 1
        self.train_examples: int | None = None
        """Examples of an epoch; None if the dataset has no length."""

    @classmethod
    def of(cls, args: Any, state: Any, loader: Any) -> _Shape:
        """The shape of a training whose plan the Trainer has made."""
        shape = cls()
        accumulated = max(1, args.gradient_accumulation_steps)
        # `train_batch_size` is that of all devices of one process.
        shape.batch = int(args.train_batch_size) * accumulated * max(1, args.world_size)
        batches, max_steps = length_of(loader), int(state.max_steps)
        if not batches:
            shape.steps_per_epoch = max_steps
            return shape
        shape.steps_per_epoch = min(max_steps, math.ceil(batches / accumulated))
        shape.num_epochs = math.ceil(max_steps / shape.steps_per_epoch)
        if not args.dataloader_drop_last:
            shape.train_examples = length_of(_dataset(loader))
        return shape

    def examples_of(self, step: int) -> int:
        """Examples of a step, counted from 0 in its epoch; the last one may have fewer."""
        if self.train_examples is None:
            return self.batch
        return min(self.batch, max(1, self.train_examples - step * self.batch))


def _passed(name: str, given: Mapping[str, Any], state: Any) -> Any:
    """What the Trainer passes to its callbacks by name. Version 4.49 leaves it in the state instead."""
    passed = given.get(name)
    return passed if passed is not None else getattr(state, name, None)


def _changed(args: Any) -> dict[str, Any]:
    """The numbers and texts among the arguments that differ from their defaults, without secrets."""
    defaults = {field.name: field.default for field in dataclasses.fields(args)}
    return {
        name: value
        for name, value in args.to_dict().items()
        if isinstance(value, str | int | float)
        and value != defaults.get(name, value)
        and (value or defaults[name])
        and not name.endswith("token")
    }


def _valid_name(tag: str) -> str:
    """The tag with the prefix of our validation split instead of the Trainer's `eval_`."""
    return f"valid_{tag.removeprefix('eval_')}" if tag.startswith("eval_") else tag


def _is_loss(logged: float, loss: float) -> bool:
    """Whether the Trainer logged the loss of one step; some versions round it."""
    return is_same(logged, loss) or math.isclose(logged, loss, rel_tol=FLOAT32)


def _is_score(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and not name.endswith(_NOT_SCORES)


def _dataset(loader: Any) -> Any:
    """The data of a loader, or of the loader that one for XLA wraps."""
    return getattr(loader, "dataset", None) or getattr(getattr(loader, "dataloader", None), "dataset", None)


if TYPE_CHECKING:

    class TputuiCallback(_Hooks):
        """Reports a Trainer's run; see the module."""


def __getattr__(name: str) -> Any:
    """Makes `TputuiCallback` a callback of transformers."""
    return made_class(
        globals(), name, "TputuiCallback", lambda: importlib.import_module("transformers").TrainerCallback
    )
