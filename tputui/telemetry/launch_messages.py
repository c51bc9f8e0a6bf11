"""Messages of the launcher of a host to its supervisor, one per line: events to record, and why training cannot go on.

The launcher has no journal of its own; the supervisor records its events. Both run on one host, as one user.
"""

from __future__ import annotations

from typing import Union

import msgspec

from tputui.telemetry import codec
from tputui.telemetry.events import Event, FailureRaised, Int


class EventEmitted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    line: str
    """The event as a line of a journal."""


class HostFailed(FailureRaised, frozen=True, kw_only=True, tag_field="type", tag=True):
    """The first failure among all hosts in a generation; the other hosts end because of it."""

    host_index: Int
    host: str
    generation: Int
    """Generation of the training processes that it ended."""
    process: str
    """Writer name of the process that failed, such as `worker-1` or `rank-3`; without a `pid` if the host no longer
    answers."""
    place: str
    """Rank and cores of the process, such as `rank 2 (core 2)`; empty if unknown."""
    traceback: str = ""
    """Not sent: it is in the journal of the process."""
    code: Int
    """Exit code of the run."""
    is_final: bool
    """Whether a restart of the training processes cannot help: a host is lost, or the configuration was refused."""

    @property
    def who(self) -> str:
        """`host 1 (vm-1), rank 2 (core 2)`."""
        # The first rank of a host puts its place before its message.
        place = f", {self.place}" if self.place and not self.message.startswith("rank ") else ""
        return f"host {self.host_index} ({self.host}){place}"

    @property
    def sentence(self) -> str:
        """Who failed, and why."""
        return f"{self.who}: {self.error}: {self.message.partition(chr(10))[0]}"


class LaunchFailed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The launcher gave up: the hosts did not meet, or do not belong to one run."""

    code: Int
    """Exit code of the run."""
    reason: str
    """One sentence."""


Message = Union[EventEmitted, HostFailed, LaunchFailed]  # noqa: UP007 - msgspec decodes it at run time
_decoder = msgspec.json.Decoder(Message)


def of_event(event: Event) -> EventEmitted:
    return EventEmitted(line=codec.encode(event, 0).decode("utf-8", "replace"))


def event_of(message: EventEmitted) -> Event:
    """The event in a message. Raises `DamagedLine`."""
    return codec.decode(message.line.encode()).event


def encode(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of a line. Raises `msgspec.MsgspecError`."""
    message: Message = _decoder.decode(line)
    return message
