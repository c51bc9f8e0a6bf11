"""Reads the traces that `TORCH_TRACE` makes torch write: compilations, graph breaks, and functions that were given up.

A trace has a line per record: the prefix of a log line and a JSON object; payloads follow in lines that begin with a
tab. Google's torch-tpu adds a record for each batch of operations that it materialises. Traces are untrusted input.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tputui.logs import torch_guards
from tputui.logs.damage_notes import DamageNotes
from tputui.logs.growing import GrowingFile, LineReader
from tputui.telemetry.events import (
    CodeFrame,
    CompileCause,
    CompileLimitReached,
    CompileObserved,
    Event,
    GraphBroken,
)
from tputui.telemetry.stack_frames import owner_of

NAME = re.compile(r"dedicated_log_torch_trace_.*\.log")
"""Names of traces."""
STRINGS_MAX = 20_000
PROGRAMS_MAX = 4_096
CHARS_MAX = 1_000
NO_LINE = "the trace does not name the line of the call"
_RECORD = re.compile(rb"^(?:\[rank\d+\]:? ?)?[VDIWE]\d{4} [^{]{1,400}?\] (\{.*\})\s*$")
_WANTED = (b'"str"', b'"dynamo_start"', b"compilation_metrics", b'"dynamo_graph_break_reason"', b'"op_name"')
_BREAK = re.compile(r"Graph break in user code at (.{1,4096}):(\d{1,9})$")
_REASON = "Graph Break Reason: "


class TorchTraceReader:
    """Reads one trace from its beginning, and later what was appended."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(GrowingFile(path), DamageNotes())
        self._strings: dict[int, str] = {}
        self._frames: dict[str, CodeFrame] = {}
        """The innermost known calls of the user, by number of the compiled function."""
        self._names: dict[str, str] = {}
        """Names of the compiled functions, by their numbers."""
        self._modes = torch_guards.Modes()
        self._seen: set[str] = set()
        """Batches of torch-tpu that were compiled."""
        self._break: tuple[str, CodeFrame | None] | None = None
        """The graph break whose payload is being read: name of the function, and line."""
        self._is_break_payload = False
        self.has_more = False
        """Whether the last call of `read` read a part of the trace that may not be the last one."""

    def read(self) -> list[Event]:
        """Events since the last call; empty if there are none yet. Raises `OSError`."""
        lines = self._lines.read()
        self.has_more = bool(lines)
        return [event for line in lines for event in self._events_in(line)]

    def _events_in(self, line: bytes) -> Iterator[Event]:
        if line.startswith(b"\t"):
            if self._is_break_payload:
                yield from self._payload(line[1:].decode("utf-8", "replace"))
            return
        self._is_break_payload, self._break = False, None
        match = _RECORD.match(line) if any(word in line for word in _WANTED) else None
        if match is None:
            return
        try:
            record = json.loads(match.group(1))
        except (ValueError, RecursionError):
            return
        function = str(_whole(record.get("frame_id")))
        if isinstance(text := record.get("str"), list) and len(text) == 2 and len(self._strings) < STRINGS_MAX:
            self._strings[_whole(text[1])] = str(text[0])[: 4 * CHARS_MAX]
        elif isinstance(start := record.get("dynamo_start"), dict):
            self._remember(function, start.get("stack"))
        elif isinstance(artifact := record.get("artifact"), dict):
            self._is_break_payload = artifact.get("name") == "dynamo_graph_break_reason"
            self._break = (self._names.get(function, ""), None)
        for name in ("compilation_metrics", "bwd_compilation_metrics"):
            if isinstance(metrics := record.get(name), dict):
                yield from self._compiled(metrics, is_backward=name.startswith("bwd"))
        for batch in (record, *(value for value in record.values() if isinstance(value, dict))):
            if isinstance(batch.get("op_name"), str) and ("cache_hit" in batch or "compile_failed" in batch):
                yield from self._materialised(batch)

    def _remember(self, function: str, stack: Any) -> None:
        """Notes which function is being compiled, and the call of the user that is known of it."""
        calls = [call for call in stack if isinstance(call, dict)] if isinstance(stack, list) else []
        if not calls or len(self._names) >= PROGRAMS_MAX:
            return
        self._names[function] = str(calls[-1].get("name", ""))[:CHARS_MAX]
        for call in reversed(calls):
            file = self._strings.get(_whole(call.get("filename")), "")
            if file and owner_of(file) == "user":
                name = str(call.get("name", ""))[:CHARS_MAX]
                frame = CodeFrame(file=file, line=_whole(call.get("line")), function=name, owner="user")
                # The innermost one is the function itself; its caller is better, if it is recorded.
                self._frames[function] = frame
                if call is not calls[-1]:
                    return

    def _payload(self, line: str) -> Iterator[Event]:
        match = _BREAK.match(line)
        if match:
            file, number = match.group(1), int(match.group(2))
            owner = owner_of(file)
            frame = CodeFrame(file=file, line=number, function="", owner=owner) if owner == "user" else None
            self._break = (self._break[0] if self._break else "", frame)
        elif line.startswith(_REASON) and self._break is not None:
            program, frame = self._break
            self._is_break_payload = False
            reason = line.removeprefix(_REASON)[:CHARS_MAX]
            why = None if frame is not None else "the graph breaks in code of a library"
            yield GraphBroken(
                t=time.time(),
                runtime="torch_compile",
                program=program,
                reason=reason,
                user_frame=frame,
                line_reason=why,
            )

    def _compiled(self, metrics: Mapping[str, Any], *, is_backward: bool) -> Iterator[Event]:
        function = str(metrics.get("compile_id") or "").partition("/")[0]
        name = str(metrics.get("co_name") or self._names.get(function, ""))[:CHARS_MAX]
        frame = self._frames.get(function)
        reason = str(metrics.get("recompile_reason") or "")
        changed = torch_guards.parse(reason) if reason else None
        failure, began = str(metrics.get("fail_type") or ""), _number(metrics.get("start_time"))
        t, why = began or time.time(), None if frame is not None else NO_LINE
        if torch_guards.is_limit(failure, str(metrics.get("fail_reason") or "")):
            yield CompileLimitReached(
                t=t,
                runtime="torch_compile",
                program=name,
                limit=None,
                user_frame=frame,
                line_reason=why,
                changed_inputs=changed,
            )
        elif not failure and (is_backward or metrics.get("has_guarded_code")):
            duration_us = _number(metrics.get("duration_us"))
            seconds = _number(metrics.get("entire_frame_compile_time_s"))
            yield CompileObserved(
                t=t,
                runtime="torch_compile",
                program=f"{name} (backward)" if is_backward else name,
                cause="call",
                warm_up=not reason or self._modes.is_first(function, changed or ()),
                seconds=duration_us / 1e6 if duration_us is not None else seconds,
                step=None,
                user_frame=frame,
                line_reason=why,
                changed_inputs=changed,
            )

    def _materialised(self, batch: Mapping[str, Any]) -> Iterator[Event]:
        """A batch of operations of torch-tpu: an event if it was compiled."""
        if batch.get("cache_hit") or batch.get("compile_failed"):
            return
        name = str(batch["op_name"])[:CHARS_MAX]
        is_first = name not in self._seen
        if len(self._seen) < PROGRAMS_MAX:
            self._seen.add(name)
        reason = str(batch.get("reason") or "").lower()
        cause: CompileCause = "unknown"
        if any(word in reason for word in ("item", "read", "cpu", "host", "print")):
            cause = "value_read"
        elif "sync" in reason:
            cause = "sync"
        yield CompileObserved(
            t=time.time(),
            runtime="torch_tpu",
            program=name,
            cause=cause,
            warm_up=is_first,
            seconds=_number(batch.get("compile_time_s")),
            step=None,
            user_frame=None,
            line_reason=NO_LINE,
            changed_inputs=None,
        )


