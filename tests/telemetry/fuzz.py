"""The fuzzer of the reader: `python -m tests.telemetry.fuzz --seconds 600 --seed 1`.

Opens one hostile run after the other as every view does. A run that raises, takes longer than it may, or more memory,
ends it with the seed that makes the same run again. `tests/telemetry/test_fuzz.py` runs a few.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec

from tests.telemetry.hostile import hostile_run
from tputui.cli.main import main as command
from tputui.cli.replay import AT_ONCE
from tputui.exit_codes import ExitCode
from tputui.report.card import card
from tputui.report.page import page
from tputui.session import session
from tputui.text import show_page
from tputui.text.lines import LineWriter, QuietWriter, follow
from tputui.text.prometheus import exposition

RUN_SECONDS_MAX = 15.0
"""Maximum seconds to open a hostile run of a few megabytes in all views; most take 0.2 s."""
MEMORY_BYTES_MAX = 2 << 30
"""Address space of the process of the fuzzer, interpreter and libraries included."""
HTML_CHARS_MAX = 10_000_000
SOUND_CODES = {ExitCode.DONE, ExitCode.DAMAGED, ExitCode.USAGE}


class Finding(Exception):
    """A hostile run caused an error."""


class TooLong(BaseException):
    """A view took too long; no `except` of the views may catch it."""


def view_all(run_dir: Path) -> None:
    """Opens a run in every view. Raises the errors of the views."""
    snapshot = session.load(run_dir, clock=lambda: 1_760_000_100.0)
    text = show_page.show_text(snapshot)
    if "\x1b" in text or "\x9b" in text:
        raise Finding("show prints an escape sequence")
    msgspec.json.encode(show_page.to_show(snapshot, whole=True))
    _check_html(page(snapshot, "0"))
    _check_html(card(snapshot))
    if "\x1b" in exposition(snapshot):
        raise Finding("Prometheus' text has an escape sequence")
    reach = session.extent(run_dir)
    for share in (0.0, 0.3, 0.9, 1.0):
        session.load_at(run_dir, reach.start + share * (reach.end - reach.start))
    for writer in (LineWriter(), QuietWriter()):
        source = session.Session.replay(run_dir, speed=AT_ONCE)
        try:
            follow(source, io.StringIO(), as_json=False, writer=writer)
        finally:
            source.close()
    for arguments in (["check", str(run_dir)], ["check", "--json", str(run_dir)], ["repair", str(run_dir)]):
        _command(arguments)
    _command(["--runs-dir", str(run_dir.parent), "runs"])
    _command(["compare", str(run_dir), str(run_dir), "--once"])
    _command(["replay", str(run_dir), "--at", "end", "--once"])
    _check_the_copy(run_dir.with_name(f"{run_dir.name}-repaired"))


def _check_html(html: str) -> None:
    """Checks that HTML is well-formed, bounded and without numbers that are none in its drawings."""
    ET.fromstring(html.removeprefix("<!DOCTYPE html>"))
    if len(html) > HTML_CHARS_MAX or re.search(r' d="[^"]*(nan|inf)', html):
        raise Finding("the HTML is too long, or draws a number that is not finite")


def _check_the_copy(copy: Path) -> None:
    """Checks that a repaired run has no damage except missing events."""
    if not copy.exists():
        return
    checked = json.loads(_command(["check", "--json", str(copy)]))
    damaged = [region for region in checked["regions"] if region["end"] > region["start"]]
    if damaged:
        raise Finding(f"the repaired copy is damaged: {damaged[:3]}")


def _command(arguments: list[str]) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(arguments)
    if code not in SOUND_CODES:
        raise Finding(f"{arguments[0]} exits with {code}: {err.getvalue()}")
    if "\x1b" in out.getvalue() + err.getvalue():
        raise Finding(f"{arguments[0]} prints an escape sequence")
    return out.getvalue()


def try_seed(seed: int, folder: Path) -> float:
    """Makes the hostile run of a seed and opens it; returns the seconds it took. Raises `Finding`."""
    parent = folder / str(seed)
    parent.mkdir()
    try:
        run_dir = hostile_run(parent, seed)
        began = time.monotonic()
        signal.signal(signal.SIGALRM, _too_long)
        signal.setitimer(signal.ITIMER_REAL, RUN_SECONDS_MAX)
        try:
            view_all(run_dir)
        except Finding as found:
            raise Finding(f"seed {seed}: {found}") from None
        except (Exception, TooLong):
            raise Finding(f"seed {seed}:\n{traceback.format_exc(limit=-12)}") from None
        return time.monotonic() - began
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        shutil.rmtree(parent, ignore_errors=True)


def _too_long(number: int, frame: object) -> None:
    raise TooLong(f"{RUN_SECONDS_MAX:g} s were not enough")


def main() -> int:
    """Runs until the time is over; prints every finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="store_true", help="that seed alone")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    began, seed, findings, slowest = time.monotonic(), args.seed, 0, (0.0, 0)
    with tempfile.TemporaryDirectory() as folder:
        while True:
            try:
                slowest = max(slowest, (try_seed(seed, Path(folder)), seed))
            except Finding as found:
                findings += 1
                sys.stdout.write(f"{found}\n")
                sys.stdout.flush()
            seed += 1
            if args.only or time.monotonic() - began > args.seconds:
                break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"{seed - args.seed} runs from seed {args.seed} in {time.monotonic() - began:.0f} s: ")
    sys.stdout.write(f"{findings} findings; slowest {slowest[0]:.1f} s (seed {slowest[1]}), peak {peak} MiB\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
