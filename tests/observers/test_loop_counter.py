"""Steps are counted from the loops of a program that does not report them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tputui.observers.loop_counter import LoopCounter


class PjitFunction:
    """A compiled function, as JAX's is called."""

    def __call__(self) -> None: ...


train_step = PjitFunction()
READS = 5
counter: LoopCounter | None = None
reads = 0
steps = 0


def read() -> int:
    """Begins to count at the first read; notes the steps at the later ones."""
    global counter, reads, steps
    if counter is None:
        counter = LoopCounter(sys._getframe(1), 60)
    else:
        reads += 1
        steps = counter.steps(sys._getframe(1))
    return reads


@pytest.fixture(autouse=True)
def _counted() -> Iterator[None]:
    global counter, reads, steps
    counter, reads, steps = None, 0, 0
    before = sys.gettrace()
    sys.settrace(None)
    yield
    if counter is not None:
        counter.stop()
    assert sys.gettrace() is None
    sys.settrace(before)


class Trainer:
    """A program in methods."""

    def __init__(self) -> None:
        self.compiled = PjitFunction()

    def step(self) -> None:
        self.compiled()


def test_a_read_in_each_step() -> None:
    for _ in range(READS + 1):
        train_step()
        read()
    assert (reads, steps) == (READS, READS)


def test_a_read_every_ten_steps_behind_continue_and_in_a_function() -> None:
    def report() -> None:
        read()

    step = 0
    while step < 10 * READS + 1:
        train_step()
        step += 1
        if step % 10 != 1:
            continue
        report()
    assert (reads, steps) == (READS, 10 * READS)


def test_a_read_after_the_loop_over_the_steps_of_an_epoch() -> None:
    for _ in range(READS + 1):
        for _ in range(10):
            train_step()
        read()
    assert reads == READS
    assert steps == 11 * READS, "with the end of each epoch"


def test_a_read_after_a_method_that_trains_an_epoch() -> None:
    def epoch(trainer: Trainer) -> None:
        for _ in range(10):
            trainer.step()

    trainer = Trainer()
    for _ in range(READS + 1):
        epoch(trainer)
        read()
    assert (reads, steps) == (READS, 10 * READS)


def test_loops_that_prepare_data_are_no_steps() -> None:
    for _ in range(READS + 1):
        sum(number for number in [number * 2 for number in range(100)])
        for _ in range(100):
            pass
        train_step()
        read()
    assert (reads, steps) == (READS, READS)


def test_several_values_read_in_a_comprehension_every_ten_steps() -> None:
    for step in range(10 * READS + 1):
        train_step()
        if step % 10 == 0:
            [read() for _ in range(3)]
    assert reads == 3 * READS + 2
    assert steps == 10 * READS


def test_a_program_without_loops_has_no_steps() -> None:
    read()
    read()
    assert (reads, steps) == (1, 0)


def test_nothing_is_counted_while_a_debugger_traces() -> None:
    def trace(*_: object) -> None: ...

    sys.settrace(trace)
    try:
        for _ in range(3):
            train_step()
            read()
        assert counter is not None
        assert (counter.is_counting, steps) == (False, 0)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(None)
