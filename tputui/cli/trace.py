"""`tputui trace`: asks a run for a profile of its next steps, and prints XProf's summary of it.

`python -m tputui.cli.trace FILE` prints the lines.
"""

from __future__ import annotations

import argparse
import html
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tputui import formatting as fmt
from tputui.cli.arguments import add_run_argument, chosen_run
from tputui.cli.console import narrate, say
from tputui.cli.parser import Command, Parser, add_hosts_option, exit_codes, positive_int, seconds
from tputui.cli.requests import request_and_wait
from tputui.exit_codes import ExitCode
from tputui.remote import link
from tputui.telemetry.requests import TRACE_SECONDS_MAX, TRACE_STEPS_DEFAULT, TRACE_STEPS_MAX

TIMEOUT_S = 120.0
FILE_BYTES_MAX = 1 << 30
"""XProf takes minutes and many times the memory for larger files; they are left to its own program."""
OPERATIONS_SHOWN = 5
_LINES_MAX = 40
_LINE_CHARS_MAX = 300
_PARTS = {
    "device_compute": "device compute",
    "device_collectives": "collectives",
    "device_to_device": "device to device",
    "infeed": "input",
    "outfeed": "output",
    "host_compute": "host compute",
    "kernel_launch": "launch",
    "compile": "compile",
    "other": "other",
}
"""Parts of a step in XProf's overview, and how they are printed."""
_UTILIZATION = {
    "device_duty_cycle_percent": "duty cycle",
    "mxu_utilization_percent": "MXU",
    "hbm_utilization_percent": "HBM bandwidth",
}


class NoSummaryError(Exception):
    """XProf cannot summarise the profile; the text says why."""


def read(folder: Path) -> list[str]:
    """The summary of the profile in a folder. Raises `NoSummaryError`."""
    if importlib.util.find_spec("xprof") is None:
        raise NoSummaryError("XProf is not installed; `pip install 'tputui[xprof]'` adds it")
    # The run may be of another user: no link may lead out of the folder, and no pipe may block the reader.
    profiles = [path.resolve() for path in sorted(folder.glob("plugins/profile/*/*.xplane.pb"))]
    files = [path for path in profiles if path.is_relative_to(folder.resolve()) and path.is_file()]
    if not files:
        raise NoSummaryError(f"no .xplane.pb file in {folder}")
    size = files[0].stat().st_size
    if size > FILE_BYTES_MAX:
        raise NoSummaryError(
            f"the profile has {fmt.size(size)}, more than {fmt.size(FILE_BYTES_MAX)}; open it in XProf"
        )
    command = [sys.executable, "-P", "-m", "tputui.cli.trace", str(files[0])]
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise NoSummaryError(f"XProf took more than {TIMEOUT_S:g} s to read the profile") from None
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise NoSummaryError(f"XProf cannot read the profile: {fmt.inert(last[:_LINE_CHARS_MAX])}")
    lines = done.stdout.decode(errors="replace").splitlines()[:_LINES_MAX]
    return [fmt.inert(line[:_LINE_CHARS_MAX]) for line in lines]


def summary_lines(
    overview: list[dict[str, Any]], operations: Mapping[str, Any], advice: Mapping[str, Any]
) -> list[str]:
    """The summary from XProf's tables: `overview_page`, `hlo_stats` and `smart_suggestion`."""
    facts: dict[str, str] = {}
    for table in overview:
        facts.update({name: str(value) for name, value in table.get("p", {}).items()})
    return [
        *_step_lines(facts),
        *_device_lines(facts, operations),
        *(f"suggestion    {_plain(str(item.get('suggestion_text', '')))}" for item in advice.get("suggestions", [])),
    ]


def _step_lines(facts: Mapping[str, str]) -> Iterator[str]:
    average = _number(facts.get("steptime_ms_average"))
    if not average:
        yield "step time     XProf found no steps in the profile"
        return
    low, high = facts.get("steptime_ms_minimum", "?"), facts.get("steptime_ms_maximum", "?")
    yield f"step time     {average:g} ms on average, {low} to {high} ms"
    spent = {title: _number(facts.get(f"{name}_time_ms_avg")) for name, title in _PARTS.items()}
    parts = [f"{title} {value:g} ms" for title, value in spent.items() if value]
    if parts:
        yield f"of it         {', '.join(parts)}"
    if conclusion := _plain(facts.get("input_conclusion", "")):
        yield f"input         {conclusion}"
    if remark := _plain(facts.get("remark_text", "")):
        yield f"remark        {remark}"


