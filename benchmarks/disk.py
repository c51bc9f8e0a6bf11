"""How many bytes a scalar takes on disk: the journal as written, sealed, and tfevents with the same values.

1,000,000 steps x 8 cores by default; tfevents, whose cost a scalar does not depend on the length, holds the first
50,000 steps of them. The last line is a run with everything that the engine reports besides, once a second.
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
    """Bytes a scalar of torch's SummaryWriter."""
    from torch.utils.tensorboard import SummaryWriter

    board = SummaryWriter(str(folder))
    for step, row in enumerate(losses(TFEVENTS_STEPS).tolist(), start=1):
        for core, loss in enumerate(row):
            board.add_scalar(f"loss/core{core}", loss, step)
    board.close()
    return sum(path.stat().st_size for path in folder.iterdir()) / (TFEVENTS_STEPS * NUM_CORES)


def main() -> None:
    """Prints bytes a scalar and ratios."""
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
        rows["journal, as written, every report in it"] = written + rest
        print(f"{args.steps:,} steps x {NUM_CORES} cores: bytes a scalar")
        for label, size in rows.items():
            print(f"  {label:42} {size:7.2f}   tfevents / this {board / size:6.1f}")


def everything_a_second() -> list[ev.Event]:
    """What the engine writes in a second besides the values of the steps."""
    kinds = (ev.HeartbeatSent, ev.MetersReported, ev.XlaMetricsRead)
    events = recorded.worker_events()
    return [next(event for event in reversed(events) if isinstance(event, kind)) for kind in kinds]


if __name__ == "__main__":
    main()
