"""A training step of two hosts beside one host with as many cores: real workers that exchange over the loopback device.

    python -m benchmarks.hosts_step [--rounds 5] [--cores 2] [--epochs 6] [--channels 8]

Each round trains the digits under `replica` on one host with 2 x `--cores` cores and on two hosts with `--cores` each,
one after the other, in rotated order. A step is the median over a run of what the first worker reports, without
the first reports, in which programs are compiled. Both kinds of run share the processors of this machine and its
memory, so the ratio is the cost of the second exchange (gloo over TCP after the socket pairs), not that of a network.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.ports import reserved_port
from tputui import __version__, config
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.journal import Tail

SAMPLE = Path(__file__).parent.parent / "sample_configs" / "digits.toml"
WARM_UP_REPORTS = 3


def main() -> None:
    """Prints the medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2, help="cores of each of the two hosts")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--channels", type=int, default=8, help="width of the network")
    arguments = parser.parse_args()
    shapes = {1: 2 * arguments.cores, 2: arguments.cores}
    steps_s: dict[int, list[float]] = {hosts: [] for hosts in shapes}
    waits_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            for hosts in sorted(shapes, reverse=bool(number % 2)):
                overrides = [f"epochs={arguments.epochs}", f"model.channels={arguments.channels}"]
                overrides += [f"device.cores={shapes[hosts]}", "device.strategy=replica"]
                events = train(Path(folder), f"{number}-{hosts}", hosts, overrides)
                paces = [event.step_s for event in events if isinstance(event, ev.ProgressReported)]
                steps_s[hosts].append(statistics.median(paces[WARM_UP_REPORTS:]))
                found = [e.wait_s for e in events if isinstance(e, ev.HostPaceMeasured) and e.wait_s is not None]
                waits_s += found[WARM_UP_REPORTS:]
    ratios = [two / one for one, two in zip(steps_s[1], steps_s[2], strict=True)]
    for hosts, cores in shapes.items():
        host = "host" if hosts == 1 else "hosts"
        print(f"{hosts} {host} x {cores} cores: {1e3 * statistics.median(steps_s[hosts]):.1f} ms per step")
    print(f"ratio: {statistics.median(ratios):.2f} (rounds: {', '.join(f'{ratio:.2f}' for ratio in sorted(ratios))})")
    print(f"waiting for the other host and exchanging with it: {1e3 * statistics.median(waits_s):.1f} ms per step")


def train(folder: Path, name: str, num_hosts: int, overrides: list[str]) -> list[ev.Event]:
    """Trains one run to its end, and returns the events of its first worker."""
    checked = config.parse(SAMPLE.read_text(), "digits.toml", overrides)
    manifest = rundir.Manifest(
        run=name,
        created=time.time(),
        version=__version__,
        config_path="digits.toml",
        config=config.to_builtins(checked),
        argv=[],
        cwd=str(Path.cwd()),
        resume_from=None,
    )
    run_dir = rundir.create(folder, manifest)
    port = reserved_port()
    workers = []
    for host in range(num_hosts):
        contract = {
            "RANK": str(host),
            "WORLD_SIZE": str(num_hosts),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        command = [sys.executable, "-P", "-m", "engine", str(run_dir), "--host", str(host)]
        command += ["--hosts", str(num_hosts)]
        with (run_dir / f"worker-{host}.log").open("wb") as log:
            workers.append(subprocess.Popen(command, env={**os.environ, **contract}, stdout=log, stderr=log))
    if any([worker.wait() for worker in workers]):
        raise SystemExit((run_dir / "worker-0.log").read_text())
    tail = Tail(run_dir / "worker-0.jsonl")
    events: list[ev.Event] = []
    while records := tail.read():
        events += [record.event for record in records]
    tail.close()
    return events


if __name__ == "__main__":
    main()
