"""What the command palette offers: every action of the screen below it, made from the key map, and the themes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tputui.ui.keys import HANDS, Key
from tputui.ui.out.theme import THEMES

SELECT = "select({})"
"""The action that selects a panel by its key."""


@runtime_checkable
class Keyed(Protocol):
    """A screen that tells its keys."""

    def keys_in_force(self) -> Sequence[Key]:
        """The keys that do something now."""

    def panels_told(self) -> Sequence[tuple[str, str]]:
        """Each panel: the key that selects it, and its name with what it shows."""


class Command(NamedTuple):
    """An entry of the palette."""

    title: str
    help: str
    action: str
    """As the framework runs it."""


def commands(screen: object, theme: str) -> Iterator[Command]:
    """The entries for a screen, in the order of its key map; `theme` is the name of the one that is on."""
    keys: Sequence[Key] = screen.keys_in_force() if isinstance(screen, Keyed) else HANDS
    panels = screen.panels_told() if isinstance(screen, Keyed) else ()
    for key in keys:
        # A panel's key is told with the panel; the palette need not offer itself.
        if not key.shown.isdigit() and key.action != "app.command_palette":
            yield Command(_capital(key.help), f"{key.shown}  {key.group}", key.action)
    for number, told in panels:
        yield Command(f"Panel {told}", f"{number}  panels", SELECT.format(number))
    for title, each in THEMES.items():
        on = " (on now)" if each.name == theme else ""
        yield Command(f"Theme: {title}{on}", "t  view", f"app.choose_theme({each.name!r})")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
