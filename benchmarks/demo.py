"""Makes the recordings that `tputui demo` plays: `python -m benchmarks.demo [NAME ...]`, about ten minutes.

`training` and `failure` are trained by the engine on 8 virtual CPU cores in a temporary folder; their slow core and
their error are planted by `benchmarks.demo_task`. `synthetic-pod` is written by the simulation of `benchmarks.pod`.
The folders of the checkout, of Python and of the user, and the names of the host, are replaced in every text. What is
not needed to show a run is left out: packages and variables (`code.json`), stacks, requests, checkpoints. Times, losses
and other figures stay as they were recorded.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import pod_journals
from benchmarks.pod_model import PodModel, planted
from tests import recorded
from tputui import __version__
from tputui.cli.replay import DEMOS, RECORDINGS
from tputui.telemetry import rundir
from tputui.telemetry.compressed import seal
from tputui.telemetry.events import Event
from tputui.telemetry.journal import SUFFIX, JournalWriter
from tputui.telemetry.merge import events_of, open_tail
from tputui.telemetry.run_labels import RunLabels, change

CONFIG = """\
task = "focal_digits:DemoDigits"
epochs = 9

[data]
batch_per_core = 8

[model]
{faults}

[optim]
name = "adam"
lr = 0.0005
schedule = "cosine"

[device]
cores = 8
strategy = "{strategy}"
"""
FAULTS = {
    "training": """\
gamma_steps = 3         # the exponent of the loss falls: another program
slow_core = 5           # waits in each step, for the demo
slow_from_step = 90
slow_s = 0.25""",
    "failure": "weighted_from_step = 60  # weights of 9 classes, for the demo",
}
STRATEGIES = {"training": "replica", "failure": "spmd"}
LABELS = {
    "training": RunLabels(
        pinned=True, tags=("recorded",), note="8 cores: recompiles (5, W), and core 5 made slow on purpose (1)"
    ),
    "failure": RunLabels(tags=("recorded",), note="an error planted in its task: the failure panel (0)"),
    "synthetic-pod": RunLabels(tags=("synthetic",), note="64 hosts (h), written by a simulation, not measured"),
}
"""What the list of runs shows of each."""
COMPILE_FAST = (
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
"""`XLA_FLAGS`: eight processes compile on the CPU."""
POD_HOSTS, POD_SEED, POD_S, POD_STEP_S, POD_REPORT_S = 64, 3, 42.0, 0.5, 2.0
POD_RESTART_S = 6.0
"""Early, so that the steps after it suffice to name the slow host."""
FILES = ("model.json", "failure.txt")
"""Shown beside the journals."""
HOME = "/home/user"
SHOWN_HOST = "demo-host"
_ROOT = Path(__file__).parents[1]


def main() -> None:
    """Makes the recordings, all or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(DEMOS), metavar="NAME", help=f"of {', '.join(DEMOS)}")
    for name in parser.parse_args().names:
        with tempfile.TemporaryDirectory(prefix="tputui-demo-") as folder:
            publish(_MAKERS[name](Path(folder), name), Replacement(Path(folder)))


def train(folder: Path, name: str) -> Path:
    """Trains a recording in `folder`; a failure is its result."""
    shutil.copy(Path(__file__).with_name("demo_task.py"), folder / "focal_digits.py")
    (folder / "digits.toml").write_text(CONFIG.format(faults=FAULTS[name], strategy=STRATEGIES[name]))
    environ = {**os.environ, "TPUTUI_RUNS": "runs", "XLA_FLAGS": COMPILE_FAST}
    command = [os.fspath(Path(sys.executable).with_name("tputui")), "run", "digits.toml", "--name", name, "--no-ui"]
    subprocess.run(command, cwd=folder, env=environ, check=name == "training")
    return folder / "runs" / name


def simulate(folder: Path, name: str) -> Path:
    """Writes a simulated pod."""
    manifest = msgspec.structs.replace(
        recorded.manifest(name), config=pod_journals.CONFIG, config_path="pod.toml", version=__version__
    )
    run_dir = rundir.create(folder, manifest)
    faults = planted(POD_SEED, POD_HOSTS, POD_S)
    assert faults.restart is not None
    faults = faults._replace(restart=faults.restart._replace(t=POD_RESTART_S))
    model = PodModel(POD_SEED, POD_HOSTS, faults, step_s=POD_STEP_S)
    pod = pod_journals.Pod(run_dir, model, recorded.T0, POD_SEED, report_s=POD_REPORT_S)
    pod.write_until(POD_S)
    pod.close()
    return run_dir


_MAKERS: dict[str, Callable[[Path, str], Path]] = {
    "training": train,
    "failure": train,
    "synthetic-pod": simulate,
}


class Replacement:
    """Replaces what names this machine and its user."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the working directory of the run."""
        paths = {
            os.path.realpath(folder): f"{HOME}/digits",
            str(folder): f"{HOME}/digits",
            str(_ROOT): f"{HOME}/tputui",
            sys.prefix: f"{HOME}/venv",
            os.path.realpath(sys.base_prefix): "/usr",
            sys.base_prefix: "/usr",
            str(Path.home()): HOME,
        }
        self._parts = sorted(paths.items(), key=lambda pair: -len(pair[0]))
        host = socket.gethostname()
        self._parts.append((f", {host}, pid ", f", {SHOWN_HOST}, pid "))  # the first line of a failure report
        self._whole = {host: SHOWN_HOST, rundir.host_id(): SHOWN_HOST}

    def text(self, text: str) -> str:
        """The text with other paths, or another name if it is the name of this host."""
        for part, shown in self._parts:
            text = text.replace(part, shown)
        return self._whole.get(text, text)

    def value(self, value: Any) -> Any:
        """The same in nested plain values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value

    def event(self, event: Event) -> Event:
        """The same in an event."""
        return msgspec.convert(self.value(msgspec.to_builtins(event)), type(event))


def publish(run_dir: Path, replacement: Replacement) -> None:
    """Replaces a recording of the package by a finished run."""
    target = RECORDINGS / run_dir.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    manifest = msgspec.convert(replacement.value(msgspec.to_builtins(rundir.read_manifest(run_dir))), rundir.Manifest)
    (target / rundir.MANIFEST).write_bytes(rundir.encode_manifest(manifest))
    change(target, **msgspec.structs.asdict(LABELS[run_dir.name]))
    for writer, path in rundir.journal_paths(run_dir):
        with closing(open_tail(path)) as tail, closing(JournalWriter(target / f"{writer}{SUFFIX}")) as journal:
            journal.append(replacement.event(numbered.event) for numbered in events_of(tail))
        seal(target / f"{writer}{SUFFIX}")
    for name in FILES:
        if (run_dir / name).exists():
            (target / name).write_text(replacement.text((run_dir / name).read_text()))
    if (run_dir / "pictures").exists():
        shutil.copytree(run_dir / "pictures", target / "pictures")
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
