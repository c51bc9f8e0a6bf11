"""Keys, one after the other: what a key does is done before the next one is looked at.

Textual hands a key from queue to queue, from the widget that has the focus up to the application, and only there looks
for what it is bound to. Two keys in quick succession are on their way at the same time: the second is seen by a widget
that the first is about to leave, or it meets a screen that the first is about to close. So keys of our own screens are
kept here in one queue. Must not know any screen: who wants keys for itself says so by `take_key`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

from textual import events
from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen, SystemModalScreen

ResultT = TypeVar("ResultT")


@runtime_checkable
class TakesKeys(Protocol):
    """A widget or a screen that may take keys before they are looked up in the key map."""

    def take_key(self, event: events.Key) -> bool:
        """Whether the key was for this; then it has done what it does."""
        ...


class KeyQueueApp(App[ResultT], Generic[ResultT]):
    """An application whose screens are given their keys in order."""

    class KeyDone(Message):
        """What a key did is done, and what it asked the widgets for."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__()
        self._keys: deque[events.Key] = deque()
        self._num_waits = 0
        self._waits_on: Screen[object] | None = None
        """The screen that is to finish what the last key asked it for."""

    async def on_event(self, event: events.Event) -> None:
        """Keeps keys of our screens in order; leaves all else to the framework, and keys of its own screens too."""
        is_fresh_key = isinstance(event, events.Key) and not event.is_forwarded
        if not is_fresh_key or isinstance(self.screen, SystemModalScreen):
            await super().on_event(event)
            return
        assert isinstance(event, events.Key)
        self.app_focus = True
        self._keys.append(event)
        # A screen that was closed meanwhile, by whatever, has nothing more to finish.
        if self._waits_on is not self.screen:
            await self._press_next()

    async def on_key_queue_app_key_done(self, message: KeyDone) -> None:
        """Looks at the next key. What the one before asked to have done later, such as a focus, stood before this."""
        message.stop()
        if message.number == self._num_waits:
            await self._press_next()

    async def _press_next(self) -> None:
        self._waits_on = None
        if not self._keys:
            return
        screen = self.screen
        if screen.is_mounted:
            asked = [screen.focused, screen]
            await self._press(self._keys.popleft())
            self._wait_for(asked if screen is self.screen else [self.screen])
        else:
            self._wait_for([screen])

    def _wait_for(self, pumps: Sequence[MessagePump | None]) -> None:
        """Goes on with the next key once these have done what was asked of them so far."""
        self._waits_on = self.screen
        self._num_waits += 1
        self._hand_round(pumps, self._num_waits)

    def _hand_round(self, pumps: Sequence[MessagePump | None], number: int) -> None:
        for place, pump in enumerate(pumps):
            if pump is not None and pump.call_later(self._hand_round, pumps[place + 1 :], number):
                return
        self.post_message(self.KeyDone(number))

    def interrupted(self) -> None:
        """Ctrl-C was pressed while no text is selected."""

    async def _press(self, event: events.Key) -> None:
        screen = self.screen
        if event.key == "ctrl+c" and not screen.get_selected_text():
            self.interrupted()
            return
        nodes = screen.focused.ancestors_with_self if screen.focused is not None else [screen]
        active = screen.active_bindings.get(event.key)
        if active is None or not active.binding.priority:
            for node in nodes:
                if isinstance(node, TakesKeys) and node.take_key(event):
                    return
        if active is not None and active.enabled:
            await self.run_action(active.binding.action, active.node)
