"""XProf's summary of a profile as text. XProf runs in a process of its own: it is native code, and logs much.

`python -m tputui.cli.xprof_summary FILE` prints the lines.
"""

from __future__ import annotations

import html
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tputui import formatting as fmt

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
    found = [path.resolve() for path in sorted(folder.glob("plugins/profile/*/*.xplane.pb"))]
    files = [path for path in found if path.is_relative_to(folder.resolve()) and path.is_file()]
    if not files:
        raise NoSummaryError(f"no .xplane.pb file in {folder}")
    size = files[0].stat().st_size
    if size > FILE_BYTES_MAX:
        raise NoSummaryError(
            f"the profile has {fmt.size(size)}, more than {fmt.size(FILE_BYTES_MAX)}; open it in XProf"
        )
    command = [sys.executable, "-P", "-m", "tputui.cli.xprof_summary", str(files[0])]
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
    spent = {words: _number(facts.get(f"{name}_time_ms_avg")) for name, words in _PARTS.items()}
    parts = [f"{words} {value:g} ms" for words, value in spent.items() if value]
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
    used = [f"{words} {facts[name]}" for name, words in _UTILIZATION.items() if name in facts]
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
