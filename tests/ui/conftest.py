"""Waits of Textual's pilot that end when the app and its threads have nothing left to do."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from textual._context import active_app
from textual._wait import wait_for_idle
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from tests.deadline import DEADLINE_S
from tputui.ui.widgets.dialogs import Notices

_parse_rules = Stylesheet._parse_rules
_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}
"""Rules by style sheet, place and variables, of all apps: otherwise each parses the same ones as it starts."""


def _parse_once(sheet: Stylesheet, *of: Any, **named: Any) -> list[RuleSet]:
    key = (of, frozenset(named.items()), frozenset(sheet._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse_rules(sheet, *of, **named)
    return _parsed[key]


Stylesheet._parse_rules = _parse_once  # type: ignore[assignment]


async def has_settled(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    """Returns when no task of the event loop can run, and what was drawn meanwhile is on the screen.

    Textual's own function compares processor time with wall time; on a busy machine it may end too early.
    """
    loop = asyncio.get_running_loop()
    for is_drawn in (False, True):
        while True:
            await asyncio.sleep(0)
            if not loop._ready:  # type: ignore[attr-defined]
                break
        app = active_app.get(None)
        if app is None or not app.screen_stack or is_drawn:
            return
        # What timers would do within a frame.
        if app._resize_event is not None:
            app._check_resize()
        app.screen._on_timer_update()


_WAITING = (threading.__file__, "/queue.py", "/selectors.py", "/concurrent/futures/thread.py")
"""Files in which a thread waits for work, for another thread or for a time."""
_BUSY_MAX_S = 2.0
"""Processor time that the threads of an app may take. Not wall time, of which other processes take their part."""


async def is_idle(min_sleep: float = 0.02, max_sleep: float = 1.0) -> None:
    """As `has_settled`, then waits until the threads of the app have nothing to do either, or are held by something.

    Textual's own wait ends when the process gets no processor time, as on a busy machine.
    """
    deadline, before = time.process_time() + _BUSY_MAX_S, dict[int, int]()
    while True:
        await has_settled()
        await wait_for_idle(min_sleep, max_sleep)
        busy = _busy_threads()
        is_held = busy == before and not any(map(_is_runnable, busy))
        if not busy or is_held or time.process_time() > deadline:
            break
        before = busy
    await has_settled()


def _busy_threads() -> dict[int, int]:
    """The threads of the app that compute, were woken, or have work waiting for them: where each is, by its number."""
    executor = asyncio.get_running_loop()._default_executor  # type: ignore[attr-defined]
    if executor is None:
        return {}
    frames, has_work = sys._current_frames(), executor._work_queue.qsize() > 0
    at = {thread.native_id: frames[thread.ident] for thread in executor._threads if thread.ident in frames}
    return {number: hash((frame, frame.f_lasti)) for number, frame in at.items() if has_work or not _waits(frame)}


def _is_runnable(number: int) -> bool:
    """Whether a thread would compute if it had a processor."""
    try:
        return Path(f"/proc/self/task/{number}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def _waits(frame: FrameType) -> bool:
    if not frame.f_code.co_filename.endswith(_WAITING):
        return False
    outer: FrameType | None = frame
    while outer is not None and outer.f_code.co_filename == threading.__file__:
        event = outer.f_locals.get("self")
        if isinstance(event, threading.Event) and event.is_set():
            return False
        outer = outer.f_back
    return True


@pytest.fixture(autouse=True)
def _pilots_wait_for_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.pilot.wait_for_idle", is_idle)
    monkeypatch.setattr("textual.app.wait_for_idle", is_idle)


@pytest.fixture(autouse=True)
def _notices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user reads a notice for seconds. A busy machine may need longer to reach the picture or the assertion."""
    monkeypatch.setattr(Notices.__init__, "__defaults__", (DEADLINE_S,))
    monkeypatch.setattr("tputui.ui.launch.screen.NOTICE_S", DEADLINE_S)


@pytest.fixture(autouse=True)
def _truecolor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Screens are drawn in the colours of a terminal that shows all; tests of 256 colours remove the variable."""
    monkeypatch.setenv("COLORTERM", "truecolor")
