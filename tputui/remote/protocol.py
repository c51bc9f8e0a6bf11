"""The protocol of `tputui stream`: messages between a viewer and a host, as frames over the pipes of ssh.

The host first writes a greeting, a line with the version of the protocol, so that a login shell may print before it.
Then both write frames. A frame of the viewer is a length and one message. A frame of the host is two lengths and the
next part of one zstd stream, which unpacks to messages, each after its length; the window of the stream is what makes
small frames small. What either side receives is untrusted: lengths are checked before anything is allocated, names
must match a pattern, and unknown fields and kinds are errors.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Literal, TypeVar

import msgspec

from tputui.telemetry.journal import LINE_BYTES_MAX

VERSION = 1
GREETING = b"tputui-stream %d %s\n"
"""Version of the protocol, and version of tputui."""
GREETED = re.compile(rb"(?:\A|\n)tputui-stream ([0-9]{1,6}) ([0-9A-Za-z.+-]{1,40})\n")
NOISE_BYTES_MAX = 1 << 20
"""Most bytes that a login shell may print before the greeting."""
RUNS_COMMAND = "`tputui runs --host`"
DATA_BYTES = 256 << 10
"""Bytes of a journal in a message, unless a line is longer."""
MESSAGE_BYTES_MAX = LINE_BYTES_MAX + (1 << 20)
REQUEST_MESSAGE_BYTES_MAX = 256 << 10
"""Most bytes of a message of the viewer."""
FRAME_BYTES_MAX = MESSAGE_BYTES_MAX + (1 << 20)
"""Most bytes of a frame, packed and unpacked."""
WINDOW_LOG = 20
"""The zstd stream refers back at most 2**20 bytes, so 256 hosts take 256 MB at most."""
KEEP_ALIVE_S = 10.0
"""Seconds between two pings of the viewer."""
PROBE_S = 3.0
"""Without a message for so many seconds the viewer sends a ping at once."""
QUIET_S = 2 * PROBE_S
"""Without a message for so many seconds the silence is that of the connection, not of the run: a ping was not
answered."""
SILENCE_S = 30.0
"""Without a message for so many seconds the connection counts as lost, on both sides."""
MARK_BYTES = 4_096
"""Bytes at the start and at the end of a journal that identify it."""

Form = Literal["none", "plain", "sealed"]
_M = TypeVar("_M")
_LENGTH = struct.Struct("<I")
_LENGTHS = struct.Struct("<II")
_FEED_BYTES = 256
"""Packed bytes that are unpacked at once: they make at most 64 blocks of 128 kB."""
_WRITER = re.compile(r"(?:supervisor|worker|rank|logs|observer)-(?:0|[1-9][0-9]{0,6})")
_SIDE_FILE = re.compile(
    r"run\.json|labels\.json|model\.json|code\.json"
    r"|requests/[0-9]{1,20}-[0-9]{1,10}\.json"
    r"|pictures/(?:rank-[0-9]{1,7}/)?epoch-[0-9]{1,9}/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\.png"
)
SIDE_FILE_BYTES_MAX = 16 << 20
HAVE_MAX = 2_000
HAVE_BYTES_MAX = REQUEST_MESSAGE_BYTES_MAX // 2
"""Most bytes of the names in `Open.have`, which share its message with paths."""


class ProtocolError(Exception):
    """The other side sent what the protocol does not allow; the message says what."""


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, tag=True):
    """What one side sends at once."""


class Open(Message, frozen=True, kw_only=True, tag=True):
    """The first message of a viewer: which run to stream."""

    version: int
    run: str
    """Name, or absolute path, of the run's directory."""
    runs_dir: str | None
    summary: bool
    """Leave out all steps of a report but the last."""
    have: list[str]
    """Requests and pictures that the viewer has; they never change. At most `HAVE_MAX`."""


class Follow(Message, frozen=True, kw_only=True, tag=True):
    """The viewer wants a journal, from where its own copy of it ends."""

    writer: str
    form: Form
    """The viewer's copy."""
    size: int
    """Bytes of it."""
    head_crc: int
    tail_crc: int
    """CRC-32 of its first and last `MARK_BYTES` bytes, fewer if it is shorter."""
    next_seq: int
    """Number of the event after its last one; 0 if sealed."""
    journal_id: str


class Submit(Message, frozen=True, kw_only=True, tag=True):
    """A request to the run."""

    id: str
    content: bytes
    """The file of the request."""


class Ping(Message, frozen=True, kw_only=True, tag=True):
    """Keeps the connection alive."""

    t: float
    """Time of the viewer, which the answer repeats."""


class Opened(Message, frozen=True, kw_only=True, tag=True):
    """The run was found."""

    directory: str
    host: str
    """Name of the host."""


class StreamRefused(Message, frozen=True, kw_only=True, tag="Refused"):
    """The run cannot be streamed; the last message."""

    reason: str
    """One sentence; the viewer completes `RUNS_COMMAND` in it with the host."""


class Found(Message, frozen=True, kw_only=True, tag=True):
    """The run has a journal."""

    writer: str
    head_crc: int
    """CRC-32 of its first line, or of the first bytes of the sealed journal: the same on hosts that share it."""
    sealed: bool


