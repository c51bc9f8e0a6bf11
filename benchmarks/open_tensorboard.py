"""Time to read a TensorBoard log directory: our reader, TensorBoard's own, and terminalboard if it is installed.

    python -m benchmarks.open_tensorboard [--steps 1000000] [--rounds 3] [--all-rounds 1] [--keep FOLDER]
        [--peers peers]

The log has one event per step and core, as `SummaryWriter` writes them, and is written directly. Each reader runs in an
interpreter of its own, which has imported the reader before the clock starts. Readers take turns. TensorBoard's
`EventAccumulator` returns nothing before it has read everything, so its first values are its last; it runs
`--all-rounds` times. terminalboard is measured as the whole command `terminalboard --once`.
"""

from __future__ import annotations

import argparse
import json
import math
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
from tputui.logs.formats import open_log
from tputui.logs.tfevents import masked_crc

FIRST_VALUES = 1_000
WRITE_BYTES = 1 << 22
HOW_TO = "python -m venv peers && peers/bin/pip install terminalboard 'plotext<6' tensorboard"


class Opened(NamedTuple):
    """What one reader took."""

    first_s: float
    """Until the first 1,000 values."""
    all_s: float
    num_values: float
    peak_mib: float


def write_logdir(folder: Path, num_steps: int) -> None:
    """Writes the losses of all cores as one event file."""
    folder.mkdir(parents=True, exist_ok=True)
    pending = bytearray(_record(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2"))
    with (folder / "events.out.tfevents.1700000000.host.1.0").open("wb") as file:
        for step, row in enumerate(losses(num_steps).tolist(), start=1):
            for core, loss in enumerate(row):
                pending += _event(step, b"loss/core%d" % core, loss)
            if len(pending) > WRITE_BYTES:
                file.write(pending)
                pending.clear()
        file.write(pending)


def _event(step: int, tag: bytes, value: float) -> bytes:
    scalar = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    time_and_step = b"\x09" + struct.pack("<d", 1.7e9 + step * 0.013) + b"\x10" + bytes(_varint(step))
    return _record(time_and_step + b"\x2a" + bytes([len(summary)]) + summary)


def _record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def _varint(number: int) -> Iterator[int]:
    while number > 127:
        yield number & 127 | 128
        number >>= 7
    yield number


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


READERS = {"ours": read_ours, "tensorboard": read_tensorboard}


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_process(name: str, folder: Path) -> Opened:
    """Runs a reader in a fresh interpreter."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.open_tensorboard", "--reader", name, str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Opened(*json.loads(printed.splitlines()[-1]))


def terminalboard(program: Path, folder: Path) -> Opened:
    """Runs `terminalboard --once`."""
    start = time.perf_counter()
    subprocess.run([str(program), "--once", str(folder)], stdout=subprocess.DEVNULL, check=True)
    took = time.perf_counter() - start
    return Opened(took, took, math.nan, math.nan)


def main() -> None:
    """Prints a table and the ratios to our reader."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--all-rounds", type=int, default=1, help="rounds of the readers that take minutes")
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
        rows: dict[str, list[Opened]] = {"ours": [], "tensorboard": [], "terminalboard": []}
        for number in range(args.rounds):
            rows["ours"].append(in_process("ours", folder))
            if number < args.all_rounds:
                rows["tensorboard"].append(in_process("tensorboard", folder))
                if program.exists():
                    rows["terminalboard"].append(terminalboard(program, folder))
        report(args.steps, rows)
        if not program.exists():
            print(f"terminalboard is left out: {program} does not exist; {HOW_TO}")


def report(num_steps: int, rows: dict[str, list[Opened]]) -> None:
    """Prints the medians."""
    print(f"{num_steps:,} steps x {NUM_CORES} cores, {num_steps * NUM_CORES:,} events")
    print("                   first 1,000 s     all s    values/s  peak MiB  first / ours  all / ours")
    base = rows["ours"]
    for name, opened in rows.items():
        if not opened:
            continue
        first_s, all_s = (statistics.median(getattr(row, key) for row in opened) for key in ("first_s", "all_s"))
        rate = opened[0].num_values / all_s
        first_ratio = first_s / statistics.median(row.first_s for row in base)
        all_ratio = all_s / statistics.median(row.all_s for row in base)
        print(
            f"  {name:16} {first_s:13.3f} {all_s:9.2f} {rate:11,.0f} {opened[0].peak_mib:9.0f} "
            f"{first_ratio:13.1f} {all_ratio:11.1f}"
        )


if __name__ == "__main__":
    main()
