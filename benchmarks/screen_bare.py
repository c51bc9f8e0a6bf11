"""A minimal Textual program with one line of text, the baseline for the start time."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widgets import Static


class Bare(App[None]):
    """Shows one line."""

    def compose(self) -> ComposeResult:
        yield Static("ready to look at")


if __name__ == "__main__":
    Bare().run()
