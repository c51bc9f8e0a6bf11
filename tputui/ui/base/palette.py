"""The command palette: its entries, generated from the key map, and a search that prefers whole words.

Textual's own search matches letters in order anywhere in a title, so `quit` would match unrelated titles.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.markup import escape

from tputui.ui.base.keymap import COMMON, Key, on_widget
from tputui.ui.terminal.themes import THEMES, key_names

_APART = 1e-4
"""Difference in score between entries of one grade, which preserves their order."""


@runtime_checkable
class RunsCommands(Protocol):
    """An application that runs entries of the palette."""

    async def run_command(self, command: PaletteCommand, screen: object) -> None:
        """Run an entry, or show why it is not possible now."""


class ActionsProvider(Provider):
    """Every action of the screen below the palette."""

    async def discover(self) -> Hits:
        """All entries, in the order of the key map."""
        for command in self._commands():
            yield DiscoveryHit(Content(command.title), self._run(command), text=command.title, help=self._help(command))

    async def search(self, query: str) -> Hits:
        """The entries that match every word of the query."""
        for rank, (points, command) in enumerate(found(list(self._commands()), query)):
            score = points / (BEST + 1) - rank * _APART
            yield Hit(score, Content(command.title), self._run(command), text=command.title, help=self._help(command))

    def _commands(self) -> Iterator[PaletteCommand]:
        return commands(self.screen, self.app.theme)

    def _help(self, command: PaletteCommand) -> str:
        return escape(key_names(self.app, command.help))

    def _run(self, command: PaletteCommand) -> Callable[[], Awaitable[None]]:
        assert isinstance(self.app, RunsCommands)
        return partial(self.app.run_command, command, self.screen)


@runtime_checkable
class Keyed(Protocol):
    """A screen with a key map."""

    def keys_in_force(self) -> Sequence[Key]:
        """The keys that do something now."""

    def panel_descriptions(self) -> Sequence[tuple[str, str]]:
        """Each panel: the key that selects it, and its name with what it shows."""


@runtime_checkable
class OffersKeys(Protocol):
    """A screen that also offers keys that are not possible now."""

    def keys_offered(self) -> Sequence[tuple[Key, str]]:
        """Each key with the reason why it is not possible now, empty if it is."""


class PaletteCommand(NamedTuple):
    """An entry of the palette."""

    title: str
    help: str
    action: str
    """The action string of Textual."""
    word: str = ""
    """Its word in the footer; the name of a panel."""
    also: str = ""
    """Other words that find it."""
    details: str = ""
    """A longer description, searched too."""
    why_not: str = ""
    """Why it is not possible now; empty if it is."""


def commands(screen: object, theme: str) -> Iterator[PaletteCommand]:
    """The entries for a screen, in the order of its key map; `theme` is the name of the current theme."""
    panels = screen.panel_descriptions() if isinstance(screen, Keyed) else ()
    for key, why_not in _keys_of(screen):
        # Panels with a number have entries below; the palette does not offer itself.
        if not key.shown.isdigit() and key.action != "app.command_palette":
            yield _command(key, why_not)
    for number, description in panels:
        if not number.isdigit():
            continue  # the entry of its key is above
        name = description.partition(":")[0]
        action = on_widget("body", f"select({number})")
        yield PaletteCommand(f"Panel {description}", f"{number}  panels", action, name, "panel", description)
    for title, colours in THEMES.items():
        on = " (on now)" if colours.name == theme else ""
        shown = f"Theme: {title}{on}"
        yield PaletteCommand(shown, "view", f"app.choose_theme({colours.name!r})", "", shown)


def found(entries: Sequence[PaletteCommand], wanted: str) -> list[tuple[int, PaletteCommand]]:
    """The entries that match every word of `wanted`, best grade first, else in the order of the key map."""
    graded = [(grade(wanted, entry.word, entry.also, f"{entry.details} {entry.help}"), entry) for entry in entries]
    return sorted([(points, entry) for points, entry in graded if points], key=lambda pair: -pair[0])


def _keys_of(screen: object) -> Sequence[tuple[Key, str]]:
    if isinstance(screen, OffersKeys):
        return screen.keys_offered()
    return [(key, "") for key in (screen.keys_in_force() if isinstance(screen, Keyed) else COMMON)]


def _command(key: Key, why_not: str) -> PaletteCommand:
    title = _capital(key.title or key.help)
    help = f"{key.shown}  {key.group}" + (f"  not now: {why_not}" if why_not else "")
    return PaletteCommand(title, help, key.action, key.footer, f"{title} {key.also}", key.help, why_not)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


_WORD = re.compile(r"[^\W_]+")

BEST = 6


def grade(wanted: str, word: str, named: str, details: str = "") -> int:
    """Grade of a match, from 0 (a word of `wanted` is missing) to `BEST` (`wanted` is the `word` of the entry).
    In between, from high to low: whole words of `named`, whole words of `details`, prefixes, parts of words."""
    parts = wanted.lower().split()
    if parts and " ".join(parts) == word.lower():
        return BEST
    named = f"{word} {named}"
    return min((_of_part(part, named.lower(), details.lower()) for part in parts), default=BEST)


def _of_part(part: str, named: str, details: str) -> int:
    for points, text in ((5, named), (4, details)):
        if part in _WORD.findall(text) or part in text.split():
            return points
    for points, text in ((3, named), (2, details)):
        if any(word.startswith(part) for word in _WORD.findall(text)):
            return points
    return 1 if part in named or part in details else 0
