"""What the observer of JAX costs a training loop: blocks of steps with its hooks and without, in turns.

    python -m benchmarks.observer_cost_jax [--blocks 40] [--steps 100]

A steady loop executes no code of the observer unless it reads a value, so three loops are measured: one that reads its
loss every 20 steps, one that reads it in every step, and one in which the iterations of loops are being counted.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks.intervals import median_interval


def main() -> None:
    """Prints the time of a step without the hooks, and what they add."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TPUTUI_RUN_DIR"] = folder
        measure(options.blocks, options.steps)


def measure(num_blocks: int, num_steps: int) -> None:
    """Measures the three loops."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from tputui.observers import autoload, jax_observer
    from tputui.observers.loop_counter import LoopCounter
    from tputui.observers.sinks import process_sink

    array: Any = sys.modules["jax._src.array"].ArrayImpl
    plain = {name: array.__dict__[name] for name in ("_value", "item")}
    process_sink.open_journal()
    autoload.observe_jax()
    assert jax_observer.is_started(), "the observer did not start"
    hooked = {name: array.__dict__[name] for name in plain}

    @jax.jit
    def train_step(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss = jnp.mean(jnp.tanh(batch @ weights) ** 2)
        return weights - 0.01 * loss, loss

    weights, batch = jnp.ones((512, 512)), np.ones((512, 512), np.float32)

    def block(read_every: int) -> float:
        nonlocal weights
        start = time.perf_counter()
        for step in range(num_steps):
            weights, loss = train_step(weights, batch)
            if step % read_every == 0:
                float(loss)
        weights.block_until_ready()
        return (time.perf_counter() - start) / num_steps

    def use(methods: dict[str, Any]) -> Callable[[], None]:
        def switch() -> None:
            for name, method in methods.items():
                setattr(array, name, method)

        return switch

    for read_every in (20, 1):
        block(read_every)
        _compare(f"read every {read_every} steps", partial(block, read_every), use(plain), use(hooked), num_blocks)

    def counted() -> float:
        counter = LoopCounter(sys._getframe(), 60)
        try:
            return block(20)
        finally:
            counter.stop()

    use(plain)()
    off, on = _in_turns(lambda: block(20), counted, num_blocks)
    _print("loops counted (a few seconds of a run)", off, on)


def _compare(
    name: str, block: Callable[[], float], plain: Callable[[], None], hooked: Callable[[], None], num_blocks: int
) -> None:
    def without() -> float:
        plain()
        return block()

    def with_hooks() -> float:
        hooked()
        return block()

    _print(name, *_in_turns(without, with_hooks, num_blocks))


def _in_turns(
    first: Callable[[], float], second: Callable[[], float], num_blocks: int
) -> tuple[list[float], list[float]]:
    """Blocks of both, in pairs whose order alternates."""
    off, on = list[float](), list[float]()
    for number in range(num_blocks):
        for measured, times in ((first, off), (second, on))[:: 1 if number % 2 else -1]:
            times.append(measured())
    return off, on


def _print(name: str, off: list[float], on: list[float]) -> None:
    low, middle, high = median_interval([100 * (later / before - 1) for before, later in zip(off, on, strict=True)])
    print(f"{name:40} {1e6 * median(off):8.1f} us/step, {middle:+.2f} % with ({low:+.2f} to {high:+.2f})")


if __name__ == "__main__":
    main()
