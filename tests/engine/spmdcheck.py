"""Trains a curve on a mesh of one host, and on the mesh over several hosts with one host only; prints figures as JSON.

With one host the mesh over hosts runs on CPU devices as well: the same puts, shards, reads and exchanges.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine import run_plan
from engine.host_place import HostPlace
from engine.loop.build import RunContext, trainer
from engine.parallel.base import Strategy
from engine.parallel.group import RankSocket
from engine.parallel.host_group import HostGroup
from engine.parallel.strategies import Spmd, SpmdOverHosts
from engine.process import hardware
from engine.process.requests import RequestQueue
from engine.xla import backend
from tests import recorded
from tests.engine.processes import NUM_CORES
from tests.engine.test_strategies import CURVE
from tests.engine.workers import Run
from tests.ports import reserved_port
from tputui import config
from tputui.reporting.progress import Progress
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.reporter import Reporter

EPOCHS = 12


class Counted(SpmdOverHosts):
    """Counts the exchanges of its own that decisions take."""

    exchanges = 0

    def combine(self, byte: int) -> int:
        """As `SpmdOverHosts.combine`."""
        self.exchanges += 1
        return super().combine(byte)


def trained(name: str, cores: Strategy, folder: Path) -> dict[str, Any]:
    """Losses, scores and the position of each report of a run."""
    overrides = [f"device.cores={NUM_CORES}", f"epochs={EPOCHS}", "report.every_batches=3"]
    plan = run_plan.make(
        config.parse(CURVE, "test.toml", overrides), hardware.find({"PJRT_DEVICE": "CPU"}), "test.toml"
    )
    run = Run(rundir.create(folder, recorded.manifest(name)))
    reporter = Reporter(run.dir, "worker")
    built = trainer(plan, cores, RunContext(run.dir, reporter, Progress(), RequestQueue()))
    built.train()
    reporter.close()
    epochs = run.all(ev.EpochEnded)
    trained_values = {
        "losses": list(run.losses().items()),
        "scores": [epoch.scores for epoch in epochs],
        "valid": [epoch.valid["loss"].avg for epoch in epochs],
        "reports": [event.step for event in run.all(ev.ProgressReported)],
        "paces": sum(pace.steps for pace in run.all(ev.HostPaceMeasured)),
        "compiles": run.all(ev.XlaMetricsRead)[-1].recompiles,
        "exchanges": getattr(cores, "exchanges", 0),
    }
    run.stop_if_alive()
    return trained_values


def devices_of_a_second_host() -> list[int]:
    """Its devices, if the runtime lists those of all hosts in another order than by number."""

    class Runtime:
        _xla_get_runtime_devices = staticmethod(lambda: ["TPU:5", "TPU:4"])
        _xla_get_all_runtime_devices = staticmethod(lambda: ["TPU:5", "TPU:4", "TPU:1", "TPU:0"])

    backend._runtime = Runtime
    return backend.own_devices()


def main() -> None:
    """Trains under both."""
    place = HostPlace(master_addr="127.0.0.1", master_port=reserved_port())
    with tempfile.TemporaryDirectory() as folder:
        by_strategy: dict[str, Any] = {"spmd": trained("spmd", Spmd(NUM_CORES), Path(folder))}
        hosts = HostGroup(place)
        by_strategy["over_hosts"] = trained(
            "hosts", Counted(RankSocket(0, 1, [], hosts=hosts), NUM_CORES), Path(folder)
        )
        hosts.close("done", "")
    by_strategy["devices"] = devices_of_a_second_host()
    sys.stdout.write("\n" + json.dumps(by_strategy) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
