"""AverageMeters."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.loop.step_buffer import Meters


def test_meter_is_weighted_by_examples_without_padding() -> None:
    meters = Meters(("loss",), num_cores=2)
    sums = np.array([[[8.0, 4.0]], [[3.0, 0.0]]], dtype=np.float32)
    meters.add(sums, np.array([[4, 4], [1, 0]]))
    reading = meters.readings()["loss"]
    assert (reading.val, reading.sum, reading.count) == (3.0, 15.0, 9)
    assert reading.avg == 15 / 9


def test_a_meter_without_examples_is_not_shown() -> None:
    assert Meters(("loss",), num_cores=1).readings() == {}


def test_non_finite_values_are_reported_as_such() -> None:
    meters = Meters(("loss",), num_cores=1)
    meters.add(np.array([[[np.inf]], [[1.0]]], dtype=np.float32), np.array([[1], [1]]))
    assert meters.readings()["loss"].avg == math.inf
    assert meters.readings()["loss"].val == 1.0


@given(st.lists(st.lists(st.floats(0, 1e6, width=32), min_size=3, max_size=3), min_size=1, max_size=40), st.data())
def test_reports_and_resumes_in_between_change_no_bit(rows: list[list[float]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    sums = np.array(rows, dtype=np.float32)[:, None, :]
    counts = np.full((len(rows), 3), 5)
    at_once = Meters(("loss",), num_cores=3)
    at_once.add(sums, counts)
    first = Meters(("loss",), num_cores=3)
    first.add(sums[:cut], counts[:cut])
    second = Meters(("loss",), num_cores=3)
    second.restore(first.state())
    second.add(sums[cut:], counts[cut:])
    assert second.readings() == at_once.readings()