class Data(Message, frozen=True, kw_only=True, tag=True):
    """Bytes of a journal: whole lines, or a part of a sealed journal."""

    writer: str
    form: Form
    offset: int
    """Where they begin in the viewer's copy; at 0 the copy begins anew."""
    data: bytes
    end: bool
    """Whether the host had no more of the journal when it sent them."""


class File(Message, frozen=True, kw_only=True, tag=True):
    """A small file of the run, whole."""

    path: str
    content: bytes


class Listed(Message, frozen=True, kw_only=True, tag=True):
    """All journals and small files that the run had when it was opened were found."""


class Pong(Message, frozen=True, kw_only=True, tag=True):
    """The answer to a ping."""

    t: float
    host_t: float
    """Time of the host, by the clock of the run if that differs."""


class Submitted(Message, frozen=True, kw_only=True, tag=True):
    """A request was written, or why it could not be."""

    id: str
    error: str | None


ToHost = Open | Follow | Submit | Ping
ToViewer = Opened | StreamRefused | Found | Data | File | Listed | Pong | Submitted
_encode = msgspec.msgpack.Encoder().encode
_of_viewer = msgspec.msgpack.Decoder(ToHost)
_of_host = msgspec.msgpack.Decoder(ToViewer)


def is_writer(name: str) -> bool:
    """Whether a name is that of a journal."""
    return _WRITER.fullmatch(name) is not None


def is_side_file(path: str) -> bool:
    """Whether a path is that of a small file that is streamed; such a path stays inside the run's directory."""
    return _SIDE_FILE.fullmatch(path) is not None


def pack(message: ToHost) -> bytes:
    """A frame of the viewer."""
    encoded = _encode(message)
    return _LENGTH.pack(len(encoded)) + encoded


class Packer:
    """Makes the frames of a host: one zstd stream for the whole connection."""

    def __init__(self) -> None:
        import zstandard

        parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=WINDOW_LOG)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        self._flush = zstandard.COMPRESSOBJ_FLUSH_BLOCK

    def pack(self, messages: Iterable[ToViewer]) -> bytes:
        """A frame with messages, whose data the caller keeps to about `DATA_BYTES` altogether."""
        encoded = b"".join(_LENGTH.pack(len(message)) + message for message in map(_encode, messages))
        packed = self._compressor.compress(encoded) + self._compressor.flush(self._flush)
        return _LENGTHS.pack(len(encoded), len(packed)) + packed


class ViewerFrames:
    """Splits the bytes of a viewer into its messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ToHost]:
        """The messages that are complete now. Raises `ProtocolError`."""
        self._buffer += data
        messages: list[ToHost] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > REQUEST_MESSAGE_BYTES_MAX:
                raise ProtocolError(f"a message of {length} bytes is too long")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(_decoded(_of_viewer, bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return messages


class HostFrames:
    """Splits the bytes of a host into its messages."""

    def __init__(self) -> None:
        import zstandard

        self._buffer = bytearray()
        self._error = zstandard.ZstdError
        self._unpack = zstandard.ZstdDecompressor(max_window_size=1 << WINDOW_LOG).decompressobj().decompress

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next_frame(self) -> list[ToViewer] | None:
        """The messages of the next frame; None if it is not complete yet. Raises `ProtocolError`.

        One frame at a time, because hundreds that arrive together may each unpack to `FRAME_BYTES_MAX`.
        """
        if len(self._buffer) < _LENGTHS.size:
            return None
        plain_bytes, packed_bytes = _LENGTHS.unpack_from(self._buffer)
        if max(plain_bytes, packed_bytes) > FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {max(plain_bytes, packed_bytes)} bytes is too long")
        end = _LENGTHS.size + packed_bytes
        if len(self._buffer) < end:
            return None
        packed = bytes(self._buffer[_LENGTHS.size : end])
        del self._buffer[:end]
        return _messages_in(self._unpacked(packed, plain_bytes))

    def _unpacked(self, packed: bytes, plain_bytes: int) -> bytes:
        """Unpacks little by little, so that a few bytes cannot claim gigabytes."""
        plain = bytearray()
        try:
            for start in range(0, len(packed), _FEED_BYTES):
                plain += self._unpack(packed[start : start + _FEED_BYTES])
                if len(plain) > plain_bytes:
                    break
        except self._error as error:
            raise ProtocolError(f"a frame cannot be unpacked: {error}") from None
        if len(plain) != plain_bytes:
            raise ProtocolError("a frame unpacks to another size than it says")
        return bytes(plain)


def _messages_in(plain: bytes) -> list[ToViewer]:
    messages: list[ToViewer] = []
    start = 0
    while start < len(plain):
        if len(plain) - start < _LENGTH.size:
            raise ProtocolError("a message has no length")
        (length,) = _LENGTH.unpack_from(plain, start)
        start += _LENGTH.size
        if length > len(plain) - start:
            raise ProtocolError("a message is longer than its frame")
        messages.append(_decoded(_of_host, plain[start : start + length]))
        start += length
    return messages


def _decoded(decoder: msgspec.msgpack.Decoder[_M], encoded: bytes) -> _M:
    try:
        return decoder.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a message cannot be read: {str(error)[:200]}") from None
