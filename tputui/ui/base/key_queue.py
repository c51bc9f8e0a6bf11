"""A queue of key presses: the action of a key is finished before the next key is handled.

Textual passes a key from queue to queue, from the focused widget up to the application, and looks up its binding only
there. Two keys in quick succession are therefore in flight at the same time: the second one may reach a widget that
the first one is about to leave, or a screen that the first one is about to close. Keys of our own screens wait in one
queue instead. Must not know any screen: widgets and screens that handle keys themselves implement `take_key`.
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
    """A widget or screen that may handle keys before their bindings are looked up."""

    def take_key(self, event: events.Key) -> bool:
        """Handle a key; returns whether it did."""
        ...


class KeyQueueApp(App[ResultT], Generic[ResultT]):
    """An application whose screens receive their keys in order."""

    class KeyDone(Message):
        """The action of a key is finished, including the callbacks it scheduled."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self) -> None:
        super().__init__()
        self._keys: deque[events.Key] = deque()
        self._num_waits = 0
        self._waits_on: Screen[object] | None = None
        """The screen that has not finished the action of the last key."""

    async def on_event(self, event: events.Event) -> None:
        """Queue the keys of our screens; Textual handles other events, and the keys of its own screens."""
        is_fresh_key = isinstance(event, events.Key) and not event.is_forwarded
        if not is_fresh_key or isinstance(self.screen, SystemModalScreen):
            await super().on_event(event)
            return
        assert isinstance(event, events.Key)
        self.app_focus = True
        self._keys.append(event)
        # A screen that was closed meanwhile has nothing left to finish.
        if self._waits_on is not self.screen:
            await self._press_next()

    async def on_key_queue_app_key_done(self, message: KeyDone) -> None:
        """Handle the next key. Callbacks of the previous one, such as a change of focus, ran before this message."""
        message.stop()
        if message.number == self._num_waits:
            await self._press_next()

    async def _press_next(self) -> None:
        self._waits_on = None
        if not self._keys:
            return
        screen = self.screen
        if screen.is_mounted:
            pumps = [screen.focused, screen]
            await self._press(self._keys.popleft())
            self._wait_for(pumps if screen is self.screen else [self.screen])
        else:
            self._wait_for([screen])

    def _wait_for(self, pumps: Sequence[MessagePump | None]) -> None:
        """Continue with the next key once these pumps have processed their current queues."""
        self._waits_on = self.screen
        self._num_waits += 1
        self._visit(pumps, self._num_waits)

    def _visit(self, pumps: Sequence[MessagePump | None], number: int) -> None:
        for index, pump in enumerate(pumps):
            if pump is not None and pump.call_later(self._visit, pumps[index + 1 :], number):
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
