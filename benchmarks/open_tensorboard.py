"""Time to the first curve of a TensorBoard log directory, and to all of it: ours, TensorBoard's reader, terminalboard.

    python -m benchmarks.open_tensorboard [--steps 1000000] [--rounds 3] [--all-rounds 1] [--limit-s 240]
        [--keep FOLDER] [--peers peers]

The log has one event per step and core, as `SummaryWriter` writes them, and is written directly. Each contender runs in
a process of its own; they take turns.

session: a viewer opens the log, as `tputui replay FOLDER` does; the process that reads it starts within the time. The
first curve is there when a snapshot has a loss curve; all when the snapshot has the last step. reader: our reader
alone, to the first 1,000 values. tensorboard: `EventAccumulator`, which returns nothing before it has read everything,
so its first values are its last; imported before the clock starts. terminalboard: the command `terminalboard --once`.
The last two run `--all-rounds` times, and are ended after `--limit-s` seconds; their time is then more than that.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.synthetic import NUM_CORES, losses
from tputui.log_import.place import OpenedLog
from tputui.logs.formats import open_log
from tputui.logs.tfevents import masked_crc
from tputui.session.session import Session

FIRST_VALUES = 1_000
POLL_S = 0.02
MEMORY_BYTES_MAX = 12 << 30
"""Address space of a contender."""
STEPS_A_WRITE = 10_000
HOW_TO = "python -m venv peers && peers/bin/pip install terminalboard 'plotext<6' tensorboard"


class Opened(NamedTuple):
    """What one contender took."""

    first_s: float
    """Until the first curve."""
    all_s: float
    num_values: float
    peak_mib: float
    is_cut: bool = False
    """Whether it was ended at the limit."""


def write_logdir(folder: Path, num_steps: int) -> None:
    """Writes the losses of all cores as one event file, under another name until it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "events.out.tfevents.1700000000.host.1.0"
    values = losses(num_steps)
    with path.with_name("incomplete").open("wb") as file:
        file.write(_record(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2"))
        for first in range(0, num_steps, STEPS_A_WRITE):
            file.write(_events(first + 1, values[first : first + STEPS_A_WRITE].tolist()))
    path.with_name("incomplete").rename(path)


def _events(first: int, rows: list[list[float]]) -> bytes:
    """The records of consecutive steps, one for each core."""
    summaries = [_summary(b"loss/core%d" % core) for core in range(NUM_CORES)]
    double, single, whole = struct.Struct("<d").pack, struct.Struct("<f").pack, struct.Struct("<I").pack
    heads = {length: _head(length) for length in range(256)}
    found: list[bytes] = []
    for step, row in enumerate(rows, start=first):
        time_and_step = b"\x09" + double(1.7e9 + step * 0.013) + b"\x10" + bytes(_varint(step))
        for summary, loss in zip(summaries, row, strict=True):
            data = time_and_step + summary + single(loss)
            found += (heads[len(data)], data, whole(masked_crc(data)))
    return b"".join(found)


def _summary(tag: bytes) -> bytes:
    """The summary of an event up to its value."""
    scalar = b"\x0a" + bytes([len(tag)]) + tag + b"\x15"
    value = b"\x0a" + bytes([len(scalar) + 4]) + scalar
    return b"\x2a" + bytes([len(value) + 4]) + value


def _head(length: int) -> bytes:
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc(head))


def _record(data: bytes) -> bytes:
    return _head(len(data)) + data + struct.pack("<I", masked_crc(data))


def _varint(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number


def open_session(folder: Path) -> Opened:
    """Opens the log as a viewer does, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        start = time.perf_counter()
        with OpenedLog(folder) as opened:
            session = Session.live(opened.run_dir)
            first_s = math.nan
            while True:
                session.poll()
                loss = session.snapshot().loss
                if loss and math.isnan(first_s):
                    first_s = time.perf_counter() - start
                if opened.wait(POLL_S) and session.caught_up:
                    break
        took = time.perf_counter() - start
        steps = loss[-1].last_step
    return Opened(first_s, took, steps * NUM_CORES, max(_peak_mib(), _peak_mib(resource.RUSAGE_CHILDREN)))


def read_ours(folder: Path) -> Opened:
    """Reads with our reader; values are counted and dropped, as an import does."""
    start = time.perf_counter()
    reader = open_log(folder)
    count, first_s = 0, math.nan
    while values := reader.read():
        count += len(values)
        if math.isnan(first_s) and count >= FIRST_VALUES:
            first_s = time.perf_counter() - start
    return Opened(first_s, time.perf_counter() - start, count, _peak_mib())


def read_tensorboard(folder: Path) -> Opened:
    """Reads with TensorBoard's `EventAccumulator`, which keeps every value."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    start = time.perf_counter()
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    count = sum(len(events.Scalars(tag)) for tag in events.Tags()["scalars"])
    took = time.perf_counter() - start
    return Opened(took, took, count, _peak_mib())


READERS = {"session": open_session, "reader": read_ours, "tensorboard": read_tensorboard}


def _peak_mib(who: int = resource.RUSAGE_SELF) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


def in_process(name: str, folder: Path, limit_s: float) -> Opened:
    """Runs a reader in a fresh interpreter."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.open_tensorboard", "--reader", name, str(folder)]
    printed, took = limited(command, limit_s)
    return _cut(took) if printed is None else Opened(*json.loads(printed.splitlines()[-1]))


def terminalboard(program: Path, folder: Path, limit_s: float) -> Opened:
    """Runs `terminalboard --once`."""
    printed, took = limited([str(program), "--once", str(folder)], limit_s)
    return _cut(took) if printed is None else Opened(took, took, math.nan, math.nan)


def limited(command: list[str], limit_s: float) -> tuple[str | None, float]:
    """What a command prints, None if it was ended at the limit, and its seconds. Its memory is limited, too."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            ["prlimit", f"--as={MEMORY_BYTES_MAX}", "--", *command],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        return None, time.perf_counter() - start
    return done.stdout, time.perf_counter() - start


def _cut(took: float) -> Opened:
    return Opened(took, took, math.nan, math.nan, is_cut=True)


def main() -> None:
    """Prints a table and the ratios to our reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all-rounds", type=int, default=1, help="rounds of the readers that take minutes")
    parser.add_argument("--limit-s", type=float, default=240.0, help="seconds after which a contender is ended")
    parser.add_argument("--keep", type=Path, help="folder for the written log, reused the next time")
    parser.add_argument("--peers", type=Path, default=Path("peers"), help=f"virtual environment made by: {HOW_TO}")
    parser.add_argument("--reader", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reader is not None:
        print(json.dumps(READERS[args.reader[0]](Path(args.reader[1]))))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = (args.keep or Path(name)) / f"board-{args.steps}"
        if not folder.exists():
            write_logdir(folder, args.steps)
        program = args.peers / "bin" / "terminalboard"
        rows: dict[str, list[Opened]] = {"session": [], "reader": [], "tensorboard": [], "terminalboard": []}
        for number in range(args.rounds):
            for name in ("session", "reader"):
                rows[name].append(in_process(name, folder, args.limit_s))
            if number < args.all_rounds:
                rows["tensorboard"].append(in_process("tensorboard", folder, args.limit_s))
                if program.exists():
                    rows["terminalboard"].append(terminalboard(program, folder, args.limit_s))
        report(args.steps, rows)
        if not program.exists():
            print(f"terminalboard is left out: {program} does not exist; {HOW_TO}")


def report(num_steps: int, rows: dict[str, list[Opened]]) -> None:
    """Prints the medians."""
    print(f"{num_steps:,} steps x {NUM_CORES} cores, {num_steps * NUM_CORES:,} events")
    print(f"  {'':16} {'first curve s':>14} {'all s':>10} {'values/s':>11} {'peak MiB':>9} {'first / session':>16}")
    base = statistics.median(row.first_s for row in rows["session"])
    for name, opened in rows.items():
        if not opened:
            continue
        first_s, all_s = (statistics.median(getattr(row, key) for row in opened) for key in ("first_s", "all_s"))
        more = ">" if any(row.is_cut for row in opened) else ""
        rate, peak_mib = opened[0].num_values / all_s, opened[0].peak_mib
        print(
            f"  {name:16} {f'{more}{first_s:.2f}':>14} {f'{more}{all_s:.1f}':>10} {rate:11,.0f} "
            f"{peak_mib:9.0f} {f'{more}{first_s / base:.1f}':>16}"
        )


if __name__ == "__main__":
    main()
