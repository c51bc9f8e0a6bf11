"""The supervisor writes cached states while its run continues, and at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import longrun, recorded
from tests.supervise.harness import Bench, is_running, wait_for
from tputui.cache import cache_file
from tputui.cli.main import main
from tputui.session.session import load

LONG = """
from array import array
from random import random
step = 1
def report(num):
    global step
    for _ in range(num):
        reporter.record_steps(step, array("f", [random() for _ in range(8_000)]), 8)
        step += 1_000
        assert reporter.flush(120)
"""
"""A worker whose journal grows by 40 kB a report."""


def _check(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["check", str(run_dir)]) == 0
    return capsys.readouterr().out


def test_long_run_opens_from_cached_states(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise(LONG + "report(60); end('done', 0, step=60_000)")
    watched.ended()

    run_dir = watched.run_dir
    assert (run_dir / "worker-0.jsonl").stat().st_size > 2 << 20
    cached_files = cache_file.listed(run_dir)
    assert cache_file.read_head(cached_files[-1]).offset == (run_dir / "worker-0.jsonl").stat().st_size
    assert longrun.num_read(run_dir) < 30
    assert load(run_dir).steps == 60_000
    assert f"{len(cached_files)} cached state" in _check(run_dir, capsys)


def test_compressed_run_opens_from_cached_states(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    config = {**recorded.CONFIG, "report": {"interval_s": 1.0, "seal": True}}
    watched = bench.supervise(LONG + "report(60); end('done', 0, step=60_000)", config={"config": config})
    watched.ended()

    run_dir = watched.run_dir
    sealed = run_dir / "worker-0.jsonl.zst"
    head = cache_file.read_head(cache_file.listed(run_dir)[-1])
    assert (head.journal, head.offset) == (sealed.name, sealed.stat().st_size)
    assert longrun.num_read(run_dir) < 30
    assert load(run_dir).steps == 60_000
    assert "cached state" in _check(run_dir, capsys)


def test_killed_supervisor_leaves_intact_cached_states(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    watched = bench.supervise(
        LONG
        + """
        report(80)
        while not (run_dir / "go").exists():
            Event().wait(0.02)
        report(3)
        end("done", 0, step=83_000)
        """.replace("\n        ", "\n")
    )
    pid, run_dir = watched.worker_pid(), watched.run_dir
    wait_for(lambda: cache_file.listed(run_dir), "a place")
    watched.process.kill()
    watched.process.wait()
    (run_dir / "go").touch()
    wait_for(lambda: not is_running(pid), "the worker's end")

    assert load(run_dir).steps == 83_000
    assert "cached state" in _check(run_dir, capsys)


def test_run_without_writable_cache_continues_and_logs_it(bench: Bench) -> None:
    watched = bench.supervise("(run_dir / 'places').touch()\n" + LONG + "report(60); end('done', 0, step=60_000)")

    assert watched.ended().outcome == "done"
    assert "the state cache cannot be written, so opening this run takes longer: File exists" in watched.log()
    assert load(watched.run_dir).steps == 60_000
