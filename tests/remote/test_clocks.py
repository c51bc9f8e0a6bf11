"""The clock of a host that differs from the viewer's: it is measured over the connection."""

from __future__ import annotations

import pytest

from tputui.remote.clock_offset import MEASUREMENTS_MAX, WINDOW_S, ClockOffset


def test_the_shortest_round_trip_of_the_last_minutes_counts() -> None:
    clock = ClockOffset()
    assert clock.measure(100.0, 100.3, 100.4) == pytest.approx(0.1)
    assert clock.measure(110.0, 110.051, 110.002) == pytest.approx(0.05)
    assert clock.measure(120.0, 120.2, 120.4) == pytest.approx(0.05)
    # The clock drifts: measurements of the last minutes count, however short an earlier round trip was.
    assert clock.measure(110.0 + WINDOW_S, 110.07 + WINDOW_S, 110.02 + WINDOW_S) == pytest.approx(0.06)


def test_a_clock_that_is_set_is_seen_with_the_next_answer() -> None:
    clock = ClockOffset()
    assert clock.measure(100.0, 100.001, 100.002) == pytest.approx(0.0)
    assert clock.measure(110.0, 710.002, 110.004) == pytest.approx(600.0)
    assert clock.measure(120.0, 720.3, 120.6) == pytest.approx(600.0)


def test_answers_that_measure_nothing_are_ignored_and_few_are_stored() -> None:
    clock = ClockOffset()
    for sent_t, host_t, received_t in ((200.0, 100.0, 100.0), (1.0, 100.0, 100.0), (99.9, 1e300, 100.0)):
        assert clock.measure(sent_t, host_t, received_t) is None
    for number in range(10 * MEASUREMENTS_MAX):
        clock.measure(100.0, 100.0, 100.0 + number * 1e-6)
    assert len(clock._recent) == MEASUREMENTS_MAX
