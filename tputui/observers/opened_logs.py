"""Lists the log files that this process opens for writing, for the supervisor, which reads them.

A file that is opened, written and closed between two looks of the supervisor is not found from outside, unless it is in
a directory that is searched. An audit hook sees every `open` and changes nothing. Python cannot remove it, and calls
it for other events too, so it compares a string and returns; it takes no lock and starts no thread, so a forked process
may keep it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from tputui.logs.formats import is_log, opened_logs_name
from tputui.telemetry.rundir import host_id

PATHS_MAX = 4_096
_WRITABLE = os.O_WRONLY | os.O_RDWR
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_started: list[object] = []


def start(run_dir: str) -> None:
    """Lists the logs that this process opens from now on, in a file of the run; a second call does nothing."""
    if _started:
        return
    listing = os.path.join(run_dir, opened_logs_name(host_id()))
    own_prefix = f"{os.path.abspath(run_dir)}{os.sep}"
    listed: set[str] = set()

    def list_log(path: str | bytes | int) -> None:
        if isinstance(path, int) or not is_log(os.path.basename(os.fsdecode(path))):
            return
        absolute = os.path.abspath(os.fsdecode(path))
        if absolute in listed or len(listed) >= PATHS_MAX or absolute.startswith(own_prefix) or "\0" in absolute:
            return
        listed.add(absolute)
        file = os.open(listing, _APPENDING, 0o600)
        try:
            os.write(file, os.fsencode(absolute) + b"\0")
        finally:
            os.close(file)

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            try:
                if arguments[2] & _WRITABLE:
                    list_log(arguments[0])
            except Exception:  # noqa: BLE001, RUF100 - it would make the `open` of the program fail
                pass

    _started.append(on_event)
    sys.addaudithook(on_event)
