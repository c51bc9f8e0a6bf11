"""Runs are untrusted: paths in them are not opened outside, and escape sequences in them do not reach the terminal."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import recorded
from tests.cli.helpers import tputui
from tests.ui.compared import Bench
from tests.ui.driving import AppPilot, drive, monitor, text
from tputui import config
from tputui.cli.console import CommandError
from tputui.cli.launch import create_run
from tputui.cli.main import main
from tputui.formatting import inert
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry import rundir
from tputui.telemetry.codec import decode
from tputui.ui.app import ScreenApp
from tputui.ui.render.image_grid import Unshowable, locate
from tputui.ui.render.lines import clean
from tputui.ui.runs.screen import RunsScreen

ROOT = Path(__file__).parents[2]
EVIL = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;aGk=\x07\x9b31m\x90q\x9c\u202egpj\r\b\x00\u2066\u200b"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def with_hostile_texts(event: ev.Event) -> ev.Event:
    """The event with every text in it, at any depth, replaced, as far as its type allows any text there."""
    fields = msgspec.to_builtins(event)

    def replace_texts(inside: dict[Any, Any] | list[Any]) -> None:
        for key, value in list(inside.items() if isinstance(inside, dict) else enumerate(inside)):
            if isinstance(value, dict | list):
                replace_texts(value)
            elif isinstance(value, str) and key not in ("k", "block", "role"):
                inside[key] = f"{value}{EVIL}"
                try:
                    msgspec.convert(fields, type(event))
                except msgspec.ValidationError:
                    inside[key] = value

    replace_texts(fields)
    return msgspec.convert(fields, type(event))


def run_with_hostile_texts(parent: Path) -> Path:
    """A run with hostile text in every name and message."""
    config = {**recorded.CONFIG, f"key{EVIL}": f"value{EVIL}", "task": f"task{EVIL}"}
    manifest = msgspec.structs.replace(
        recorded.manifest(), config=config, config_path=f"a{EVIL}.toml", argv=[EVIL], cwd=EVIL, run=f"run{EVIL}"
    )
    run_dir = recorded.write_run(parent)
    (run_dir / "run.json").write_bytes(msgspec.json.encode(manifest))
    path = run_dir / "worker-0.jsonl"
    events = [numbered.event for numbered in map(decode, path.read_bytes().splitlines())]
    t = recorded.T0 + 6
    reading = recorded.reading([0.5])
    events = [with_hostile_texts(event) for event in events]
    events[-1:-1] = [
        ev.LogWritten(t=t, line=EVIL),
        ev.WarningRaised(t=t, text=EVIL),
        ev.UnknownEvent(t=t, kind=f"Kind{EVIL}", fields={EVIL: EVIL}),
        ev.MetersReported(t=t, epoch=3, step=66, split="train", meters={EVIL: reading}, reduced=EVIL),
        ev.CheckpointSaved(t=t, path=f"../../etc/{EVIL}", step=1, epoch=1, bytes=1, seconds=1.0, reason=EVIL),
        ev.PicturesKept(
            t=t, epoch=3, step=66, pictures=[ev.PictureKept(example=EVIL, name=EVIL, path=f"../{EVIL}.png")]
        ),
        ev.ExampleSkipped(t=t, split="train", where=EVIL, why=EVIL, skipped=1, limit=2),
        ev.RequestRefused(t=t, request=EVIL, kind="stop", why=EVIL),
        ev.MemorySampled(t=t, hbm=None, hbm_reason=EVIL),
        ev.FailureRaised(t=t, error=EVIL, message=EVIL, traceback=EVIL, phase="data", step=66),
        ev.TrainingEnded(t=t, outcome="failed", step=66, reason=EVIL),
    ]
    path.unlink()
    recorded.write_journal(path, events)
    supervisor = run_dir / "supervisor-0.jsonl"
    printed = [with_hostile_texts(numbered.event) for numbered in map(decode, supervisor.read_bytes().splitlines())]
    supervisor.unlink()
    printed[-1:-1] = [
        ev.MemorySampled(t=t, hbm=None, hbm_reason=EVIL),
        ev.DeviceSampled(t=t, cores=[], reason=f"{EVIL} of the TPU", absent=[EVIL]),
        ev.TraceWritten(t=t, path=f"../{EVIL}", step=1, steps=1, seconds=1.0, bytes=1),
        ev.CoreStatesRead(
            t=t,
            request="1",
            cores=[ev.CoreState(core=0, program=EVIL, hlo_location=EVIL, hlo=EVIL, error=EVIL)],
            reason=EVIL,
        ),
    ]
    recorded.write_journal(supervisor, printed)
    (run_dir / f"rank-{EVIL.replace(chr(0), '')}.jsonl").write_bytes(b"garbage")
    return run_dir


@pytest.mark.parametrize(
    "words",
    [
        ["show", "RUN"],
        ["show", "RUN", "--json"],
        ["runs"],
        ["runs", "--json"],
        ["check", "RUN"],
        ["check", "RUN", "--json"],
        ["repair", "RUN"],
        ["compare", "RUN", "COPY", "--once"],
        ["compare", "RUN", "COPY", "--json"],
        ["folds", "RUN", "COPY"],
        ["stacks", "RUN"],
        ["replay", "RUN", "--no-ui"],
        ["replay", "RUN", "--json"],
        ["replay", "RUN", "--once"],
        ["attach", "RUN", "--no-ui"],
        ["stop", "RUN"],
        ["show", f"no-such-run{EVIL}"],
        [f"no-such-command{EVIL}"],
    ],
    ids=" ".join,
)
def test_control_characters_of_a_run_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    run_dir = run_with_hostile_texts(tmp_path)
    places = {"RUN": run_dir, "COPY": shutil.copytree(run_dir, tmp_path / "copy") if "COPY" in words else None}
    main(["--runs-dir", str(tmp_path), *(str(places.get(word, word)) for word in words)])
    result = capsys.readouterr()
    assert result.out + result.err
    for line in (result.out + result.err).split("\n"):
        assert OBEYED.search(line) is None, repr(line)
    if "--json" in words and words[0] != "replay":
        json.loads(result.out)


def test_screens_escape_control_characters_of_a_run() -> None:
    assert OBEYED.search(inert(EVIL)) is None
    assert OBEYED.search(clean(EVIL)) is None


def test_live_screen_escapes_control_characters(tmp_path: Path) -> None:
    """The real screen in a real terminal: no escape sequence of the run is in its input."""
    run_dir = run_with_hostile_texts(tmp_path)
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="160", LINES="45", XDG_STATE_HOME=str(tmp_path / "state"))
        os.execv(sys.executable, [sys.executable, "-P", "-m", "tputui", "replay", str(run_dir), "--at", "end"])
    sent = b""
    try:
        while b"at the end" not in sent:
            sent += os.read(fd, 65_536)
        os.write(fd, b"q")
    finally:
        os.close(fd)
        os.waitpid(pid, 0)
    for sequence in (b"\x1b]0;owned", b"\x1b]52;", b"\xc2\x9b31m", b"\xc2\x90", "\u202e".encode(), b"\x1b[2J\x1b]"):
        assert sequence not in sent


def test_drawn_screens_have_no_control_characters(tmp_path: Path) -> None:
    """The screen of a run, the list of runs and the comparison, with every text of the run hostile."""
    run_dir = run_with_hostile_texts(tmp_path)
    copy = shutil.copytree(run_dir, tmp_path / "copy")
    snapshots = [session.load(path) for path in (run_dir, copy)]
    seen: list[str] = []

    async def script(pilot: AppPilot) -> None:
        await pilot.pause()
        seen.append(text(pilot.app.screen))

    drive(monitor(snapshots[0], run_dir=run_dir), script, size=(200, 60))
    drive(ScreenApp(lambda: RunsScreen(tmp_path)), script, size=(200, 60))
    Bench(snapshots).drive(script, size=(200, 60))
    assert len(seen) == 3
    assert all("8 CPU" in drawn for drawn in (seen[0], seen[2]))
    for drawn in seen:
        assert OBEYED.search(drawn.replace("\n", "")) is None


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../../etc/passwd", "pictures/../../../etc/passwd", "pictures/stolen.png", "a\x00b", "", ".."],
)
def test_pictures_outside_the_run_are_never_opened(tmp_path: Path, path: str) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "pictures").mkdir()
    (run_dir / "pictures" / "stolen.png").symlink_to("/etc/passwd")
    with pytest.raises(Unshowable):
        locate(run_dir, path)


def test_no_command_opens_a_checkpoint_that_a_journal_names(tmp_path: Path) -> None:
    """Checkpoints are found by their fixed names in the run's own folder: the path in a record is only shown."""
    run_dir = recorded.write_run(tmp_path)
    path = run_dir / "worker-0.jsonl"
    events = [numbered.event for numbered in map(decode, path.read_bytes().splitlines())]
    saved = ev.CheckpointSaved(t=recorded.T0 + 6, path="/etc/passwd", step=1, epoch=1, bytes=1, seconds=1.0, reason="x")
    path.unlink()
    recorded.write_journal(path, [*events[:-1], saved, events[-1]])
    result = tputui("run", "--resume", run_dir, "--runs-dir", tmp_path, cwd=tmp_path)
    assert result.code == 2
    assert "passwd" not in result.err + result.out


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/b", "..", ".", ".hidden", "a\x1b[2J", "a b", "x" * 200, ""]
)
def test_run_name_is_not_a_path(name: str) -> None:
    assert not rundir.is_name(name)


