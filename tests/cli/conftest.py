"""The bench on which commands meet running runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervise.harness import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Starts supervisors; none outlives the test."""
    made = Bench(tmp_path)
    yield made
    made.clean_up()
