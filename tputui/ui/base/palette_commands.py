"""What the command palette offers: every action of the screen below it, made from the key map, and the themes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tputui.ui.base import search_rank
from tputui.ui.base.keymap import HANDS, Key
from tputui.ui.terminal.themes import THEMES

SELECT = "select({})"
"""The action that selects a panel by its key."""


@runtime_checkable
class Keyed(Protocol):
    """A screen that tells its keys."""

    def keys_in_force(self) -> Sequence[Key]:
        """The keys that do something now."""

    def panels_told(self) -> Sequence[tuple[str, str]]:
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
    panels = screen.panels_told() if isinstance(screen, Keyed) else ()
    for key, why_not in _keys_of(screen):
        # A panel's key is told with the panel; the palette need not offer itself.
        if not key.shown.isdigit() and key.action != "app.command_palette":
            yield _command(key, why_not)
    for number, told in panels:
        name = told.partition(":")[0]
        yield Command(f"Panel {told}", f"{number}  panels", SELECT.format(number), name, "panel", told)
    for title, each in THEMES.items():
        on = " (on now)" if each.name == theme else ""
        shown = f"Theme: {title}{on}"
        yield Command(shown, "view", f"app.choose_theme({each.name!r})", "", shown)


def found(entries: Sequence[Command], wanted: str) -> list[tuple[int, Command]]:
    """The entries that have every word of `wanted`, the best first, each with its grade; else in their order."""
    graded = [(search_rank.grade(wanted, each.word, each.also, f"{each.told} {each.help}"), each) for each in entries]
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
