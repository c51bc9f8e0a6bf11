"""The tools of `tputui mcp`: each one runs the command of its name and hands on what it prints, so an agent reads what
a shell reads. Imports the SDK, which takes seconds.

A JSON object cut to a number of bytes, for readers that take only so much, and a sentence about what is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from tputui import __version__
from tputui.cli.requests import REQUESTED_BY
from tputui.exit_codes import ExitCode
from tputui.formatting import inert
from tputui.telemetry import rundir

_NAMED_MAX = 12
_NAME_CHARS_MAX = 60
_HALVED_BYTES_MIN = 64
"""A part of this size or less is kept or left out as a whole."""


class NoSection(ValueError):
    """A name that no part of an object has; the text is one sentence for the user."""


class Part(NamedTuple):
    """The part of an object that a reader asked for."""

    sections: Sequence[str] | None = None
    """Names of parts, such as `xla` or `plan.batch`; without any, all."""
    entries: int | None = None
    """Number of entries of each list in them, counted from the end; None for all."""
    skip: int = 0
    """Entries that are left out before these are counted."""
    first: bool = False
    """Counts from the beginning of the lists instead."""

    def of(self, fields: dict[str, Any]) -> dict[str, Any]:
        """That part of an object. Raises `NoSection`."""
        found = {name: _section(fields, name) for name in self.sections} if self.sections else fields
        return {name: self._slice(part) if isinstance(part, list) else part for name, part in found.items()}

    def _slice(self, part: list[Any]) -> list[Any]:
        skip, entries = max(self.skip, 0), len(part) if self.entries is None else max(self.entries, 0)
        end = len(part) - skip
        return part[skip : skip + entries] if self.first else part[max(end - entries, 0) : max(end, 0)]


def _section(fields: dict[str, Any], name: str) -> Any:
    part: Any = fields
    for key in name.split("."):
        if not isinstance(part, dict) or key not in part:
            known = f"; there are {', '.join(part)}" if isinstance(part, dict) else ""
            raise NoSection(f"no section {name}{known}")
        part = part[key]
    return part


def encoded(value: Any) -> str:
    """The value as JSON in ASCII, without spaces that only people need."""
    return json.dumps(value, separators=(",", ":"))


def bounded(fields: dict[str, Any], size_bytes: int, how_to_ask: str, *, first: bool = False) -> str:
    """The object as JSON of at most `size_bytes`, of which there must be thousands.

    The largest lists, texts and objects in it are halved until it fits. A list keeps its last entries, with `first` its
    first ones. `left_out` then says what was cut, and `how_to_ask` for less.
    """
    cut: dict[str, tuple[int, int]] = {}
    text = encoded(fields)
    while len(text) > size_bytes:
        fields = _halved(fields, "", cut, first)
        kept = f"cut to {size_bytes // 1000} kB, lists to their {'first' if first else 'last'} entries: {_places(cut)}"
        text = encoded({"left_out": f"{kept}; {how_to_ask}", **fields})
    return text


def _places(cut: Mapping[str, tuple[int, int]]) -> str:
    places = [f"{path[-_NAME_CHARS_MAX:]} ({kept:,} of {total:,} kept)" for path, (kept, total) in cut.items()]
    return ", ".join(places[:_NAMED_MAX]) + (f" and {len(places) - _NAMED_MAX} more" if places[_NAMED_MAX:] else "")


def _halved(value: Any, path: str, cut: dict[str, tuple[int, int]], first: bool) -> Any:
    """The value with its largest part halved; notes in `cut` how much is kept of what was there."""
    if isinstance(value, dict):
        name, part = max(value.items(), key=lambda item: len(encoded(item[1])))
        # An object of many small values is halved itself.
        if _can_be_halved(part) and len(encoded(part)) * 4 > len(encoded(value)):
            return {**value, name: _halved(part, f"{path}.{name}" if path else name, cut, first)}
        kept: Any = dict(list(value.items())[: len(value) // 2])
    elif isinstance(value, list) and len(value) == 1 and _can_be_halved(value[0]):
        return [_halved(value[0], f"{path}[0]", cut, first)]
    else:
        half = len(value) // 2
        kept = value[:half] if first or isinstance(value, str) else value[len(value) - half :]
    cut[path] = (len(kept), cut.get(path, (0, len(value)))[1])
    return kept


def _can_be_halved(part: Any) -> bool:
    return isinstance(part, dict | list | str) and len(encoded(part)) > _HALVED_BYTES_MIN


ANSWER_BYTES_MAX = 20_000
WAIT_S_MAX = 600.0
COMMAND_S_MAX = 120.0
"""How long a command may take beside what it waits for."""
_SENTENCE_CHARS_MAX = 2_000
READ_ONLY = "this server is read-only: it saves and stops runs only if it is started by `tputui mcp --allow-control`"
INSTRUCTIONS = (
    "Training runs that tputui recorded or that train now. A run is named as `runs` names it. Times are unix seconds, "
    "names of fields carry their units. Answers have at most 20 kB: `left_out` says what was cut."
)
LESS = "ask for less by sections, entries and skip, such as sections=['epochs'], entries=20, skip=20"
OLDER = "ask for older ones by skip, such as skip=20"

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
SAVES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


class RunTools:
    """The tools over the runs in one directory. Their docstrings are what agents read."""

    def __init__(self, parent: Path, *, control: bool) -> None:
        """With `control` runs can be stopped and asked for checkpoints."""
        self._parent = parent
        self._control = control

    async def runs(self, tag: str = "", archived: bool = False, skip: int = 0) -> CallToolResult:
        """Lists the runs, newest first, with state, step and loss. `tag`: only runs that have it. `archived`: those
        too. `skip`: leave out that many of the newest."""
        words = ["runs", "--json", *(["--all"] if archived else []), *([f"--tag={tag}"] if tag else [])]
        return await self._object(words, [], Part(skip=skip, first=True), how_to_ask=OLDER)

    async def show(
        self, run: str, sections: list[str] | None = None, entries: int | None = None, skip: int = 0
    ) -> CallToolResult:
        """Shows a run: state, progress, losses, meters, epochs, XLA counters, memory, checkpoints, failure, goodput.
        `sections`: only these fields, such as ["epochs", "config.optim"]. `entries`: of each list only so many of the
        newest, without the newest `skip`."""
        return await self._object(["show", "--json"], [run], Part(sections, entries, skip))

    async def doctor(
        self, run: str = "", sections: list[str] | None = None, entries: int | None = None, skip: int = 0
    ) -> CallToolResult:
        """Says what slows a run down: line of code, seconds lost, evidence, fix. Without `run`: whether this machine
        can train. `sections`, `entries` and `skip` as in `show`, but of the first entries: the worst is first."""
        return await self._object(["doctor", "--json"], [run] if run else [], Part(sections, entries, skip, first=True))

    async def compare(
        self, runs: list[str], sections: list[str] | None = None, entries: int | None = None, skip: int = 0
    ) -> CallToolResult:
        """Compares 2 to 8 runs: figures, pace, configuration and code that differ, and a verdict; the first run is the
        base. `sections`, `entries` and `skip` as in `doctor`."""
        return await self._object(["compare", "--json"], runs, Part(sections, entries, skip, first=True))

    async def wait(self, run: str, until: str = "", timeout_s: float = 60.0) -> CallToolResult:
        """Waits until a run has ended, or until a condition such as "valid.loss < 0.5 or ended" holds, at most
        `timeout_s` seconds (600 at most; the client may give up earlier). `holds` says whether it has or does."""
        wait_s = min(timeout_s, WAIT_S_MAX)
        words = ["wait", "--json", f"--timeout={wait_s:g}", *([f"--until={until}"] if until else [])]
        return await self._object(words, [run], Part(), wait_s)

    async def checkpoint(self, run: str, wait_s: float = 60.0) -> CallToolResult:
        """Asks a running run to save a checkpoint now and to go on; waits for its receipt, at most 600 s."""
        return await self._request(["checkpoint"], run, wait_s)

    async def stop(
        self, run: str, when: Literal["after_step", "after_epoch", "now"] = "after_step", wait_s: float = 60.0
    ) -> CallToolResult:
        """Asks a run to save a checkpoint and end, after its step or epoch; with "now" it ends without saving. Waits
        for its receipt, at most 600 s."""
        flags = {"after_step": [], "after_epoch": ["--after-epoch"], "now": ["--now"]}[when]
        return await self._request(["stop", *flags], run, wait_s)

    async def _object(
        self, words: list[str], names: list[str], part: Part, wait_s: float = 0.0, how_to_ask: str = LESS
    ) -> CallToolResult:
        """The part of the JSON that a command prints about these runs, of a list under the name of the command."""
        _, out, printed = await self._printed(words, names, wait_s)
        if not out:
            return _answer(printed, is_error=True)
        value = json.loads(out)
        try:
            fields = part.of(value if isinstance(value, dict) else {words[0]: value})
        except NoSection as error:
            return _answer([str(error)], is_error=True)
        messages = {"messages": printed} if printed else {}
        text = bounded({**messages, **fields}, ANSWER_BYTES_MAX, how_to_ask, first=part.first)
        return CallToolResult(content=[TextContent(type="text", text=text)])

    async def _request(self, words: list[str], run: str, wait_s: float) -> CallToolResult:
        """The receipts of a request, if this server may make any."""
        if not self._control:
            return _answer([READ_ONLY], is_error=True)
        wait_s = min(wait_s, WAIT_S_MAX)
        code, out, messages = await self._printed([*words, f"--wait={wait_s:g}"], [run], wait_s)
        return _answer([*out.splitlines(), *messages], is_error=code != ExitCode.DONE)

    async def _printed(self, words: list[str], names: list[str], wait_s: float) -> tuple[int, str, list[str]]:
        """The exit code of a command about runs, its data, and its messages without the name of the program. It is
        ended with the call that waits for it."""
        # A path or an address would reach beyond the directory that is served.
        if wrong := [inert(name[:100]) for name in names if not rundir.is_name(name)]:
            return ExitCode.USAGE, "", [f"{wrong[0]!r} is not the name of a run; `runs` lists them"]
        if not self._parent.is_dir():
            return ExitCode.USAGE, "", [f"no runs in {self._parent} yet; start one with `tputui run CONFIG`"]
        argv = [sys.executable, "-P", "-m", "tputui", *words, *(["--", *names] if names else [])]
        environ = {**os.environ, "TPUTUI_RUNS": str(self._parent), REQUESTED_BY: "tputui mcp"}
        try:
            with anyio.fail_after(max(wait_s, 0.0) + COMMAND_S_MAX):
                # Commands look for a name in the directory in which they run, too.
                folder, no_input = self._parent, subprocess.DEVNULL
                done = await anyio.run_process(argv, stdin=no_input, check=False, cwd=folder, env=environ)
        except TimeoutError:
            return ExitCode.UNANSWERED, "", [f"{words[0]}: no answer within {COMMAND_S_MAX:g} s"]
        messages = [line.removeprefix("tputui: ") for line in done.stderr.decode("utf-8", "replace").splitlines()]
        return done.returncode, done.stdout.decode("utf-8", "replace"), messages


class Server(MCPServer):
    """Names a wrong argument in one sentence, where the SDK prints the report of its validator."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Calls a tool. Raises `ToolError`."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = error.__cause__.errors()[0]
            argument = ".".join(map(str, wrong["loc"]))
            return _answer([inert(f"{name}: {argument[:100]}: {wrong['msg']}")], is_error=True)


def serve(parent: Path, *, control: bool) -> None:
    """Serves the runs in `parent` until stdin is closed."""
    tools = RunTools(parent, control=control)
    server = Server("tputui", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (tools.runs, tools.show, tools.doctor, tools.compare, tools.wait):
        server.add_tool(tool, annotations=READS, structured_output=False)
    server.add_tool(tools.checkpoint, annotations=SAVES, structured_output=False)
    server.add_tool(tools.stop, annotations=STOPS, structured_output=False)
    server.run("stdio")


def _answer(lines: list[str], *, is_error: bool) -> CallToolResult:
    text = "\n".join(lines)[:_SENTENCE_CHARS_MAX]
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