def _device_lines(facts: Mapping[str, str], operations: Mapping[str, Any]) -> Iterator[str]:
    names = [column["id"] for column in operations.get("cols", [])]
    rows = [dict(zip(names, (cell.get("v") for cell in row["c"]), strict=False)) for row in operations.get("rows", [])]
    if not rows:
        yield f"device        no device operations in the profile ({facts.get('hardware_type', 'unknown device')})"
        return
    used = [f"{title} {facts[name]}" for name, title in _UTILIZATION.items() if name in facts]
    if used:
        yield f"device        {', '.join(used)}"
    rows.sort(key=lambda row: -(_number(row.get("total_self_time")) or 0.0))
    for row in rows[:OPERATIONS_SHOWN]:
        took = fmt.duration((_number(row.get("total_self_time")) or 0.0) * 1e-6)
        share = _number(row.get("total_self_time_percent")) or 0.0
        source = _plain(str(row.get("source_info") or ""))
        bound = f", bound by {row['bound_by']}" if row.get("bound_by") else ""
        yield f"operation     {share:5.1f} %  {took}  {row.get('hlo_op_name')}{bound}{f'  {source}' if source else ''}"


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _plain(text: str) -> str:
    """Text without markup, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())


def main(path: Path) -> None:
    """Prints the summary of a profile. XProf writes files beside it, so it gets a link in a temporary folder."""
    convert: Any = importlib.import_module("xprof.convert.raw_to_tool_data").xspace_to_tool_data
    with tempfile.TemporaryDirectory(prefix="tputui-xprof-") as folder:
        session = Path(folder, "plugins", "profile", "session")
        session.mkdir(parents=True)
        link = session / path.name
        link.symlink_to(path)
        tables = [
            json.loads(convert([str(link)], tool, {})[0] or empty)
            for tool, empty in (("overview_page", "[]"), ("hlo_stats", "{}"), ("smart_suggestion", "{}"))
        ]
    sys.stdout.write("".join(f"{line}\n" for line in summary_lines(*tables)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))


DESCRIPTION = f"""Writes a profile of the next steps of a running run, for XProf and TensorBoard: what the host and the
cores did, by operation. The run continues; it takes the profile between two steps, with the profiler of torch_xla or
JAX, in its first training process, and ends it early after {TRACE_SECONDS_MAX:g} s. The files are written to
traces/step-N/ in the run directory, N being the first step. Of several hosts, each profiles the same steps; those
after the first write to traces/step-N-host-I/ in their own run directory. With the package xprof installed, the
summary is printed too."""
EXIT_CODES = exit_codes(
    DONE="written",
    UNANSWERED="no receipt within --wait; the request remains pending",
    USAGE="no such run, the run has already ended, or it refused the request",
)
WAIT_S = TRACE_SECONDS_MAX + 60.0


def _add_arguments(parser: Parser) -> None:
    add_run_argument(parser)
    add_hosts_option(parser)
    parser.add_option(
        "--steps",
        type=positive_int,
        default=TRACE_STEPS_DEFAULT,
        metavar="N",
        help=f"steps to profile, at most {TRACE_STEPS_MAX} (default {TRACE_STEPS_DEFAULT})",
    )
    parser.add_option(
        "--wait", type=seconds, default=WAIT_S, metavar="S", help=f"seconds to wait for it (default {WAIT_S:g})"
    )


def _trace(args: argparse.Namespace) -> ExitCode:
    run_dir = chosen_run(args)
    code, applied = request_and_wait(run_dir, "trace", by="tputui trace", wait_s=args.wait, steps=args.steps)
    if applied is None or applied.path is None:
        return code
    folder = (run_dir / applied.path).resolve()
    if not folder.is_relative_to(run_dir.resolve()):
        narrate(f"{fmt.inert(applied.path)} is not in the run directory; nothing in it was read")
        return code
    if not folder.is_dir():
        links = link.read(run_dir)
        command = links.copy_command(applied.path) if links is not None else None
        hint = f"; to copy it: {command}" if command is not None else ""
        narrate(f"the profile is on the host that wrote it, in {fmt.inert(applied.path)} of its run directory{hint}")
        return code
    say(f"to open it: xprof --logdir {shlex.quote(fmt.inert(str(folder)))}")
    try:
        lines = read(folder)
    except NoSummaryError as error:
        narrate(f"no summary: {error}")
    else:
        say("\n".join(lines))
    return code


COMMANDS = {"trace": Command(DESCRIPTION, EXIT_CODES, _add_arguments, _trace)}
