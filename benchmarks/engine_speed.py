"""Training examples a second of the engine, the fastest hand-written loop and Lightning, alternating in one process.

    python -m benchmarks.engine_speed [--rounds 24] [--epochs 3] [--case 8,32 --case 1,128]

A case is a number of cores and the width of the digits convnet: steps with 32 channels are bound by the host, with 128
by the device. Every case runs in its own process, because a process that has sharded over its devices
cannot use a single one. All contenders train the same network on the same examples in batches of 64, with Adam, in
fp32. Only training is timed, without evaluation and checkpoints.

- The engine as `tputui run` builds it, with telemetry: seeds, feed, reports to a journal on disk, polling for requests.
- The hand-written loop: data in memory, shuffled each epoch, one sync per step, one loss read every 50 steps, nothing
  else. It runs with each way to move batches and each Adam of `VARIANTS`; the fastest one is the rival.
- Lightning's own Trainer without logger, progress bar and checkpoints. One core uses its own `SingleDeviceXLAStrategy`;
  it has no strategy for several cores that runs without a TPU, so there it uses the engine's. Its epoch is timed from
  the hook at its start to the hook at its end.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.intervals import median_interval
from engine import run_plan
from engine.process import hardware
from engine.process.requests import RequestQueue
from tests import recorded
from tputui import config
from tputui.reporting.progress import Progress
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

SAMPLE = Path(__file__).parent.parent / "sample_configs" / "digits.toml"
BATCH = 64
READ_STEPS = 50
CASES = ("8,32", "8,128", "1,32", "1,128")
ADAMS: dict[str, dict[str, Any]] = {
    "Adam": {},
    "capturable Adam": {"capturable": True},
    "foreach Adam": {"foreach": True},
}
VARIANTS = [(moves, adam) for moves in ("one send a batch", "MpDeviceLoader") for adam in ADAMS]
"""How batches are moved to the device, and the optimizer."""
Epoch = Callable[[], None]


class Engine:
    """The engine's trainer."""

    def __init__(self, planned: Any, cores: Any, folder: Path) -> None:
        from engine.loop import build

        run_dir = rundir.create(folder, recorded.manifest("engine"))
        self.reporter = Reporter(run_dir, "worker")
        context = build.RunContext(run_dir, self.reporter, Progress(), RequestQueue())
        self._trainer = build.trainer(planned, cores, context)
        self._trainer.begin()

    def epoch(self) -> None:
        """Trains one epoch with its reports, without evaluation."""
        self._trainer.begin_epoch()
        self._trainer.train_steps()
        at = self._trainer.position
        self._trainer.position = at._replace(epoch=at.epoch + 1, batch=0)


