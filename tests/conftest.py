"""What every test is held to: nothing of it outlives it, and it sees none of the developer's own settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import recorded

# A busy machine is no failure: nothing here is timed.
settings.register_profile("tputui", deadline=None)
settings.load_profile("tputui")


@pytest.fixture(autouse=True)
def _environment_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    monkeypatch.delenv("TPUTUI_RUNS", raising=False)
    # Not by the fixture that tests undo themselves: what a viewer keeps must never reach the user's own file.
    with pytest.MonkeyPatch.context() as own:
        own.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        before = dict(os.environ)
        yield
        changed = {key for key in before.keys() | os.environ.keys() if before.get(key) != os.environ.get(key)}
        # polars sets the second as it is imported, by whichever test is the first to.
        assert changed <= {"PYTEST_CURRENT_TEST", "_RJEM_MALLOC_CONF"}, f"left in the environment: {changed}"


@pytest.fixture(autouse=True)
def _no_reporter_thread_survives() -> Iterator[None]:
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("tputui-")]
    assert not left, f"threads left running: {left}"


@pytest.fixture
def recorded_run(tmp_path: Path) -> Path:
    """A whole recorded run of three epochs over eight cores."""
    return recorded.write_run(tmp_path)
