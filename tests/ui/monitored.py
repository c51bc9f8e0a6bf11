"""An app that monitors a made run at a known time."""

from __future__ import annotations

from pathlib import Path

from tests.ui import made
from tputui.state.snapshot import Snapshot
from tputui.ui.app import ScreenApp
from tputui.ui.base.preferences import Views
from tputui.ui.monitor.screen import MonitorScreen
from tputui.ui.terminal.themes import Capabilities

STAMP = "20251009-085500"


def app_of(
    snapshot: Snapshot | None = None,
    *,
    views: Views | None = None,
    looks: Capabilities | None = None,
    to: Path | None = None,
) -> ScreenApp:
    source = made.HandSource(snapshot or made.running())
    app = ScreenApp(lambda: MonitorScreen(source, made.RUN_DIR), looks=looks, views=views, export_to=to)
    app._clock = lambda: made.NOW
    return app
