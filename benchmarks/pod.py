"""A simulated pod: journals of up to hundreds of hosts with 8 cores each, reproducible by a seed.

    python -m benchmarks.pod write DIR [--hosts 256] [--seed 1] [--seconds 60]    a recorded run, as fast as possible
    python -m benchmarks.pod live DIR [--hosts 256] [--seed 1] [--seconds 60]     a live run, ten reports a second
    python -m benchmarks.pod measure [--hosts 1,4,16,64,256] [--out FILE]         what does a viewer cost?
    python -m benchmarks.pod judge [--hosts 256] [--seeds 100] [--seconds 30]     are the planted faults named?

The seed plants a host that is 10 % slower, a core whose loss becomes NaN, clocks that are off, a host whose journals do
not arrive for a while, and a restart of all training processes; `--healthy` plants only the clocks. With `--missing`
one host never joins. `DIR` is the directory of runs; the path of the run is printed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec

from benchmarks import pod_judge, pod_measure
from benchmarks.pod_journals import REPORT_S, Pod, create
from benchmarks.pod_model import Faults, planted

HOSTS = 256
SECONDS = 60.0


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


def _store(path: Path, costs: list[pod_measure.Cost]) -> None:
    """Replaces the figures in a file; what else it contains stays."""
    before = msgspec.json.decode(path.read_bytes()) if path.exists() else {"machine": "", "judged": []}
    results = {**before, "costs": costs}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")


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
    command = commands.add_parser("judge")
    command.add_argument("--hosts", type=int, default=HOSTS)
    command.add_argument("--seeds", type=int, default=100)
    command.add_argument("--first-seed", type=int, default=1)
    command.add_argument("--seconds", type=float, default=30.0)
    command = commands.add_parser("measure")
    command.add_argument("--hosts", default="1,4,16,64,256")
    command.add_argument("--frames", type=int, default=120)
    command.add_argument("--seconds", type=float, default=20.0, help="time for which each live run is followed")
    command.add_argument("--out", type=Path, help="store the figures in this JSON file, for docs/make_scale.py")
    args = parser.parse_args()
    if args.command == "measure":
        costs = [pod_measure.measure(int(hosts), args.frames, args.seconds) for hosts in args.hosts.split(",")]
        print(pod_measure.table(costs))
        if args.out is not None:
            _store(args.out, costs)
        return
    if args.command == "judge":
        verdicts: list[pod_judge.Verdict] = []
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            verdicts.append(pod_judge.judge(seed, args.hosts, args.seconds))
            print(verdicts[-1], flush=True)
        print(pod_judge.report(verdicts))
        raise SystemExit(any(verdict.errors for verdict in verdicts))
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