SOURCES = sorted([*(ROOT / "tputui").rglob("*.py"), *(ROOT / "engine").rglob("*.py")])
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    """Every call in a module, by the dotted name of the function."""
    tree = ast.parse(path.read_text())
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def given(call: ast.Call, name: str) -> str | None:
    """The source of a keyword argument; None if it is absent."""
    return next((ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == name), None)


def test_nothing_is_unpickled_or_executed() -> None:
    loads: list[str] = []
    for path in SOURCES:
        for name, call in calls(path):
            where = f"{path.relative_to(ROOT)}:{call.lineno}: {name}"
            assert name.partition(".")[0] not in UNSAFE_MODULES, where
            assert name not in UNSAFE_CALLS, where
            if name == "torch.load":
                loads.append(where)
                assert given(call, "weights_only") == "True", where
            if name in ("np.load", "numpy.load"):
                assert given(call, "allow_pickle") in (None, "False"), where
    assert len(loads) >= 2


@pytest.mark.parametrize("key", ["data.path", "data.inner.api_key"])
def test_config_with_secret_is_rejected_before_start(tmp_path: Path, key: str) -> None:
    values = {"data.path": "https://me:hunter2@host/train.csv", "data.inner.api_key": "hunter2"}
    text = f'task = "digits"\nepochs = 1\ndata.batch_per_core = 8\n{key} = "{values[key]}"\n'
    loaded = config.parse(text, "a.toml")
    with pytest.raises(CommandError, match=re.escape(key)) as refused:
        create_run(tmp_path / "runs", loaded, config_path="a.toml", name=None, resume=None, argv=["tputui"])
    assert "hunter2" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
