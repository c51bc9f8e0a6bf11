"""The least that a Textual program can be: one line of text. What ours is measured beside."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widgets import Static


class Bare(App[None]):
    """One line."""

    def compose(self) -> ComposeResult:
        """The line."""
        yield Static("ready to look at")


if __name__ == "__main__":
    Bare().run()
