"""Settings of all tests: they leave nothing behind and do not see the settings of the developer."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import forked, recorded
from tests.deadline import DEADLINE_S
from tests.hermetic import Session

# No deadlines, because the machine may be busy, and no database of examples in the working directory.
settings.register_profile("tputui", deadline=None, database=None)
settings.load_profile("tputui")
_SET_BY_IMPORTS = ("_RJEM_MALLOC_CONF", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables that polars and sklearn set as they are imported, by whichever test is the first to."""
_COLLECT_AFTER = (20_000, 20, 20)
"""Thresholds of the garbage collector."""
_MANY_MODULES = 200
_frozen = [0]
"""Number of modules that were imported when objects were last frozen."""
_SESSION = pytest.StashKey[Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Hides the user's settings from the tests. The processes of xdist inherit the environment."""
    # Imports leave hardly any garbage, and the screens of the tests have hundreds of thousands of objects.
    gc.set_threshold(*_COLLECT_AFTER)
    if hasattr(config, "workerinput"):
        return
    session = config.stash[_SESSION] = Session()
    # What hypothesis computes once for a source tree, at the start of each process: constants and tables of characters.
    with contextlib.suppress(AttributeError, OSError):
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(config.cache.mkdir("hypothesis"))
    if sys.flags.optimize:
        # Assertions are compiled out of this process already: begin anew.
        session.close()
        config.pluginmanager.getplugin("capturemanager").stop_global_capturing()
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *config.invocation_params.args])


def pytest_collection_finish() -> None:
    """Leaves what was imported to the end of the process: collecting garbage takes a fifth of the time of a screen's
    test if the collector visits all of torch each time.
    """
    _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()
    _frozen[:] = [len(sys.modules)]


@pytest.fixture(scope="module", autouse=True)
def _large_imports_are_frozen_too() -> Iterator[None]:
    yield
    if len(sys.modules) - _frozen[0] > _MANY_MODULES:
        _freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails if a test left a process or a file behind."""
    forked.end_template()
    hermetic = session.config.stash.get(_SESSION, None)
    if hermetic is None:
        return
    if left := hermetic.left():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminal = session.config.get_terminal_writer()
        terminal.line()
        for what in left:
            terminal.line(f"left behind by the tests: {what}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the directories of the session."""
    if (hermetic := config.stash.get(_SESSION, None)) is not None:
        hermetic.close()


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directories with numbers. A temporary one of its own a test would be slower: pytest lists all earlier ones to
    find the next number.
    """
    parent = tmp_path_factory.mktemp("states")
    return (parent / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _environment_is_left_as_it_was(_states: Iterator[Path]) -> Iterator[None]:
    # Preferences that a viewer saves must not reach another test.
    with pytest.MonkeyPatch.context() as own:
        state = next(_states)
        state.mkdir(mode=0o700)
        own.setenv("XDG_STATE_HOME", str(state))
        before = dict(os.environ)
        yield
        changed = {key for key in before.keys() | os.environ.keys() if before.get(key) != os.environ.get(key)}
        assert changed <= {"PYTEST_CURRENT_TEST", *_SET_BY_IMPORTS}, f"left in the environment: {changed}"


@pytest.fixture(autouse=True)
def _no_reporter_thread_survives() -> Iterator[None]:
    yield
    own = [thread for thread in threading.enumerate() if thread.name.startswith("tputui-")]
    for thread in own:
        # One that was told to end may need a moment more on a busy machine.
        thread.join(DEADLINE_S)
    left = [thread.name for thread in own if thread.is_alive()]
    assert not left, f"threads left running: {left}"


@pytest.fixture
def recorded_run(tmp_path: Path) -> Path:
    """A whole recorded run of three epochs over eight cores."""
    return recorded.write_run(tmp_path)
