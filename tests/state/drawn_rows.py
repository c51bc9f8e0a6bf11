"""Draws the losses of consecutive steps, as the reports of a run have them."""

from __future__ import annotations

from hypothesis import strategies as st

Rows = list[list[float]]


@st.composite
def runs_of_records(draw: st.DrawFn, values: st.SearchStrategy[float], num_cores: int = 3) -> list[Rows]:
    """Events of consecutive steps, each of any length, with `values`.

    Each value is one of up to 40 that were drawn: to draw hundreds of numbers takes longer than to test with them.
    """
    drawn = draw(st.lists(values, min_size=1, max_size=40))
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=25))
    size = sum(lengths) * num_cores
    chosen = iter(draw(st.binary(min_size=size, max_size=size)))
    return [[[drawn[next(chosen) % len(drawn)] for _ in range(num_cores)] for _ in range(length)] for length in lengths]