def _whole(value: Any) -> int:
    """A whole number within the bounds of an event; else 0."""
    return value if isinstance(value, int) and 0 <= value < 2**31 else 0


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if is_number else None


VARIABLES = ("PT_XLA_DEBUG_LEVEL", "PT_XLA_DEBUG_FILE", "PT_XLA_DEBUG")
"""Environment variables that make torch_xla write them."""
BYTES_MAX = 16 << 20
"""More of the file is not read; a compilation takes 2 KB."""
_GIB = 1 << 30
_SIZE = re.compile(
    rb"^Post Compilation Analysis: (Graph input|Graph output|Aliased Input|Intermediate tensor|Compiled program) size: "
    rb"([0-9]{1,9}\.[0-9]{1,9}) GB$",
    re.M,
)
_LAST = b"Compiled program"


def variables(path: Path | None) -> dict[str, str]:
    """The environment variables that make torch_xla write them into a file; empty for None."""
    return {} if path is None else {"PT_XLA_DEBUG_LEVEL": "1", "PT_XLA_DEBUG_FILE": str(path)}


def largest_program(path: Path) -> int | None:
    """Bytes that the largest program takes on a device: inputs, outputs that are not written in place, intermediate
    results and code. None if the file describes no program that takes memory. Raises `OSError`."""
    with path.open("rb") as file:
        content = file.read(BYTES_MAX)
    largest = 0.0
    sizes: dict[bytes, float] = {}
    for name, gibibytes in _SIZE.findall(content):
        sizes[name] = float(gibibytes)
        if name == _LAST:
            total = sum(sizes.values()) - 2 * sizes.get(b"Aliased Input", 0.0)
            largest = max(largest, total)
            sizes = {}
    return round(largest * _GIB) if largest else None