class ByHand:
    """A hand-written training loop."""

    def __init__(self, planned: Any, cores: Any, moves: str, adam: str) -> None:
        import numpy as np
        import torch

        self._cores = cores
        train = planned.task.load(planned.data, planned.config.seed).train
        self._data = train.fetch(np.arange(len(train)))
        self._steps = planned.steps_per_epoch
        self._model = planned.task.model(planned.model, planned.data).to(cores.device)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=planned.config.scaled_lr, **ADAMS[adam])
        self._loader = self._runtimes_loader() if moves == "MpDeviceLoader" else None
        self._loss = torch.zeros(())
        self._step = 0
        self._model.train()

    def epoch(self) -> None:
        """Trains one epoch."""
        if self._loader is None:
            self._own_pass()
        else:
            self._loaders_pass(self._loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import torch

        rows = torch.randperm(len(self._data["labels"]))
        for batch in rows.split(BATCH)[: self._steps]:
            yield {name: values[batch] for name, values in self._data.items()}

    def _runtimes_loader(self) -> Any:
        import torch_xla.distributed.parallel_loader as pl
        import torch_xla.distributed.spmd as xs

        shares = None
        if len(self._cores.core_ids) > 1:
            mesh = xs.Mesh(self._cores.core_ids, (len(self._cores.core_ids),), ("cores",))
            ranks = {name: values.dim() for name, values in self._data.items()}
            shares = {name: xs.ShardingSpec(mesh, ("cores", *[None] * (rank - 1))) for name, rank in ranks.items()}
        return pl.MpDeviceLoader(self, self._cores.device, input_sharding=shares)

    def _own_pass(self) -> None:
        import torch_xla

        for batch in self:
            self._train(self._cores.put(batch))
            torch_xla.sync()
            self._read()

    def _loaders_pass(self, loader: Any) -> None:
        """Trains one epoch; the loader syncs before it yields a batch, so the loss read is of the previous step."""
        for batch in loader:
            self._read()
            self._train(batch)

    def _train(self, batch: dict[str, Any]) -> None:
        from torch.nn.functional import cross_entropy

        self._loss = cross_entropy(self._model(batch["pixels"]), batch["labels"])
        self._loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1

    def _read(self) -> None:
        if self._step and self._step % READ_STEPS == 0:
            float(self._loss.detach())


class Moment(NamedTuple):
    """Clocks at the start of a measurement."""

    wall_s: float
    cpu_s: float
    """Of all threads of this process."""
    compiles: int


class Race:
    """Times of the contenders; in each round every contender trains for some epochs."""

    def __init__(self, epochs: int) -> None:
        self.took_s: dict[str, list[float]] = {}
        self.cpu_s: dict[str, list[float]] = {}
        self.compiles: dict[str, list[int]] = {}
        self.epochs = epochs

    def run(self, name: str, epoch: Epoch) -> None:
        """Measures one contender in one round."""
        began = self.start()
        for _ in range(self.epochs):
            epoch()
        self.stop(name, began)

    def start(self) -> Moment:
        """Waits for the device and returns the clocks."""
        from engine.xla import backend
        from tputui.observers.xla_runtime import XlaRuntime

        backend.sync()
        backend.wait()
        return Moment(time.perf_counter(), time.process_time(), XlaRuntime().compile_times().total)

    def stop(self, name: str, began: Moment) -> None:
        """Waits for the device and records the time of a contender."""
        from engine.xla import backend
        from tputui.observers.xla_runtime import XlaRuntime

        backend.wait()
        self.took_s.setdefault(name, []).append(time.perf_counter() - began.wall_s)
        self.cpu_s.setdefault(name, []).append(time.process_time() - began.cpu_s)
        self.compiles.setdefault(name, []).append(XlaRuntime().compile_times().total - began.compiles)


def turns(race: Race, contenders: dict[str, Epoch], rounds: int) -> None:
    """Runs all contenders in each round, in rotated order."""
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            race.run(name, contenders[name])


def best_by_hand(planned: Any, cores: Any, epochs: int, rounds: int, warm_up: int) -> tuple[str, ByHand]:
    """Returns the name and loop of the fastest hand-written variant."""
    loops = {", ".join(how): ByHand(planned, cores, *how) for how in VARIANTS}
    race = Race(epochs)
    turns(race, {name: loop.epoch for name, loop in loops.items()}, warm_up + rounds)
    medians = {name: statistics.median(took[warm_up:]) for name, took in race.took_s.items()}
    fastest = min(medians, key=lambda name: medians[name])
    print("  hand-written loops, time relative to the fastest:")
    for name, took in medians.items():
        print(f"    {name:42}{took / medians[fastest]:>8.3f}")
    return fastest, loops[fastest]


def lightning(planned: Any, cores: Any, race: Race, rounds: int, between: Callable[[int], None]) -> None:
    """Lets Lightning train all its epochs; the other contenders run before each of its rounds."""
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.plugins.precision import XLAPrecision

    from engine.lightning import fake_devices
    from engine.lightning.build import SpmdStrategy
    from engine.tasks.lit_digits import DigitsDataModule, LitDigits

    class Turns(Callback):
        began = Moment(0.0, 0.0, 0)

        def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            if trainer.current_epoch % race.epochs == 0:
                between(trainer.current_epoch // race.epochs)
                self.began = race.start()

        def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
            if (trainer.current_epoch + 1) % race.epochs == 0:
                race.stop("Lightning", self.began)

    # It warns about intended settings: few workers, no validation.
    warnings.filterwarnings("ignore", module="lightning")
    several = planned.config.num_cores > 1
    if planned.machine.device != "TPU":
        fake_devices.offer_cores(planned.config.device.virtual_cores)
    trainer = Trainer(
        accelerator="tpu",
        devices=1,
        strategy=SpmdStrategy(cores) if several else "auto",
        plugins=[XLAPrecision("32-true")],
        callbacks=[Turns()],
        max_epochs=rounds * race.epochs,
        limit_train_batches=planned.steps_per_epoch,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = LitDigits(planned.model.channels, planned.model.dropout, planned.config.scaled_lr)
    trainer.fit(module, datamodule=DigitsDataModule(BATCH))


def measure(cores_asked: int, channels: int, rounds: int, epochs: int, warm_up: int) -> None:
    """Trains all contenders alternately on `cores_asked` cores and prints the times."""
    settings = settings_of(cores_asked, channels)
    planned = run_plan.make(settings, hardware.find(os.environ), str(SAMPLE))
    from engine.loop import build

    cores = build.strategy(planned)
    print(f"{cores_asked} cores, {channels} channels, batches of {BATCH}")
    how, loop = best_by_hand(planned, cores, epochs, max(3, rounds // 3), warm_up)
    race = Race(epochs)
    with tempfile.TemporaryDirectory() as name:
        ours = Engine(planned, cores, Path(name))

        def between(number: int) -> None:
            pair: list[tuple[str, Epoch]] = [("engine", ours.epoch), ("by hand", loop.epoch)]
            for who, epoch in pair if number % 2 else pair[::-1]:
                race.run(who, epoch)

        lightning(planned, cores, race, warm_up + rounds, between)
        ours.reporter.close()
    report(race, warm_up, planned.steps_per_epoch, how)
    for name, compiles in race.compiles.items():
        print(f"  {name + ': programs compiled after the warm-up':60}{sum(compiles[warm_up:])}")


def settings_of(cores: int, channels: int) -> Any:
    """Returns the configuration of the digits run on `cores` cores."""
    keys = [f"device.cores={cores}", f"data.batch_per_core={BATCH // cores}", f"model.channels={channels}"]
    return config.load(SAMPLE, [*keys, "epochs=1000000"])


def report(race: Race, warm_up: int, steps: int, how: str) -> None:
    """Prints examples a second and the ratios of the engine to the others per round."""
    took = {name: values[warm_up:] for name, values in race.took_s.items()}
    examples = race.epochs * steps * BATCH
    print(f"  {len(took['engine'])} rounds of {race.epochs} epochs of {steps} steps; by hand: {how}")
    print(f"  {'':16}{'examples/s':>12}{'quartiles':>20}{'ms a step':>12}{'CPU ms a step':>16}")
    for name, values in took.items():
        low, middle, high = statistics.quantiles([examples / value for value in values], n=4)
        step_ms = statistics.median(values) / race.epochs / steps * 1e3
        cpu_ms = statistics.median(race.cpu_s[name][warm_up:]) / race.epochs / steps * 1e3
        print(f"  {name:16}{middle:>12.0f}{low:>11.0f} to {high:>5.0f}{step_ms:>12.2f}{cpu_ms:>16.2f}")
    for name in ("by hand", "Lightning"):
        ratios = [theirs / ours for theirs, ours in zip(took[name], took["engine"], strict=True)]
        low, middle, high = median_interval(ratios)
        total = sum(took[name]) / sum(took["engine"])
        print(f"  examples/s, engine / {name}: median {middle:.3f}, 95 %: {low:.3f} to {high:.3f}; sums {total:.3f}")


def main() -> None:
    """Runs every case in its own process, or with `--one` a single case in this process."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="epochs per contender and round")
    parser.add_argument("--case", action="append", help="CORES,CHANNELS; may be repeated")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = args.case or CASES
    if args.one:
        cores, channels = (int(number) for number in cases[0].split(","))
        found = hardware.find(os.environ)
        os.environ.update(hardware.environment(settings_of(cores, channels), found))
        measure(cores, channels, args.rounds, args.epochs, args.warm_up)
        return
    for case in cases:
        sizes = [f"--rounds={args.rounds}", f"--warm-up={args.warm_up}", f"--epochs={args.epochs}"]
        command = [sys.executable, "-m", "benchmarks.engine_speed", "--one", "--case", case, *sizes]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
