"""The launch service over the real engine: describe, check, start."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from tests.deadline import DEADLINE_S
from tputui import config, data_sets, user_cache
from tputui.cli.launch_service import EngineLaunchService
from tputui.telemetry import requests, rundir
from tputui.ui.launch.checker import Launch, LaunchError

DIGITS = Path(__file__).parents[2] / "sample_configs" / "digits.toml"
CPU = {"PJRT_DEVICE": "CPU"}


def launch(*overrides: str, name: str | None = None, resume: Path | None = None) -> Launch:
    tables = config.to_builtins(config.load(DIGITS, list(overrides)))
    return Launch(tables, "digits.toml", name, resume, ["tputui", "run", "digits.toml"])


def test_a_task_is_described_with_bounds_and_documentation(tmp_path: Path) -> None:
    described = EngineLaunchService(tmp_path, CPU).describe("digits", Event())
    assert described.meters == ["loss", "accuracy"]
    (channels, _) = described.options["model"]
    assert (channels.key, channels.schema["maximum"]) == ("channels", 1024)
    assert channels.doc


def test_unknown_task_is_reported_with_closest_name(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match='task: there is no task "digitz"; did you mean "digits"'):
        EngineLaunchService(tmp_path, CPU).describe("digitz", Event())


def test_config_is_checked_with_derived_values(tmp_path: Path) -> None:
    result = EngineLaunchService(tmp_path, CPU).check(launch(), Event(), memory=False)
    assert (result.problems, result.facts["steps_per_epoch"], result.memory) == ([], 22, None)
    (problem,) = EngineLaunchService(tmp_path, CPU).check(launch("model.channels=0"), Event(), memory=False).problems
    assert problem.key == "model.channels"


def test_a_config_for_several_hosts_is_not_ready_to_be_started_here(tmp_path: Path) -> None:
    tables = config.to_builtins(config.load(DIGITS.with_name("digits_two_hosts.toml")))
    two_hosts = Launch(tables, "two.toml", None, None, [])
    (problem,) = EngineLaunchService(tmp_path, CPU).check(two_hosts, Event(), memory=False).problems
    assert problem.sentence == "launch.nnodes: a run on 2 hosts is started by `tputui run` on each of them"


def test_abandoned_check_is_cancelled(tmp_path: Path) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(LaunchError, match="cannot check the configuration"):
        EngineLaunchService(tmp_path, CPU).check(launch(), stop, memory=True)


def test_rejected_start_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    refused = [
        (launch("model.channels=0"), "model.channels"),
        (launch(name="a b"), "run names may contain"),
        (launch(name="taken"), "already contains a run or file named taken"),
        (launch(resume=tmp_path / "taken"), "the run saved no checkpoint"),
    ]
    for each, why in refused:
        with pytest.raises(LaunchError, match=why):
            EngineLaunchService(tmp_path, CPU).start(each)
    assert rundir.listing(tmp_path) == []


@pytest.mark.xla
def test_run_is_started_detached_and_recorded(tmp_path: Path) -> None:
    service = EngineLaunchService(tmp_path, CPU)
    run_dir = service.start(launch("epochs=1", name="mine"))
    requests.submit(run_dir, "stop_now", by="test", now=0.0)
    (supervisor,) = service.supervisors
    supervisor.wait(DEADLINE_S)
    manifest = rundir.read_manifest(run_dir)
    assert (manifest.run, manifest.config_path, manifest.argv) == (
        "mine",
        "digits.toml",
        ["tputui", "run", "digits.toml"],
    )
    assert manifest.config["epochs"] == 1


def test_data_sets_of_the_catalog_with_whether_they_were_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUTUI_DATA", str(tmp_path))
    (tmp_path / "ct").mkdir()
    (tmp_path / "ct" / user_cache.SOURCE).write_text(data_sets.catalogue()["ct"].source_text([]))
    found = EngineLaunchService(tmp_path, CPU).data_sets()
    assert found.pop("ct")
    assert "rgbd" in found
    assert not any(found.values())
