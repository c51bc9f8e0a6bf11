"""Processor and wall time of commands that only print something, and of an interpreter that does nothing."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests import recorded

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "tputui --help": ["-m", "tputui", "--help"],
    "tputui runs": ["-m", "tputui", "runs"],
    "tputui show": ["-m", "tputui", "show", "digits-1"],
    "tputui show --json": ["-m", "tputui", "show", "digits-1", "--json"],
}


def main() -> None:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    cpu_s: dict[str, list[float]] = {name: [] for name in COMMANDS}
    wall_s: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        recorded.write_run(Path(folder))
        for _ in range(args.rounds):
            for name, words in COMMANDS.items():
                cpu_began, began = children_cpu_s(), time.perf_counter()
                command = [sys.executable, "-P", *words]
                subprocess.run(command, env={**os.environ, "TPUTUI_RUNS": folder}, capture_output=True, check=True)
                wall_s[name].append(time.perf_counter() - began)
                cpu_s[name].append(children_cpu_s() - cpu_began)
    print(f"{'median ms':24}{'CPU':>8}{'wall':>8}")
    for name in COMMANDS:
        print(f"{name:24}{1e3 * statistics.median(cpu_s[name]):8.0f}{1e3 * statistics.median(wall_s[name]):8.0f}")


def children_cpu_s() -> float:
    """Returns the processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
