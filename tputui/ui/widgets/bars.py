"""The bars at the bottom of a screen: the active keys, and a notice."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from tputui.ui.base.keymap import HELP, TYPING, Key
from tputui.ui.render.lines import Line, Span, clean, fit, width_of
from tputui.ui.terminal.capabilities import key_names
from tputui.ui.widgets.line_widget import Drawn


class KeyBar(Drawn):
    """The footer with the active keys."""

    def __init__(self, keys: Sequence[Key], *, panels: str = "", id: str | None = None) -> None:
        """`panels` are the keys that select panels, such as `1-9`; empty if the screen has none."""
        super().__init__(id=id)
        self._keys = keys
        self._panels = panels
        self._entries: list[tuple[int, str]] = []
        """The cell at which each entry ends, and its action; an empty action for the panels."""

    def show(self, keys: Sequence[Key]) -> None:
        """Draw the keys that are active now; those of the panels too, unless the user types a text."""
        if keys != self._keys:
            self._keys = keys
            self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """As many keys with a footer word as fit, without gaps if more fit so; the key of the help in any case."""
        entries = [
            (key_names(self.app, key.shown.split()[0]), key.footer, key.action) for key in self._keys if key.footer
        ]
        wide = sum(len(shown) + len(word) + 3 for shown, word, _ in entries)
        while wide - len(entries) > width and len(entries) > 1:
            shown, word, _ = entries.pop(-1 if entries[-1][2] != HELP else -2)
            wide -= len(shown) + len(word) + 3
        panels = len(self._panels) + len("panels") + 2
        if self._panels and list(self._keys) != list(TYPING) and wide - len(entries) + panels <= width:
            entries.append((self._panels, "panels", ""))
            wide += panels + 1
        gap = " " if wide <= width + 1 else ""
        line: Line = []
        self._entries = []
        for shown, word, action in entries:
            line += [Span(f" {shown} ", "accent"), Span(f"{word}{gap}", "label")]
            self._entries.append((width_of(line), action))
        if width_of(line) > width:
            # Nothing follows the gap after the last word.
            line[-1] = line[-1]._replace(text=line[-1].text.rstrip())
        return [fit(line, width)]

    async def on_click(self, event: events.Click) -> None:
        """Run the action of the key that is clicked."""
        action = next((action for end, action in self._entries if event.x < end), "")
        if action:
            event.stop()
            await self.app.run_action(action, default_namespace=self.screen)


class NoticeBar(Drawn):
    """A notice over the last line of a screen, on a layer of its own so that nothing moves."""

    DEFAULT_CSS = "NoticeBar { layer: notice; dock: bottom; height: 1; display: none; background: $surface; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._sentence = ""

    def show_notice(self, sentence: str) -> None:
        """Show a sentence; an empty one removes it."""
        self._sentence = sentence
        self.display = bool(sentence)
        self.redraw()

    def paint(self, width: int, height: int) -> list[Line]:
        """The sentence, as much as fits."""
        return [fit([Span(f" \u276f {clean(self._sentence)}", "info")], width)]
