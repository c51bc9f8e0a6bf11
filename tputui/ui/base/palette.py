"""The command palette: finds entries by every word that the footer, the help and people use for them, exact ones first.

The framework's own search takes letters that stand in their order anywhere in a title, so that `quit` found events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.markup import escape

from tputui.ui.base import search_rank
from tputui.ui.base.palette_commands import Command, commands, found
from tputui.ui.terminal.capabilities import keys_told

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
            score = points / (search_rank.BEST + 1) - place * _APART
            yield Hit(score, Content(each.title), self._run(each), text=each.title, help=self._help(each))

    def _commands(self) -> Iterator[Command]:
        return commands(self.screen, self.app.theme)

    def _help(self, command: Command) -> str:
        return escape(keys_told(self.app, command.help))

    def _run(self, command: Command) -> Callable[[], Awaitable[None]]:
        assert isinstance(self.app, Runs)
        return partial(self.app.run_command, command, self.screen)
