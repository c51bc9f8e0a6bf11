"""Lines that native code prints before it ends its process: failed checks of XLA and absl, C++ exceptions that nobody
catches, signals, and a corrupted heap. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tputui.supervise.failure_found import PrintedFailure
from tputui.telemetry import stack_frames
from tputui.telemetry.events import CodeFrame

STACK_LINES_MAX = 200
_TEXT_LINES_MAX = 40
_PLACES_MAX = 1_000
"""Lines that are tried, of those that may be such lines."""
_CHARS_MAX = 500
"""Of a line, in which it is recognised."""
_FATAL = "Fatal Python error: "
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
    "Killed": "SIGKILL",
}
"""Signals as `strsignal` and `faulthandler` name them."""
_NAMED = "|".join(_SIGNALS)
_BEGIN = r"(?:^|(?<=[\])>|])|(?<=\]:)|(?<=\]: )|(?<=[\])>|] )|(?<=\d: ))"
"""The begin of a line, or the end of what a launcher puts there."""
_LOG = re.compile(
    r"(?<![\w.])(?P<level>[IWEF])(?:\d{4} \d\d:\d\d:[\d.]+ +(?:\d+ +)?| )[\w.+/-]{1,200}"
    r"\.(?:cc|cpp|cxx|cu|cuh|c|h|hpp|inc|py):\d+\] ?.*"
)
"""A line of glog and absl; the level F is fatal: `F external/xla/x.cc:7] ...`, `F0000 00:00:1764155548.1 17 x.cc:7]
...`."""
_TERMINATE = re.compile(
    r"(?:terminate called(?= after | without | recursively)|libc\+\+abi: terminating due to|libc\+\+abi: terminating)"
    r"(?: after throwing an instance of '(.+?)'| uncaught exception of type ([\w:<>, ]+?)(?:: (.*))?$)?.*"
)
_WHAT = re.compile(r"^\s*what\(\):\s*(.*)$")
_RECEIVED = re.compile(r"\*\*\* (SIG(?:ABRT|SEGV|BUS|FPE|ILL|TRAP)) .*")
"""The handler of absl and glog."""
_SHELL = re.compile(
    rf"(?:(?<=: )\d+ +({_NAMED})(?: +\(core dumped\))?(?: .*)?"
    rf"|(?:(?<=task \d: )|(?<=task \d\d: )|(?<=task \d\d\d: )|^)({_NAMED})(?: \(core dumped\))?)$"
)
"""What bash, dash and srun print of a process that a signal ended."""
_CUDA = re.compile(r"(?<![\w./+-])[\w./+-]{1,200}\.(?:cu|cuh|h):\d+: [^\[\]]{0,200}: block: \[.* failed\.?")
_ABORTS = re.compile(
    rf"{_BEGIN}(?:Check failed: .*|(?:free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): "
    r"(?:.* )?(?:invalid|corrupt|double free|unaligned|mismatch|too many).*"
    r"|double free or corruption.*|corrupted (?:size|double-linked).*|\*\*\* stack smashing detected.*"
    r"|Fatal glibc error: .*|pure virtual method called.*|LLVM ERROR: .*|OMP: Error #.*"
    r"|[A-Za-z/][\w./+-]{0,200}: [^`']{1,200}[Aa]ssertion [`'].* failed\.?|Intel (?:oneMKL|MKL) FATAL ERROR: .*)$"
)
_HINT = re.compile(
    r"\.(?:cc|cpp|cxx|cu|cuh|c|h|hpp|inc):\d|(?<!\w)F\d{4} \d|Fatal |terminat|\*\*\* |Check failed|\(\): |corrupt"
    rf"|pure virtual|LLVM ERROR|OMP: Error|FATAL ERROR|ssertion |{_NAMED}"
)
"""What every such line contains: a cheap test that nearly all lines fail."""
_OF_TEXT = re.compile(r"^\s+@ +0x|^\*\*\* Check failure|^\s+what\(\)|^\s+/")
_OF_STACK = re.compile(r"\s|Current thread|Thread 0x|Python runtime state|Extension modules|<")


def first_abort(lines: Sequence[str]) -> PrintedFailure | None:
    """The first line by which native code ended a process. What a shell says of an end by a signal counts only if
    there is no other line."""
    places = [place for place, line in enumerate(lines) if _HINT.search(line)][:_PLACES_MAX]
    first = next((abort for place in places if (abort := _abort(lines, place))), None)
    if first is None:
        return next((abort for place in places if (abort := _of_shell(lines, place))), None)
    frames = _frames(interpreter_stack(lines)[1])
    return first._replace(frames=frames) if frames else first


def interpreter_stack(lines: Sequence[str]) -> tuple[int, list[str]]:
    """The first stack that `faulthandler` printed when native code ended a process: the index of its first line in the
    output, the number of lines if there is none, and its lines."""
    head = next((place for place, line in enumerate(lines) if _FATAL in line), len(lines))
    stack: list[str] = []
    if head == len(lines):
        return head, stack
    at = lines[head].index(_FATAL)
    prefix = lines[head][:at]
    for line in lines[head : head + 4 * STACK_LINES_MAX]:
        if not line.startswith(prefix):
            continue
        text = line[at:]
        if (stack and text and not _OF_STACK.match(text)) or len(stack) == STACK_LINES_MAX:
            break
        stack.append(text)
    return head, stack


def _frames(stack: Sequence[str]) -> list[CodeFrame]:
    start = next((place for place, line in enumerate(stack) if line.startswith("Current thread")), 0)
    threads = stack_frames.printed("\n".join(stack[start:]))
    return threads[0].frames if threads else []


def _abort(lines: Sequence[str], place: int) -> PrintedFailure | None:
    line = lines[place][:_CHARS_MAX]
    if (terminate := _TERMINATE.search(line)) is not None:
        what = _what(lines, place, line[: terminate.start()])
        error = terminate.group(1) or terminate.group(2)
        message = what or terminate.group(3) or terminate.group()
        return _made(error or "SIGABRT", message if error else terminate.group(), lines, place, terminate.start())
    if (at := line.find(_FATAL)) >= 0:
        name = line[at + len(_FATAL) :]
        return _made(_SIGNALS.get(name, "SIGABRT"), line[at:], lines, place, at)
    if (received := _RECEIVED.search(line)) is not None:
        return _made(received.group(1), received.group(), lines, place, received.start())
    if (cuda := _CUDA.search(line)) is not None:
        return _made("device-side assert", cuda.group(), lines, place, cuda.start())
    match = _LOG.search(line)
    if match is None:
        match = _ABORTS.search(line)
    elif match["level"] != "F":
        return None
    return _made("SIGABRT", match.group(), lines, place, match.start()) if match is not None else None


def _of_shell(lines: Sequence[str], place: int) -> PrintedFailure | None:
    match = _SHELL.search(lines[place][:_CHARS_MAX])
    if match is None:
        return None
    return _made(_SIGNALS[match.group(1) or match.group(2)], lines[place].strip(), lines, place, 0)


def _made(error: str, message: str, lines: Sequence[str], place: int, start: int) -> PrintedFailure:
    prefix = lines[place][:start]
    text = [lines[place]]
    for line in lines[place + 1 : place + _TEXT_LINES_MAX]:
        if not _OF_TEXT.match(line.removeprefix(prefix)):
            break
        text.append(line)
    return PrintedFailure(error, message, "killed" if error == "SIGKILL" else "aborted", [], "\n".join(text), place)


def _what(lines: Sequence[str], place: int, prefix: str) -> str:
    """The message of a C++ exception, which follows its type."""
    later = (_WHAT.match(line.removeprefix(prefix)) for line in lines[place + 1 : place + 4])
    return next((what.group(1) for what in later if what is not None), "")
