"""How much `run.step`, or the hooks of a script that calls nothing (`--hooks`), slow a training loop.

The loops: a step of some ms on an XLA device and one of less than 1 ms on the CPU; with `--hooks`, steps of three
lengths on the CPU, and on a GPU if there is one. Blocks of steps with and without reporting alternate in one
process, so that both see the same machine. Prints the median of the block times, and the median slow-down over pairs of
blocks with its 95 % interval: wall time, and CPU time of all threads of the process, which other programs on the
machine disturb less, but which contains no waiting. At last the clock is read around each call of `run.step`, right
after its step, when the caches are cold.
"""

from __future__ import annotations

import argparse
import atexit
import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tputui
from benchmarks.intervals import median_interval
from tputui.reporting.run import Run
from tputui.telemetry.rundir import RUN_DIR_VARIABLE


class Block(NamedTuple):
    """Mean seconds per step of a block."""

    wall_s: float
    cpu_s: float


class TimedCalls:
    """Takes the place of a run and measures the calls of `step`."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.seconds: list[float] = []

    def step(self, *, loss: Any, examples: int) -> None:
        """Reports a step."""
        began = time.perf_counter()
        self._run.step(loss=loss, examples=examples)
        self.seconds.append(time.perf_counter() - began)


Loop = Callable[[Run | TimedCalls | None, int], None]


def torch_loop(width: int = 64, num_hidden: int = 0, device: str = "cpu") -> Loop:
    """A perceptron; its loss is a tensor."""
    import torch

    torch.set_num_threads(1)
    layers = [torch.nn.Linear(width, 2 * width), torch.nn.ReLU()]
    for _ in range(num_hidden):
        layers += [torch.nn.Linear(2 * width, 2 * width), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(2 * width, 10)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    images, labels = torch.randn(64, width, device=device), torch.randint(10, (64,), device=device)

    def train(run: Run | TimedCalls | None, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
            if run is not None:
                run.step(loss=loss, examples=64)

    return train


def xla_loop(width: int) -> Loop:
    """A matrix product on an XLA device; its loss is a tensor of 8 values."""
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    import torch
    import torch_xla

    device = torch_xla.device()
    x = torch.randn(width, width, device=device)
    weight = torch.randn(width, width, device=device, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1e-6)

    def train(run: Run | TimedCalls | None, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            losses = (x @ weight).square().view(8, -1).mean(1)
            losses.mean().backward()
            optimizer.step()
            torch_xla.sync()
            if run is not None:
                run.step(loss=losses, examples=64)
        torch_xla.sync(wait=True)

    return train


def main() -> None:
    """Prints milliseconds per step and the slow-down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--block-s", type=float, default=1.2, help="seconds per block")
    parser.add_argument("--calls", type=int, default=1000, help="calls measured one by one")
    parser.add_argument("--width", type=int, default=768, help="width of the matrices on the XLA device")
    parser.add_argument("--hooks", action="store_true", help="measure the hooks instead of `run.step`")
    args = parser.parse_args()
    if args.hooks:
        measure_hooks(args)
        return
    # torch_xla first: torch counts the kinds of devices at the first backward pass.
    with tempfile.TemporaryDirectory() as folder, tputui.start(runs_dir=folder) as run:
        measure("torch_xla", xla_loop(args.width), run, args)
    with tempfile.TemporaryDirectory() as folder, tputui.start(runs_dir=folder) as run:
        measure("torch on the CPU", torch_loop(), run, args)


def measure(title: str, train: Loop, run: Run, args: Any) -> None:
    """Measures a loop with and without `run.step`, and its calls."""
    step_s = compare(title, lambda steps: train(None, steps), lambda steps: train(run, steps), args)
    calls = TimedCalls(run)
    train(calls, args.calls)
    low, middle, high = (seconds * 1e6 for seconds in median_interval(calls.seconds))
    share = 100 * middle / 1e6 / step_s
    print(f"  a call of run.step: {middle:.1f} us ({low:.1f} to {high:.1f}), {share:.2f} % of a step")


def measure_hooks(args: Any) -> None:
    """Measures loops that report nothing, with and without the hooks of a launched script."""
    folder = os.environ[RUN_DIR_VARIABLE] = tempfile.mkdtemp()
    # Registered first, so called last: the journal is closed at exit, too.
    atexit.register(shutil.rmtree, folder)
    import torch
    import torch.optim.optimizer as optimizers

    backward, hooks = torch.autograd.backward, dict(optimizers._global_optimizer_post_hooks)
    plain = backward.__wrapped__  # type: ignore[attr-defined]  # set by `functools.wraps`
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for device, (width, num_hidden) in itertools.product(devices, ((64, 0), (96, 4), (192, 6))):
        train = torch_loop(width, num_hidden, device)

        def hooked(steps: int, train: Loop = train) -> None:
            torch.autograd.backward = backward
            optimizers._global_optimizer_post_hooks.update(hooks)
            train(None, steps)

        def unhooked(steps: int, train: Loop = train) -> None:
            torch.autograd.backward = plain
            optimizers._global_optimizer_post_hooks.clear()
            train(None, steps)

        compare(f"hooks, torch on {device}, {num_hidden + 2} layers", unhooked, hooked, args)


def compare(title: str, off: Callable[[int], None], on: Callable[[int], None], args: Any) -> float:
    """Measures pairs of blocks; which of the two is first alternates. Returns the seconds of a step without
    reporting."""
    off(20)
    on(20)
    steps = max(20, int(args.block_s / timed(off, 50).wall_s))
    blocks: dict[bool, list[Block]] = {False: [], True: []}
    for pair in range(args.pairs):
        for reported in (pair % 2 == 0, pair % 2 == 1):
            blocks[reported].append(timed(on if reported else off, steps))
    print(f"{title}: {args.pairs} pairs of blocks of {steps} steps")
    for name, times in (("wall", "wall_s"), ("CPU", "cpu_s")):
        seconds = {reported: [getattr(block, times) for block in blocks[reported]] for reported in (False, True)}
        slower = [100 * (with_run / without - 1) for without, with_run in zip(*seconds.values(), strict=True)]
        low, middle, high = median_interval(slower)
        step_ms, reported_ms = (statistics.median(each) * 1e3 for each in seconds.values())
        medians = f"{step_ms:.3f} ms per step, {reported_ms:.3f} reported"
        print(f"  {name:4} {medians}: {middle:+.2f} % ({low:+.2f} to {high:+.2f})")
    return statistics.median(block.wall_s for block in blocks[False])


def timed(train: Callable[[int], None], steps: int) -> Block:
    """Runs a block of steps."""
    wall, cpu = time.perf_counter(), time.process_time()
    train(steps)
    return Block((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps)


if __name__ == "__main__":
    main()
