"""Wall times of single steps and of garbage collections, as a process that reports steps measures them."""

from __future__ import annotations

import gc
import math
import os

import pytest

from tputui.reporting.process import StepPace
from tputui.reporting.step_times import TIMES_MAX, Collections, StepTimes
from tputui.telemetry import float_blocks


def taken(times: StepTimes, num_steps: int) -> list[float]:
    number, block = times.take(num_steps)
    return [round(seconds, 3) for seconds in float_blocks.unpack(block, number)] if number else []


def test_each_step_has_its_time_and_a_pause_has_none() -> None:
    times = StepTimes()
    times.extend([1.0, 1.5])
    times.ended(2.5)
    times.skip()
    times.extend([9.0, 9.25])
    first, *others = taken(times, 5)
    assert math.isnan(first)
    assert others[:2] == [0.5, 1.0]
    assert math.isnan(others[2])
    assert others[3] == 0.25


def test_steps_without_an_end_of_their_own_are_not_timed() -> None:
    times = StepTimes()
    times.extend([1.0, 2.0])
    times.ended(5.0, num_steps=3)
    assert taken(times, 5)[1] == 1.0
    times.extend([6.0, 7.0])
    assert taken(times, 3) == [], "the report is about another number of steps"
    times.extend([float(at) for at in range(8, TIMES_MAX + 10)])
    assert taken(times, TIMES_MAX + 2) == [], "too many to be written one by one"


def test_an_end_that_is_known_later_corrects_the_newest_step() -> None:
    times = StepTimes()
    times.extend([1.0])
    times.ended(9.0)
    times.date(1.5)
    times.extend([2.0])
    assert taken(times, 3)[1:] == [0.5, 0.5]


def test_the_first_step_after_a_pause_is_no_pace_of_its_own() -> None:
    pace = StepPace()
    began = pace.stepped_at
    pace.queued += [(1.0, None, began + at) for at in (1.0, 2.0, 3.0, 4.0)]
    pace.count_queued(8)
    assert pace.since_last(may_wait=True) is not None
    pace.pause(11.0, began + 15.0)
    pace.queued.append((1.0, None, began + 15.001))
    pace.count_queued(8)
    assert pace.since_last(may_wait=True) is None
    pace.queued.append((1.0, None, began + 16.0))
    pace.count_queued(8)
    reported = pace.since_last(may_wait=True)
    assert reported is not None
    assert reported.num_steps == 2
    assert reported.step_s == pytest.approx(0.5)


def test_collections_are_counted_until_they_are_stopped() -> None:
    before = list(gc.callbacks)
    collections = Collections()
    collections.start()
    gc.collect()
    gc.collect(0)
    (young, _, full), seconds = collections.take()
    assert young >= 1
    assert full >= 1
    assert seconds[2] > 0
    collections.stop()
    gc.collect()
    assert collections.take()[0] == [0, 0, 0]
    assert gc.callbacks == before


def test_a_forked_process_does_not_count() -> None:
    before = len(gc.callbacks)
    collections = Collections()
    collections.start()
    try:
        if (child := os.fork()) == 0:
            os._exit(len(gc.callbacks) != before)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        collections.stop()
