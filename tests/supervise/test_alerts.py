"""Hysteresis of alerts, targets, and their deliveries, without a run."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from threading import Event

import pytest

from tests.supervise.harness import wait_for
from tputui.state import conditions
from tputui.supervise import alerts
from tputui.supervise.alerts import (
    REARM_S,
    AlertDelivery,
    AlertMessage,
    DeliveryError,
    InvalidTarget,
    Target,
    Trigger,
    parse,
)
from tputui.telemetry import events as ev

MESSAGE = AlertMessage(
    t=1.0,
    run="digits-1",
    run_dir="/runs/digits-1",
    host="vm",
    condition="valid.loss > 3",
    text="digits-1: valid.loss > 3; `touch pwned` $(touch pwned)",
    state="running",
    step=7,
    epoch=1,
    metrics={"valid.loss": math.nan},
)


def test_condition_raises_once_and_is_armed_again_after_a_minute() -> None:
    trigger = Trigger(conditions.parse("stalled"))
    assert [trigger.check(holds, tick) for tick, holds in [(0, False), (1, True), (2, True), (500, True)]] == [
        False,
        True,
        False,
        False,
    ]
    # A value that swings around its limit raises no further alert ...
    assert not any(trigger.check(tick % 2 == 0, 501.0 + tick) for tick in range(200))
    # ... until it has not held for a whole minute.
    assert not trigger.check(True, 720.0)
    assert [trigger.check(False, 800.0), trigger.check(True, 800.0 + REARM_S - 1)] == [False, False]
    assert [trigger.check(False, 900.0), trigger.check(True, 900.0 + REARM_S)] == [False, True]


def test_targets() -> None:
    assert parse("bell") == Target("bell")
    assert parse('command:notify-send "a b" $TPUTUI_ALERT').words == ("notify-send", "a b", "$TPUTUI_ALERT")
    assert parse("https://hooks.example.com/x").words == ("https://hooks.example.com/x",)
    assert parse("env:ALERT_URL") == Target("webhook", variable="ALERT_URL")
    assert parse("apprise:env:SLACK_URL") == Target("apprise", variable="SLACK_URL")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bel", '"bel" is not a target; targets are bell, command:'),
        ("command:", "needs a program"),
        ("command:echo 'x", "no closing quotation"),
        ("https://", "is not a valid address"),
        ("env:", "name of an environment variable"),
        ("ftp://example.com/x", "is not a target"),
        ("apprise:slack://example", "apprise:env:NAME"),
    ],
)
def test_invalid_targets_say_why(text: str, why: str) -> None:
    with pytest.raises(InvalidTarget) as raised:
        parse(text)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "secret",
    [
        "https://user:hunter22@example.com/x",
        "https://example.com/x?token=abcdef",
        "https://hooks.example.com/services/T01ABCDE/B01ABCDE/a1b2c3d4e5f6a7b8c9d0e1f2",
        "https://api.example.com/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/send",
        "command:curl -H 'Authorization: Bearer a1b2c3d4e5f6a7b8c9d0'",
    ],
)
def test_targets_with_secrets_are_refused_without_repeating_them(secret: str) -> None:
    with pytest.raises(InvalidTarget, match="looks like a secret") as raised:
        parse(secret)
    assert "env:NAME" in str(raised.value)
    assert not any(part in str(raised.value) for part in ("hunter22", "abcdef", "a1b2c3", "AAHdq"))


def test_command_gets_the_alert_as_words_and_variables_and_no_shell_reads_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"import os, sys; open({str(out)!r}, 'w').write(sys.argv[1] + '|' + os.environ['TPUTUI_ALERT_STATE'])"
    code += "; print('password=hunter22x')"
    target = Target("command", (sys.executable, "-c", code, "${TPUTUI_ALERT}"))
    log: list[str] = []
    target.deliver(MESSAGE, {**os.environ, "TPUTUI_RUN_DIR": "/elsewhere"}, log.append, Event())
    assert out.read_text() == f"{MESSAGE.text}|running"
    assert log == ["password=[redacted]"]


def test_command_that_fails_or_hangs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for words, limit_s, why in (
        (("sh", "-c", "echo no such user; exit 3"), 120.0, "exit code 3: no such user"),
        (("sleep", "60"), 0.2, "did not end within 0.2 s and was killed"),
        (("no-such-program-x",), 120.0, '"no-such-program-x" is not in PATH'),
    ):
        monkeypatch.setattr(alerts, "COMMAND_TIMEOUT_S", limit_s)
        with pytest.raises(DeliveryError) as raised:
            Target("command", words).deliver(MESSAGE, os.environ, lambda _: None, Event())
        assert why in str(raised.value)


def test_target_that_hangs_delays_nothing_and_is_given_up_at_the_end() -> None:
    delivery = AlertDelivery([Target("command", ("sleep", "60")), Target("command", ("true",))], os.environ, print)
    for _ in range(alerts.PENDING_MAX + 3):
        delivery.send(MESSAGE)
    results: list[ev.AlertDelivered | ev.AlertFailed] = []

    def was_delivered() -> bool:
        results.extend(delivery.results())
        return any(isinstance(result, ev.AlertDelivered) for result in results)

    wait_for(was_delivered, "a delivery to the other target")
    results += delivery.finish(1.0)
    failed = [result for result in results if isinstance(result, ev.AlertFailed)]
    assert {result.why.partition(" after")[0] for result in failed} >= {"not delivered within 1 s"}
    assert any("already waiting" in result.why for result in failed)
    assert len(results) == 2 * (alerts.PENDING_MAX + 3)
    delivered = [result for result in results if isinstance(result, ev.AlertDelivered)]
    assert delivered, "an attempt of the other target takes 60 s"


def test_payload_of_a_webhook() -> None:
    assert MESSAGE.payload().startswith(b'{"version":1,"t":1.0,"run":"digits-1"')
    assert b'"metrics":{"valid.loss":"NaN"}' in MESSAGE.payload()
