"""Alerts of real runs of a user's command: conditions, targets, retries, secrets, and wrong configurations."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.helpers import CommandResult, one_sentence, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in
from tests.ui.test_terminal import Terminal
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.telemetry import rundir

SECRET = "zq81hTTw77KpLx92mmVd"
TRAIN = """
import csv, os, sys, time
with open("metrics.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["step", "loss", "val_loss"])
    for step in range(1, 31):
        writer.writerow([step, 1 / step, 4.0 if step > 5 else 1.0])
        file.flush()
        time.sleep(0.02)
# It trains until the first alert was delivered.
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


class Hook(HTTPServer):
    """A webhook on the loopback interface that answers its first requests with an error."""

    def __init__(self, refusals: int = 0, code: int = 503) -> None:
        self.refusals = refusals
        self.code = code
        self.received: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def address(self) -> str:
        """Its address, with a secret in the path."""
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"

    def close(self) -> None:
        """Stops it."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        refused = self.server.refusals > 0
        self.server.refusals -= 1
        if not refused:
            self.server.received.append({"path": self.path, **json.loads(body)})
        self.send_response(self.server.code if refused else 204, f"no {SECRET}" if refused else None)
        if refused and 300 <= self.server.code < 400:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook(refusals=1)
    yield server
    server.close()


def run(folder: Path, *words: str, **env: str) -> CommandResult:
    return tputui("--runs-dir", folder / "runs", "run", "--no-ui", "--name", "a", *words, cwd=folder, **env)


def test_alerts_are_raised_retried_and_delivered_without_a_viewer_or_a_secret(tmp_path: Path, hook: Hook) -> None:
    out = tmp_path / "alerts.txt"
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "train.toml").write_text(
        f"""
[script]
command = [{json.dumps(sys.executable)}, "train.py", {json.dumps(str(out))}]

[alerts]
on = ["valid.loss > 3", "failed"]
targets = ["env:ALERT_URL"]
"""
    )
    result = run(
        tmp_path, "--alert", "done", "--alert-to", f"command:sh -c 'echo \"$TPUTUI_ALERT\" >> {out}'", "train.toml",
        ALERT_URL=hook.address,
    )  # fmt: skip
    assert result.code == 0, result.err
    run_dir = tmp_path / "runs" / "a"

    raised = events_in(run_dir, "supervisor-0", ev.AlertRaised)
    assert [event.condition for event in raised] == ["valid.loss > 3", "done"]
    assert [(one["path"], one["condition"], one["state"]) for one in hook.received] == [
        (f"/{SECRET}", "valid.loss > 3", "running"),
        (f"/{SECRET}", "done", "done"),
    ]
    first = hook.received[0]
    assert (first["run"], first["run_dir"], first["metrics"]["valid.loss"]) == ("a", str(run_dir), 4.0)
    assert first["text"].startswith("a: valid.loss > 3 (valid.loss 4.0")
    assert first["text"] in result.out
    delivered = events_in(run_dir, "supervisor-0", ev.AlertDelivered)
    by_webhook = {event.condition: event.attempts for event in delivered if event.target == "webhook"}
    assert by_webhook == {"valid.loss > 3": 2, "done": 1}
    assert out.read_text().splitlines() == [event.text for event in raised]

    snapshot = session.load(run_dir)
    assert [(alert.condition, sorted(alert.delivered)) for alert in snapshot.alerts] == [
        ("valid.loss > 3", ["command", "webhook"]),
        ("done", ["command", "webhook"]),
    ]
    assert any(mark.text.startswith("alert: a: valid.loss > 3") for mark in snapshot.marks)
    assert not [path for path in run_dir.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert SECRET not in result.out + result.err


def test_an_alert_on_a_metric_that_the_run_does_not_have_is_a_warning(tmp_path: Path) -> None:
    rows = "".join(f"{step},{1 / step},{'0.5' if step == 9 else ''}\\n" for step in range(1, 10))
    code = f"open('metrics.csv', 'w').write('step,loss,val_acc\\n{rows}')"
    alerts = ("--alert", "los > 3", "--alert", "valid.acc < 0", "--alert", "valid.bleu > 3 or failed")
    result = run(tmp_path, *alerts, "--", sys.executable, "-c", code)
    assert result.code == 0, result.err
    warnings = [event.text for event in events_in(tmp_path / "runs" / "a", "supervisor-0", ev.WarningRaised)]
    assert sorted(warning.replace(" yet", "").partition("; there are ")[0] for warning in warnings) == [
        "alert los > 3: no metric los (did you mean loss?)",
        "alert valid.bleu > 3 or failed: no metric valid.bleu",
    ]


def test_failing_target_is_reported_after_the_failure_of_the_command(tmp_path: Path) -> None:
    server = Hook(refusals=9, code=308)
    try:
        result = run(
            tmp_path, "--alert", "failed", "--alert", "done", "--alert-to", "env:ALERT_URL",
            "--", sys.executable, "-c", "raise SystemExit(9)", ALERT_URL=server.address,
        )  # fmt: skip
    finally:
        server.close()
    assert result.code == 3
    assert "warning: alert: a failed: the command exited with code 9" in result.out
    assert (
        "alert not delivered to webhook: failed: the server answered 308, a redirect, which is not followed"
        in result.out
    )
    assert server.received == []
    run_dir = tmp_path / "runs" / "a"
    (alert,) = session.load(run_dir).alerts
    assert (alert.condition, alert.failed, alert.delivered) == ("failed", ["webhook"], [])
    assert not [path for path in run_dir.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_test_alert_says_whether_it_was_delivered(hook: Hook) -> None:
    refused = tputui("alert", "test", "env:ALERT_URL", ALERT_URL=hook.address)
    assert refused.code == 6
    assert one_sentence(refused) == "tputui: not delivered to webhook: the server answered 503 no [redacted]"
    delivered = tputui("alert", "test", "env:ALERT_URL", ALERT_URL=hook.address)
    assert (delivered.code, delivered.out[:24], delivered.err) == (0, "delivered to webhook in ", "")
    assert [one["condition"] for one in hook.received] == ["test"]
    assert "stdout is not a terminal" in one_sentence(tputui("alert", "test", "bell"))


@pytest.mark.slow
def test_apprise_delivers_without_its_address_in_a_message(hook: Hook) -> None:
    pytest.importorskip("apprise")
    address = f"json://127.0.0.1:{hook.server_port}/{SECRET}"
    refused = tputui("alert", "test", "apprise:env:CHAT_URL", CHAT_URL=address)
    assert refused.code == 6
    assert "not delivered to apprise: apprise reported that the alert was not sent" in refused.err
    assert SECRET not in refused.err
    delivered = tputui("alert", "test", "apprise:env:CHAT_URL", CHAT_URL=address)
    assert (delivered.code, delivered.out[:24]) == (0, "delivered to apprise in ")
    assert [(one["title"], one["message"][:20]) for one in hook.received] == [("tputui test", "test alert of tputui")]
    unknown = tputui("alert", "test", "apprise:env:CHAT_URL", CHAT_URL=f"nothing://{SECRET}")
    assert unknown.code == 6
    assert "apprise does not know this kind of address" in unknown.err
    assert SECRET not in unknown.err


def test_alert_rings_the_terminals_that_show_the_run(tmp_path: Path) -> None:
    base = [sys.executable, "-P", "-m", "tputui", "--runs-dir", str(tmp_path)]
    started = [*base, "run", "--alert", "done", "--name"]
    text = b"done: the command exited with code 0 (step 0)"
    until = 'until [ -e "$0" ]; do sleep 0.05; done'
    lines = Terminal([*started, "a", "--no-ui", "--", "sh", "-c", until, str(tmp_path / "end-a")])
    lines.until(lambda shown: b"run a" in shown)
    (tmp_path / "end-a").touch()
    lines.until(lambda shown: b"run done" in shown)
    assert lines.shown.count(b"\x07\x1b]9;tputui: a " + text + b"\x07\x1b]777;notify;tputui;a " + text + b"\x07") == 1
    screen = Terminal([*started, "b", "--", "sh", "-c", until, str(tmp_path / "end-b")])
    screen.until(lambda shown: b"RUNNING" in shown)
    (tmp_path / "end-b").touch()
    screen.until(lambda shown: b"\x07\x1b]9;tputui: b " + text in shown and b"alert: b done" in shown)
    # A recording is silent.
    replay = Terminal([*base, "replay", str(tmp_path / "b"), "--no-ui"])
    replay.until(lambda shown: b"run done" in shown)
    assert b"\x07" not in replay.shown
    for terminal in (lines, screen, replay):
        terminal.close()
        terminal.program.wait(DEADLINE_S)


@pytest.mark.parametrize(
    ("alerts", "words", "sentence"),
    [
        ('on = ["vlaid loss"]', [], 'train.toml: alerts.on[0]: "vlaid" is neither a state'),
        ('on = ["done"]\ntargets = ["bell", "slack"]', [], 'train.toml: alerts.targets[1]: "slack" is not a target'),
        ('targets = ["env:NO_SUCH_URL"]', [], "train.toml: alerts.targets[0]: the environment variable NO_SUCH_URL"),
        ('targets = ["command:no-such-program-x"]', [], "train.toml: alerts.targets[0]: the program"),
        (f'targets = ["https://example.com/{SECRET}"]', [], "train.toml: alerts.targets[0]: this looks like a secret"),
        ('when = ["done"]', [], 'train.toml: [alerts] has no key "when"'),
        ("on = 3", [], "train.toml: alerts.on: expected `array`"),
        ("", ["--set", 'alerts.on=["x y"]'], '--set alerts.on=["x y"]: alerts.on[0]: "x" is neither'),
        ("", ["--alert", "loss >"], "argument --alert: the condition ends where a number is expected"),
        ("", ["--alert-to", f"https://example.com/{SECRET}"], "argument --alert-to: this looks like a secret"),
    ],
)
def test_wrong_alerts_are_one_sentence_before_the_start(
    tmp_path: Path, alerts: str, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from tputui.cli.main import main

    path = tmp_path / "train.toml"
    path.write_text(f'[script]\ncommand = ["true"]\n\n[alerts]\n{alerts}\n')
    assert main(["--runs-dir", str(tmp_path / "runs"), "run", *words, str(path)]) == 2
    error = capsys.readouterr().err
    assert sentence in error.replace(f"{tmp_path}/", "")
    assert len(error.splitlines()) == 1
    assert SECRET not in error
    assert not (tmp_path / "runs").exists() or rundir.listing(tmp_path / "runs") == []
