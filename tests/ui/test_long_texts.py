"""Texts of a megabyte in every field of every event: runs are untrusted, and no screen may freeze."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tests import recorded
from tests.ui.compared import Bench
from tests.ui.driving import AppPilot, drive, monitor, text
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry.codec import decode
from tputui.ui.app import ScreenApp
from tputui.ui.render.lines import clean, wrap
from tputui.ui.runs.screen import RunsScreen

TEXTS = {
    "a word": "x" * 1_000_000,
    "lines": "a line of text \n" * 65_000,
    "wide characters": "\u6f22" * 330_000,
    "combining characters": "e\u0301" * 330_000,
    "escape sequences": "\x1b]" * 500_000 + "\nx",
}
FRAME_CPU_S = 1.0
SLOWER_MAX = 5.0
"""How many times the processor time of the same frame with short texts a frame may take on a busy machine."""
KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "W", "d", "e", "t", "T", "h", "s", "i", "m", "p", "v"]
"""Keys of the monitor that open panels, lists and dialogs."""


def filled(hint: Any, long: str) -> Any:
    """A value of a type in which every text is a long one."""
    origin, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = get_type_hints(hint)
        return hint(**{name: filled(hints[name], long) for name in hint.__struct_fields__})
    if hint in (float, int, bool):
        return hint(1)
    if hint in (str, Any):
        return long
    if origin is list:
        return [filled(args[0], long)]
    if origin is dict:
        return {long: filled(args[1], long)}
    if str(origin) == "typing.Literal":
        return args[0]
    return filled(next(each for each in args if each is not type(None)), long)


def long_run(parent: Path, long: str) -> Path:
    """A recorded run whose journals also have an event of each type with long texts."""
    run_dir = recorded.write_run(parent)
    kinds = [kind for kind in ev.EVENT_TYPES if kind not in (ev.JournalOpened, ev.StepsRecorded)]
    extra = [msgspec.structs.replace(filled(kind, long), t=recorded.T0 + 6) for kind in kinds]
    path = run_dir / "worker-0.jsonl"
    events = [numbered.event for numbered in map(decode, path.read_bytes().splitlines())]
    path.unlink()
    recorded.write_journal(path, [*events[:-1], *extra, events[-1]])
    manifest = msgspec.structs.replace(recorded.manifest(), config_path=long, argv=[long], config={"task": long})
    (run_dir / "run.json").write_bytes(msgspec.json.encode(manifest))
    return run_dir


def cpu_of_frames(parent: Path, long: str) -> dict[str, float]:
    """Processor time of the frames after each key, on three screens that show a run with these texts."""
    parent.mkdir()
    run_dir = long_run(parent, long)
    snapshot = session.load(run_dir)
    seconds: dict[str, float] = {}

    async def draw(pilot: AppPilot, name: str, *keys: str) -> None:
        began = time.thread_time()
        await pilot.press(*keys)
        await pilot.pause()
        assert text(pilot.app.screen)
        seconds[name] = time.thread_time() - began

    async def panels(pilot: AppPilot) -> None:
        for key in KEYS:
            await draw(pilot, key, key)
            await draw(pilot, f"after {key}", "escape")

    async def first(pilot: AppPilot) -> None:
        await draw(pilot, type(pilot.app.screen).__name__, "down")

    drive(monitor(snapshot, run_dir=run_dir), panels)
    drive(ScreenApp(lambda: RunsScreen(parent)), first)
    Bench([snapshot, msgspec.structs.replace(snapshot, dir="/runs/another")]).drive(first)
    return seconds


@pytest.mark.parametrize(
    "long",
    [
        pytest.param(long, marks=[] if name in ("a word", "wide characters") else pytest.mark.slow, id=name)
        for name, long in TEXTS.items()
    ],
)
def test_no_frame_takes_a_second_of_cpu(tmp_path: Path, long: str) -> None:
    seconds = cpu_of_frames(tmp_path / "long", long)
    if max(seconds.values()) > FRAME_CPU_S:
        # A busy machine counts more processor time for the same work: they are drawn again, and with short texts.
        again, short = cpu_of_frames(tmp_path / "again", long), cpu_of_frames(tmp_path / "short", "x")
        limits = {name: max(FRAME_CPU_S, SLOWER_MAX * each) for name, each in short.items()}
        seconds = {name: each for name, each in seconds.items() if min(each, again[name]) > limits[name]}
        assert {name: (each, again[name], short[name]) for name, each in seconds.items()} == {}


@pytest.mark.parametrize("long", TEXTS.values(), ids=TEXTS)
def test_long_texts_are_wrapped_without_loss_as_far_as_they_are_shown(long: str) -> None:
    shown = clean(long)
    rows = wrap(shown, 80, 20)
    assert all(shown.count(row) for row in rows)
    assert shown.replace(" ", "").startswith("".join(rows).replace(" ", ""))
    assert rows == wrap(shown[:10_000], 80, 20)
    assert len(wrap(shown, 80)) <= 501
