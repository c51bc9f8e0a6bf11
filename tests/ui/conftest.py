"""Waits of Textual's pilot that end when the app and its threads have nothing left to do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from textual._context import active_app
from textual._wait import wait_for_idle
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

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


async def is_idle(min_sleep: float = 0.02, max_sleep: float = 1.0) -> None:
    """As `has_settled`, then waits as Textual does until the threads of the app have nothing to do either."""
    await has_settled()
    await wait_for_idle(min_sleep, max_sleep)
    await has_settled()


@pytest.fixture(autouse=True)
def _pilots_wait_for_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.pilot.wait_for_idle", is_idle)
    monkeypatch.setattr("textual.app.wait_for_idle", is_idle)
