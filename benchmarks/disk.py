"""Bytes per scalar on disk: the journal as written, compressed, and tfevents with the same values.

1,000,000 steps x 8 cores by default. The cost of tfevents per scalar does not depend on the length, so it holds only
the first 50,000 steps. The last line is a run that also contains all other events the engine writes once a second.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.synthetic import NUM_CORES, losses, write_run
from tests import recorded
from tputui.telemetry import events as ev
from tputui.telemetry.compressed import seal

TFEVENTS_STEPS = 50_000


def tfevents_bytes(folder: Path) -> float:
    """Returns the bytes per scalar of torch's SummaryWriter."""
    from torch.utils.tensorboard import SummaryWriter

    board = SummaryWriter(str(folder))
    for step, row in enumerate(losses(TFEVENTS_STEPS).tolist(), start=1):
        for core, loss in enumerate(row):
            board.add_scalar(f"loss/core{core}", loss, step)
    board.close()
    return sum(path.stat().st_size for path in folder.iterdir()) / (TFEVENTS_STEPS * NUM_CORES)


def main() -> None:
    """Prints bytes per scalar and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    num_scalars = args.steps * NUM_CORES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_dir, _ = write_run(folder, args.steps)
        journal = run_dir / "worker-0.jsonl"
        written = journal.stat().st_size / num_scalars
        sealed = seal(journal).stat().st_size / num_scalars
        board = tfevents_bytes(folder / "tensorboard")
        rows = {"tfevents": board, "journal, as written": written, "journal, sealed": sealed}
        recorded.write_journal(folder / "report.jsonl", everything_a_second())
        rest = (folder / "report.jsonl").stat().st_size / (100 * NUM_CORES)
        rows["journal, as written, with all other events"] = written + rest
        print(f"{args.steps:,} steps x {NUM_CORES} cores: bytes per scalar")
        for label, size in rows.items():
            print(f"  {label:42} {size:7.2f}   tfevents / this {board / size:6.1f}")


def everything_a_second() -> list[ev.Event]:
    """Returns the events that the engine writes each second besides the values of the steps."""
    kinds = (ev.HeartbeatSent, ev.MetersReported, ev.XlaMetricsRead)
    events = recorded.worker_events()
    return [next(event for event in reversed(events) if isinstance(event, kind)) for kind in kinds]


if __name__ == "__main__":
    main()
