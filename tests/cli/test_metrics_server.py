"""`tputui serve --metrics`: the values of a run in Prometheus' format, on loopback, behind a token."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests import recorded
from tests.cli.helpers import one_sentence, tputui
from tests.deadline import DEADLINE_S
from tputui.cli.metrics_server import MetricsServer, listen
from tputui.session import session
from tputui.telemetry import events as ev
from tputui.text.prometheus import exposition

parser = pytest.importorskip("prometheus_client.parser")
Labels = tuple[tuple[str, str], ...]


class Served(NamedTuple):
    """A running server."""

    address: str
    run_dir: Path
    process: subprocess.Popen[str]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    run_dir = recorded.write_run(tmp_path)
    command = [sys.executable, "-P", "-m", "tputui", "serve", str(run_dir), "--metrics"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Served(process.stdout.readline().strip(), run_dir, process)
        finally:
            process.kill()


def get(address: str, authorization: str | None = None) -> tuple[int, str]:
    """Status and body of the answer."""
    headers = {} if authorization is None else {"Authorization": authorization}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(text: str) -> dict[str, dict[Labels, float]]:
    """The samples by name and labels, without the name of the run, as Prometheus' own parser reads them."""
    found: dict[str, dict[Labels, float]] = {}
    for family in parser.text_string_to_metric_families(text):
        assert family.documentation
        assert family.type in ("gauge", "counter")
        for name, labels, value, *_ in family.samples:
            key = tuple(sorted((label, text) for label, text in labels.items() if label != "run"))
            assert key not in found.setdefault(name, {}), "no sample twice"
            found[name][key] = value
    return found


def test_values_are_served_to_requests_with_the_token(served: Served) -> None:
    assert served.address.startswith("http://127.0.0.1:")
    path = served.run_dir / "metrics-token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = path.read_text().strip()
    for wrong in (None, "", "Bearer", f"Bearer {token[:-1]}", f"Basic {token}", "Bearer \xe9"):
        assert get(served.address, wrong)[0] == 401
    assert get(served.address.replace("/metrics", "/"), f"Bearer {token}")[0] == 404
    status, text = get(served.address, f"Bearer {token}")
    assert status == 200
    found, snapshot = samples(text), session.load(served.run_dir)
    assert found["tputui_step_total"] == {(): 66.0}
    assert found["tputui_loss"] == {(): snapshot.newest_loss}
    assert found["tputui_core_loss"] == {(("core", str(core.core)),): core.loss for core in snapshot.cores}
    assert found["tputui_run_state"][(("state", "done"),)] == 1.0
    assert sum(found["tputui_run_state"].values()) == 1.0
    assert (
        found["tputui_metric"][(("metric", "accuracy"), ("split", "valid"))]
        == snapshot.epochs[-1].valid["accuracy"].avg
    )
    assert found["tputui_step_duration_seconds"] == {(): 0.05}
    assert found["tputui_best_epoch"] == {(): 3.0}
    page = (Path(__file__).parents[2] / "docs" / "guide" / "export-and-notebooks.md").read_text()
    assert [name for name in found if f"`{name}`" not in page] == []
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(DEADLINE_S) == 0


def test_names_of_a_run_cannot_break_the_format(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    hostile = 'a"} 1\nfake_metric{x="\\\x1b[31m\u202e\u2028'
    reading = ev.MeterReading(val=float("nan"), avg=float("inf"), sum=1.0, count=1)
    meters = ev.MetersReported(
        t=recorded.T0 + 9, split="train", epoch=4, step=70, meters={hostile: reading}, reduced="mean"
    )
    (run_dir / "worker-0.jsonl").unlink()
    recorded.write_journal(run_dir / "worker-0.jsonl", [*recorded.worker_events()[:-1], meters])
    found = samples(exposition(session.load(run_dir)))
    assert all(name.startswith("tputui_") for name in found)
    names = {dict(key)["metric"] for key in found["tputui_metric"]}
    assert any(name.startswith('a"} 1 fake_metric{x="\\ [31m') for name in names)


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    path = run_dir / "metrics-token"
    path.write_text("x" * 40)
    path.chmod(0o644)
    result = tputui("serve", run_dir, "--metrics")
    assert (result.code, "other users can read or change it" in one_sentence(result)) == (2, True)
    path.unlink()
    os.mkfifo(path)
    assert tputui("serve", run_dir, "--metrics").code == 2
    assert "--metrics needs RUN" in one_sentence(tputui("serve", "--metrics"))


def test_a_run_serves_its_values_while_it_runs(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    os.mkfifo(hold)
    code = (
        f"import tputui\nwith tputui.start() as run:\n run.step(loss=0.25)\n run.report()\n open({str(hold)!r}).read()"
    )
    words = ["run", "--name", "a", "--no-ui", "--metrics-port", "0", "--", sys.executable, "-c", code]
    env = {**os.environ, "TPUTUI_RUNS": str(tmp_path / "runs")}
    command = [sys.executable, "-P", "-m", "tputui", *words]
    pid = 0
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if line.startswith("tputui: serving "))
            address = line.split()[2]
            token = (tmp_path / "runs" / "a" / "metrics-token").read_text().strip()
            with hold.open("w"):  # the script has reported its step
                assert get(address)[0] == 401
                status, text = get(address, f"Bearer {token}")
                assert status == 200
                assert samples(text)["tputui_run_state"][(("state", "done"),)] == 0.0
                # The port is taken, so nothing else is started there.
                taken = tputui("run", "--metrics-port", address.split(":")[2].split("/")[0], "--", "true", cwd=tmp_path)
                assert taken.code == 2
                assert "Address already in use" in one_sentence(taken)
            assert process.wait(DEADLINE_S) == 0
            assert samples(get(address, f"Bearer {token}")[1])["tputui_run_state"]
            pid = next(
                each.pid
                for each in psutil.process_iter(["cmdline"])
                if "tputui.cli.metrics_server" in (each.info["cmdline"] or ())
                and str(tmp_path) in each.info["cmdline"][-1]
            )
        finally:
            process.kill()
            if pid:
                os.kill(pid, signal.SIGTERM)


def test_a_detached_server_ends_after_the_run(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    server = MetricsServer(run_dir, listen(0), linger_s=0.0)
    server.serve_forever(poll_interval=0.01)
    server.server_close()
    assert server.metrics.ended
    server.metrics.close()
