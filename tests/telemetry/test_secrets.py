"""What looks like a secret is masked, what does not is left as it is, and neither takes long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import recorded
from tests.telemetry.test_journal import read_all
from tputui.telemetry import events as ev
from tputui.telemetry import rundir, secrets
from tputui.telemetry.reporter import Reporter
from tputui.telemetry.secrets import MASK

DRAWN = "a8f7e6d5c4b3a2918"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "x"),
        ("db_password", "hunter2"),
        ("data.apiKey", "x"),
        ("API_KEY", "x"),
        ("--api-key", "x"),
        ("aws_secret_access_key", "x"),
        ("client_secret", "x"),
        ("credentials", "/home/me/key.json"),
        ("token", DRAWN),
        ("data.hf_token", DRAWN),
        ("tokens.auth", DRAWN),
        ("key", DRAWN),
        ("anything", "hf_AbCdEfGhIjKlMnOpQrSt"),
        ("anything", "ghp_AbCdEfGhIjKlMnOpQrStUv"),
        ("anything", "AKIAABCDEFGHIJKLMNOP"),
        ("anything", "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"),
        ("anything", "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"),
        ("path", "https://me:hunter2@host/data"),
        ("path", f"https://{DRAWN}@host/data"),
        ("path", "s3://bucket/x?X-Amz-Signature=dead"),
    ],
)
def test_a_secret_in_a_configuration_is_named_and_masked(name: str, value: str) -> None:
    config = {"data": {"inner": [{name: value}]}}
    assert secrets.secret_keys(config) == [f"data.inner[0].{name}"]
    assert MASK in str(secrets.masked(config))
    assert "hunter2" not in str(secrets.masked(config))
    assert DRAWN not in str(secrets.masked(config))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pad_token", "<pad>"),
        ("token", "[MASK]"),
        ("max_tokens", "51200000000000000a1b2"),
        ("tokenizer", "bert-base-uncased-2024-x1"),
        ("key", "image_id"),
        ("label_key", "diagnosis_code_2019"),
        ("secret_column", "x"),
        ("monitor", "loss"),
        ("path", "/data/isic/2019/train_images/a1b2c3d4e5f6"),
        ("path", "https://host/data?page=3"),
        ("path", "ssh://git@host/x"),
        ("password", ""),
    ],
)
def test_what_is_no_secret_is_left_as_it_is(name: str, value: str) -> None:
    config = {name: value, "epochs": 3, "lr": 0.1, "seal": True, "none": None}
    assert secrets.secret_keys(config) == []
    assert secrets.masked(config) == config


def test_the_sample_configurations_hold_no_secret() -> None:
    assert secrets.secret_keys(recorded.CONFIG) == []


def test_a_command_line_is_masked_in_every_form() -> None:
    words = ["tputui", "run", "x.toml", "--set", "data.password=abc", "--api-key", "zzz", "--token", DRAWN]
    words += ["PASSWORD=abc", "https://u:p@h/x", "--set", "optim.lr=0.1", "--name", "token"]
    told = secrets.masked_argv(words)
    assert told == [
        *("tputui", "run", "x.toml", "--set", f"data.password={MASK}", "--api-key", MASK, "--token", MASK),
        *(f"PASSWORD={MASK}", f"https://{MASK}@h/x", "--set", "optim.lr=0.1", "--name", "token"),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("logging in with password=hunter2 now", f"logging in with password={MASK} now"),
        ("password: hunter2", f"password: {MASK}"),
        ("API_KEY='hunter2' python", f"API_KEY='{MASK}' python"),
        ("Authorization: Bearer abcdefghijklmnopqrst", f"Authorization: {MASK} {MASK}"),
        ("GET https://h/p?access_token=hunter2&x=1", f"GET https://h/p?access_token={MASK}&x=1"),
        ("postgres://u:hunter2@h:5/d", f"postgres://{MASK}@h:5/d"),
        ("KeyError: 'password'", "KeyError: 'password'"),
        ("epoch 3 tokens=5123 loss: 0.5, key=4", "epoch 3 tokens=5123 loss: 0.5, key=4"),
    ],
)
def test_running_text_is_masked_where_it_tells_a_secret(text: str, shown: str) -> None:
    assert secrets.masked_text(text) == shown


@given(st.text(max_size=300))
def test_any_text_is_masked_once_and_for_all(text: str) -> None:
    once = secrets.masked_text(text)
    assert secrets.masked_text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "token a",
        "a://",
        "://a.",
        "key a=b ",
        "-----BEGIN PRIVATE KEY-----",
        "eyJa",
        "eyJaaaaaaaa.",
        "token_",
        "?aa",
        "A-=",
    ],
)
def test_no_text_takes_long(piece: str) -> None:
    text = "key sk- " + piece * (200_000 // len(piece))
    began = time.monotonic()
    secrets.masked_text(text)
    assert time.monotonic() - began < 5


def test_no_secret_gets_into_manifest_or_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["train.py", "--password", "hunter2"]
    config = {"wandb": {"api_key": "hunter2"}, "url": "https://me:hunter2@host"}
    manifest = rundir.Manifest(
        run="a", created=1.0, version="1", config_path="train.py", config=config, argv=argv, cwd="/home/user"
    )
    with monkeypatch.context() as environment:
        environment.setenv("HF_TOKEN", "hf_hunter2hunter2hunter2")
        run_dir = rundir.create(tmp_path, manifest)
        reporter = Reporter(run_dir, "worker")
    reporter.emit(ev.RunStarted(t=1.0, run="a", config=config, argv=argv))
    reporter.emit(ev.WorkerStarted(t=1.0, pid=1, argv=argv))
    reporter.emit(ev.LogWritten(t=1.0, line="password=hunter2"))
    reporter.emit(ev.WarningRaised(t=1.0, text="https://me:hunter2@host is slow"))
    why = "401 for https://me:hunter2@host"
    reporter.emit(ev.FailureRaised(t=1.0, error="E", message=why, traceback="password='hunter2'", phase="data", step=1))
    reporter.emit(ev.TrainingEnded(t=1.0, outcome="failed", step=1, reason=why))
    reporter.emit(ev.RunEnded(t=1.0, outcome="failed", exit_code=3, reason=why))
    assert reporter.close()
    records, damage = read_all(run_dir / "worker-0.jsonl")
    assert (len(records), damage) == (8, [])
    for path in run_dir.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path
