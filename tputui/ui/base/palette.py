"""The command palette: its entries, made from the key map, and a search that prefers whole words.

Textual's own search matches letters in order anywhere in a title, so that `quit` found events.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.markup import escape

from tputui.ui.base.keymap import HANDS, Key, on_widget
from tputui.ui.terminal.capabilities import keys_told
from tputui.ui.terminal.themes import THEMES

_APART = 1e-4
"""By how much entries of one grade are told apart, so that they keep their order."""


@runtime_checkable
class Runs(Protocol):
    """An application that runs entries."""

    async def run_command(self, command: Command, screen: object) -> None:
        """Does what the entry says, or tells why not."""


class ActionsProvider(Provider):
    """Every action of the screen below the palette."""

    async def discover(self) -> Hits:
        """All of them, in their order."""
        for each in self._commands():
            yield DiscoveryHit(Content(each.title), self._run(each), text=each.title, help=self._help(each))

    async def search(self, query: str) -> Hits:
        """Those that have every word of the query."""
        for place, (points, each) in enumerate(found(list(self._commands()), query)):
            score = points / (BEST + 1) - place * _APART
            yield Hit(score, Content(each.title), self._run(each), text=each.title, help=self._help(each))

    def _commands(self) -> Iterator[Command]:
        return commands(self.screen, self.app.theme)

    def _help(self, command: Command) -> str:
        return escape(keys_told(self.app, command.help))

    def _run(self, command: Command) -> Callable[[], Awaitable[None]]:
        assert isinstance(self.app, Runs)
        return partial(self.app.run_command, command, self.screen)


@runtime_checkable
class Keyed(Protocol):
    """A screen that tells its keys."""

    def keys_in_force(self) -> Sequence[Key]:
        """The keys that do something now."""

    def panel_descriptions(self) -> Sequence[tuple[str, str]]:
        """Each panel: the key that selects it, and its name with what it shows."""


@runtime_checkable
class Offers(Protocol):
    """A screen that tells more than its keys in force."""

    def keys_offered(self) -> Sequence[tuple[Key, str]]:
        """Each key with why it does nothing now; empty where it does something."""


class Command(NamedTuple):
    """An entry of the palette."""

    title: str
    help: str
    action: str
    """As the framework runs it."""
    word: str = ""
    """What the footer calls it; of a panel its name."""
    also: str = ""
    """Other words by which it is found."""
    told: str = ""
    """What is told of it at length."""
    why_not: str = ""
    """Why it is not possible now; empty where it is."""


def commands(screen: object, theme: str) -> Iterator[Command]:
    """The entries for a screen, in the order of its key map; `theme` is the name of the one that is on."""
    panels = screen.panel_descriptions() if isinstance(screen, Keyed) else ()
    for key, why_not in _keys_of(screen):
        # A panel's key is told with the panel; the palette need not offer itself.
        if not key.shown.isdigit() and key.action != "app.command_palette":
            yield _command(key, why_not)
    for number, told in panels:
        name = told.partition(":")[0]
        yield Command(f"Panel {told}", f"{number}  panels", on_widget("body", f"select({number})"), name, "panel", told)
    for title, each in THEMES.items():
        on = " (on now)" if each.name == theme else ""
        shown = f"Theme: {title}{on}"
        yield Command(shown, "view", f"app.choose_theme({each.name!r})", "", shown)


def found(entries: Sequence[Command], wanted: str) -> list[tuple[int, Command]]:
    """The entries that have every word of `wanted`, the best first, each with its grade; else in their order."""
    graded = [(grade(wanted, each.word, each.also, f"{each.told} {each.help}"), each) for each in entries]
    return sorted([(points, each) for points, each in graded if points], key=lambda pair: -pair[0])


def _keys_of(screen: object) -> Sequence[tuple[Key, str]]:
    if isinstance(screen, Offers):
        return screen.keys_offered()
    return [(key, "") for key in (screen.keys_in_force() if isinstance(screen, Keyed) else HANDS)]


def _command(key: Key, why_not: str) -> Command:
    title = _capital(key.title or key.help)
    help = f"{key.shown}  {key.group}" + (f"  not now: {why_not}" if why_not else "")
    return Command(title, help, key.action, key.footer, f"{title} {key.also}", key.help, why_not)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


_WORD = re.compile(r"[^\W_]+")

BEST = 6


def grade(wanted: str, word: str, named: str, told: str = "") -> int:
    """From 0, where a word of `wanted` is nowhere, to `BEST`, where it is the one `word` of the entry; between them
    whole words of what the entry is `named`, those of what is `told` of it, beginnings of words, parts of words."""
    parts = wanted.lower().split()
    if parts and " ".join(parts) == word.lower():
        return BEST
    named = f"{word} {named}"
    return min((_of_part(part, named.lower(), told.lower()) for part in parts), default=BEST)


def _of_part(part: str, named: str, told: str) -> int:
    for points, text in ((5, named), (4, told)):
        if part in _WORD.findall(text) or part in text.split():
            return points
    for points, text in ((3, named), (2, told)):
        if any(word.startswith(part) for word in _WORD.findall(text)):
            return points
    return 1 if part in named or part in told else 0
