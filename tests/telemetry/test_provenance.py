"""Host, versions and git commit of a run."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests import recorded
from tests.deadline import DEADLINE_S
from tputui import __version__
from tputui.reporting.process import create_run
from tputui.session import session
from tputui.telemetry import provenance, rundir
from tputui.telemetry.origin import GitState
from tputui.telemetry.provenance import git_state

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def _git_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "GIT_TIMEOUT_S", DEADLINE_S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit on the branch `trunk`."""
    git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "train.py").write_text("print(1)\n")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


@needs_git
def test_commit_branch_and_changes_are_recorded(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == GitState(commit=commit, branch="trunk", dirty=False)

    (repository / "data.csv").write_text("untracked")
    assert git_state(repository).dirty is False
    (repository / "train.py").write_text("print(2)\n")
    (repository / "inner").mkdir()
    assert git_state(repository / "inner") == GitState(commit=commit, branch="trunk", dirty=True)

    git(repository, "checkout", "-q", "--detach")
    assert (git_state(repository).commit, git_state(repository).branch) == (commit, None)


@needs_git
def test_nothing_is_written_to_the_repository_and_no_monitor_of_it_is_started(repository: Path) -> None:
    monitor = repository.parent / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {repository.parent / 'started'}\n")
    monitor.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(monitor))
    os.utime(repository / "train.py", (1, 1))
    before = (repository / ".git" / "index").stat().st_mtime_ns

    assert git_state(repository).dirty is False

    assert (repository / ".git" / "index").stat().st_mtime_ns == before
    assert not (repository.parent / "started").exists()


@needs_git
def test_why_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state(tmp_path).why == "not a git repository"
    assert git_state(tmp_path / "gone").why == "not a git repository"
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path).why == "no commit yet"


def test_git_that_is_missing_or_hangs_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"PATH": str(tmp_path)}
    assert git_state(tmp_path, environ).why == "not a git repository"
    (tmp_path / ".git").mkdir()
    assert git_state(tmp_path, environ).why == "git is not installed"

    (tmp_path / "git").write_text(f"#!{sys.executable}\nimport signal; signal.pause()\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setattr(provenance, "GIT_TIMEOUT_S", 0.2)
    assert git_state(tmp_path, environ).why == "git did not answer within 0.2 s"


@needs_git
def test_git_variables_of_the_user_are_respected(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    environ = {**os.environ, "GIT_DIR": str(repository / ".git"), "GIT_WORK_TREE": str(repository)}
    assert git_state(elsewhere, environ).branch == "trunk"


@needs_git
def test_secret_in_a_branch_name_is_masked(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "try-ghp_0123456789abcdefghij0123456789")
    assert git_state(repository).branch == "try-[redacted]"


def test_manifest_records_the_provenance_and_old_ones_open_without(tmp_path: Path) -> None:
    old = recorded.manifest("old")
    assert (old.host, old.versions, old.git) == (None, None, None)
    new = msgspec.structs.replace(old, run="new").with_provenance(provenance.collect(tmp_path))
    run_dir = rundir.create(tmp_path, new)
    found = rundir.read_manifest(run_dir)
    assert found == new
    assert found.versions is not None
    assert found.versions["tputui"] == __version__
    assert found.versions["python"] == sys.version.split()[0]


def test_snapshot_of_an_old_run_has_what_its_journals_recorded(tmp_path: Path) -> None:
    details = session.load(recorded.write_run(tmp_path)).details
    assert details.argv == ["tputui", "run", "digits.toml"]
    assert details.host == "tpu-vm-0"
    assert details.versions == {"tputui": "0.1.0"}
    assert details.git is None


def test_snapshot_without_manifest_has_what_its_journals_recorded(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    (run_dir / "run.json").unlink()
    details = session.load(run_dir).details
    assert (details.argv, details.host) == (["tputui", "run", "digits.toml"], "tpu-vm-0")
    assert details.cwd is None


def test_run_of_a_script_records_the_same(tmp_path: Path) -> None:
    details = session.load(create_run("Net", tmp_path, {"task": "Net"})).details
    assert details.argv == sys.argv
    assert details.cwd == str(Path.cwd())
    assert details.host == socket.gethostname()
    assert details.versions == provenance.versions()
    assert details.git is not None
    assert (details.git.commit is None) is (details.git.why is not None and details.git.branch is None)
