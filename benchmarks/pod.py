"""A simulated pod: journals of up to hundreds of hosts with 8 cores each, reproducible by a seed.

    python -m benchmarks.pod write DIR [--hosts 256] [--seed 1] [--seconds 60]    a recorded run, as fast as possible
    python -m benchmarks.pod live DIR [--hosts 256] [--seed 1] [--seconds 60]     a live run, ten reports a second

The seed plants a host that is 10 % slower, a core whose loss becomes NaN, clocks that are off, a host whose journals do
not arrive for a while, and a restart of all training processes; `--healthy` plants only the clocks. With `--missing`
one host never joins. `DIR` is the directory of runs; the path of the run is printed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec

from benchmarks.pod_journals import CONFIG, REPORT_S, Pod
from benchmarks.pod_model import Faults, PodModel, planted
from tests import recorded
from tputui.telemetry import rundir

HOSTS = 256
SECONDS = 60.0


def create(parent: Path, hosts: int, seed: int, faults: Faults, t0: float) -> tuple[Path, Pod]:
    """Starts the run of a pod. `t0`: unix time of its start."""
    manifest = msgspec.structs.replace(recorded.manifest(f"pod-{hosts}-{seed}-{int(t0)}"), config=CONFIG, created=t0)
    run_dir = rundir.create(parent, manifest)
    return run_dir, Pod(run_dir, PodModel(seed, hosts, faults), t0, seed)


def write(parent: Path, hosts: int, seed: int, seconds: float, faults: Faults) -> Path:
    """Writes a recorded run that ended just now."""
    run_dir, pod = create(parent, hosts, seed, faults, time.time() - seconds)
    pod.write_until(seconds)
    pod.close()
    return run_dir


def follow(pod: Pod, seconds: float, *, ended: bool = True) -> float:
    """Writes a live run in real time. Returns the seconds of CPU time that the writing took."""
    began, cpu_s = time.monotonic(), time.process_time()
    while (now := time.monotonic() - began) < seconds:
        pod.write_until(now)
        time.sleep(max(0.0, REPORT_S - (time.monotonic() - began - now)))
    pod.close(ended=ended)
    return time.process_time() - cpu_s


def main() -> None:
    """Writes a run, or measures its viewers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("write", "live"):
        command = commands.add_parser(name)
        command.add_argument("dir", type=Path)
        command.add_argument("--hosts", type=int, default=HOSTS)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--seconds", type=float, default=SECONDS)
        command.add_argument("--healthy", action="store_true", help="plant no faults")
        command.add_argument("--missing", type=int, metavar="HOST", help="this host never joins")
    args = parser.parse_args()
    faults = Faults() if args.healthy or args.missing is not None else planted(args.seed, args.hosts, args.seconds)
    faults = faults._replace(missing=args.missing)
    if args.command == "write":
        print(write(args.dir, args.hosts, args.seed, args.seconds, faults))
        return
    run_dir, pod = create(args.dir, args.hosts, args.seed, faults, time.time())
    print(run_dir, flush=True)
    follow(pod, args.seconds)


if __name__ == "__main__":
    main()
