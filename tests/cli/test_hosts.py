"""`tputui run` on several hosts: which host this is, and the directory that the hosts may share."""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path

import msgspec
import pytest

from tests.test_cluster import RANKS, SLICE, SLURM, TORCHRUN
from tputui.cli import hosts
from tputui.cli.console import CommandError
from tputui.cli.main import main
from tputui.config import LaunchConfig, parse, to_builtins
from tputui.exit_codes import ExitCode
from tputui.telemetry import requests, rundir

ENDPOINT = "10.0.0.2:29400"


def options(name: str | None = None, host_index: int | None = None) -> argparse.Namespace:
    """The options of `tputui run`."""
    return argparse.Namespace(name=name, host_index=host_index, nnodes=None, rdzv_endpoint=None)


def test_one_host_needs_nothing_and_no_cluster_makes_it_several_without_saying_so() -> None:
    assert hosts.place_of(LaunchConfig(), options(), {}) is None
    assert hosts.place_of(LaunchConfig(), options(), RANKS) is None
    assert hosts.place_of(LaunchConfig(engine="local"), options(), SLURM) is None
    assert hosts.place_of(LaunchConfig(nnodes=1), options(), SLURM) is None
    assert hosts.place_of(LaunchConfig(engine="external", nnodes=1), options(), {}) is None
    assert hosts.place_of(LaunchConfig(engine="external"), options(), {"TPU_WORKER_HOSTNAMES": "localhost"}) is None
    assert hosts.place_of_command(LaunchConfig(), options(), SLURM) is None


def test_options_place_a_host() -> None:
    place = hosts.place_of(LaunchConfig(nnodes=4, rdzv_endpoint=ENDPOINT), options("exp7", 2), {})
    assert place is not None
    assert (place.host_index, place.name, place.launch.used_engine) == (2, "exp7", "torchrun")


def test_a_cluster_gives_every_value() -> None:
    place = hosts.place_of(LaunchConfig(), options(), SLURM)
    assert place is not None
    assert (place.host_index, place.name) == (2, "slurm-4711.0")
    assert (place.launch.nnodes, place.launch.rdzv_endpoint, place.launch.engine) == (4, "tpu-03:29400", "torchrun")
    pod = hosts.place_of(LaunchConfig(max_restarts=2), options("mine"), SLICE)
    assert pod is not None
    assert (pod.name, pod.launch.rdzv_endpoint, pod.launch.max_restarts) == ("mine", "job-0-0.job:29400", 2)


def test_an_outer_torchrun_restarts_by_itself_and_a_stop_is_no_failure_for_it() -> None:
    place = hosts.place_of(LaunchConfig(), options(), TORCHRUN)
    assert place is not None
    assert (place.launch.engine, place.launch.rdzv_endpoint) == ("external", "10.0.0.1:29501")
    assert hosts.exit_code(ExitCode.STOPPED, place, ["SIGTERM"]) == ExitCode.DONE
    assert hosts.exit_code(ExitCode.FAILED, place, []) == ExitCode.FAILED
    assert hosts.exit_code(ExitCode.STOPPED, None, ["tputui stop"]) == ExitCode.STOPPED


@pytest.mark.parametrize(
    ("environ", "by", "code"),
    [
        ({"JOBSET_RESTART_ATTEMPT": "0"}, "tputui stop", ExitCode.DONE),
        ({"JOBSET_RESTART_ATTEMPT": "0"}, None, ExitCode.DONE),
        ({"JOBSET_RESTART_ATTEMPT": "0"}, requests.BY_SIGTERM, ExitCode.STOPPED),
        ({}, "tputui stop", ExitCode.STOPPED),
    ],
    ids=["requested", "on another host", "preempted", "no restarts"],
)
def test_a_jobset_restarts_what_was_preempted_but_not_what_was_stopped(
    environ: dict[str, str], by: str | None, code: ExitCode
) -> None:
    place = hosts.place_of(LaunchConfig(), options(), {**SLICE, **environ})
    assert hosts.exit_code(ExitCode.STOPPED, place, [by]) == code


def test_an_attempt_after_a_restart_is_a_run_of_its_own_also_with_a_name() -> None:
    place = hosts.place_of(LaunchConfig(), options("exp7"), {**SLURM, "SLURM_RESTART_COUNT": "2"})
    assert place is not None
    assert (place.name, place.run) == ("exp7", "exp7-restart-2")


def test_an_attempt_resumes_from_the_newest_checkpoint_of_those_before(tmp_path: Path) -> None:
    place = hosts.place_of(LaunchConfig(), options(), {**SLURM, "SLURM_RESTART_COUNT": "3"})
    assert place is not None
    assert hosts.earlier_checkpoint(place, tmp_path) is None
    for name in ("slurm-4711.0", "slurm-4711.0-restart-1", "slurm-4711.0-restart-3"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "checkpoints" / "last.pt").touch()
    (tmp_path / "slurm-4711.0-restart-2").mkdir()
    assert hosts.earlier_checkpoint(place, tmp_path) == tmp_path / "slurm-4711.0-restart-1" / "checkpoints" / "last.pt"


def test_hosts_agree_on_the_attempt_although_agents_of_torchrun_count_differently(tmp_path: Path) -> None:
    again = {**TORCHRUN, "TORCHELASTIC_MAX_RESTARTS": "3"}
    for name, index in (("exp-7", 0), ("exp-7", 1), ("exp-7-restart-1", 0)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / f"supervisor-{index}.jsonl").touch()
    found = []
    # Only the process of the second host has failed, so its agent alone has counted a restart.
    for rank, count in ((1, 1), (2, 0)):
        environ = {**again, "RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(count)}
        if rank == 2:
            (tmp_path / "exp-7" / "supervisor-2.jsonl.zst").touch()
        place = hosts.place_of(LaunchConfig(), options(), environ)
        assert place is not None
        found.append(hosts.at_attempt(place, tmp_path).run)
    assert found == ["exp-7-restart-1"] * 2
    without = hosts.place_of(LaunchConfig(), options(), {**TORCHRUN, "RANK": "2"})
    assert without is not None
    assert hosts.at_attempt(without, tmp_path).run == "exp-7"


def test_a_host_finds_its_index_by_its_name() -> None:
    launch = LaunchConfig(hosts=("first", socket.gethostname()))
    place = hosts.place_of(launch, options("a"), {})
    assert place is not None
    assert (place.host_index, place.launch.rdzv_endpoint) == (1, "first:29400")


def test_an_index_that_an_option_names_takes_the_rest_from_the_cluster() -> None:
    place = hosts.place_of(LaunchConfig(), options(None, 3), SLURM)
    assert place is not None
    assert (place.host_index, place.launch.nnodes, place.run) == (3, 4, "slurm-4711.0")


def test_ranks_of_another_launcher_are_read_for_the_engine_external() -> None:
    place = hosts.place_of(LaunchConfig(engine="external"), options("a"), RANKS)
    assert place is not None
    assert (place.host_index, place.launch.nnodes, place.is_restarted) == (1, 3, False)


@pytest.mark.parametrize(
    ("launch", "given", "environ", "sentence"),
    [
        (LaunchConfig(nnodes=2), options("a"), {}, "--host-index is missing: which of the 2 hosts this is"),
        (LaunchConfig(nnodes=2), options("a", 2), {}, "--host-index 2: the run has 2 hosts"),
        (LaunchConfig(nnodes=2), options("a", 0), {}, "--rdzv-endpoint is missing"),
        (LaunchConfig(nnodes=2, rdzv_endpoint=ENDPOINT), options(None, 0), {}, "--name is missing"),
        (LaunchConfig(), options("a", 1), {}, "--nnodes is missing"),
        (LaunchConfig(), options("a", 5), SLURM, "--host-index 5: the run has 4 hosts, with indices from 0 to 3"),
        (
            LaunchConfig(engine="external"),
            options("a"),
            {},
            "none of SLURM_STEP_ID, TPU_WORKER_HOSTNAMES, TPU_WORKER_ID",
        ),
        (
            LaunchConfig(engine="external"),
            options("a"),
            {"RANK": "1"},
            "launcher of the ranks started this command, but ",
        ),
        (LaunchConfig(nnodes=2), options(), SLURM, "launch.nnodes is 2, but SLURM started this command on 4 hosts"),
        (LaunchConfig(), options(), {**SLURM, "SLURM_NODEID": ""}, "SLURM_NODEID is not set"),
        (LaunchConfig(max_restarts=1), options(), TORCHRUN, "launch.max_restarts is 1, but an outer torchrun restarts"),
    ],
)
def test_what_is_missing_or_contradicts_is_one_sentence(
    launch: LaunchConfig, given: argparse.Namespace, environ: dict[str, str], sentence: str
) -> None:
    with pytest.raises(CommandError) as raised:
        hosts.place_of(launch, given, environ)
    assert sentence in str(raised.value)
    assert raised.value.code == ExitCode.USAGE


def test_an_option_that_is_not_valid_is_named_instead_of_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--runs-dir", str(tmp_path), "run", "sample_configs/digits.toml", "--nnodes", "2", "--host-index", "1"]
    assert main([*words, "--name", "pod", "--rdzv-endpoint", "10.0.0.2:a"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "--rdzv-endpoint: '10.0.0.2:a' is not HOST:PORT, such as 10.0.0.2:29400" in err
    assert "launch." not in err
    given = argparse.Namespace(name="a", host_index=None, nnodes=2, rdzv_endpoint=None)
    with pytest.raises(CommandError, match="run: --nnodes is 2, but SLURM started this command on 4 hosts"):
        hosts.place_of(LaunchConfig(nnodes=2), given, SLURM)


def test_what_several_hosts_cannot_train_is_refused_before_they_meet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--runs-dir", str(tmp_path), "run", "sample_configs/digits.toml", "--nnodes", "2", "--host-index", "1"]
    words += ["--name", "pod", "--rdzv-endpoint", "127.0.0.1:1", "--no-ui"]
    assert main([*words, "--set", 'device.strategy="spmd"']) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert 'device.strategy: "spmd" on 2 hosts is one program over all their cores' in err
    # Eight cores of one host share 24 examples evenly, sixteen of two do not.
    config = tmp_path / "a.toml"
    text = Path("sample_configs/digits.toml").read_text().replace("batch_per_core = 8", "global_batch = 24")
    config.write_text(text)
    words[3] = str(config)
    assert main([*words, "--set", 'device.strategy="replica"']) == ExitCode.USAGE
    assert "data.global_batch" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.toml"]


def manifest(lr: float = 0.1) -> rundir.Manifest:
    """The manifest of a run."""
    text = f'task = "digits"\nepochs = 1\n[data]\nbatch_per_core = 4\n[optim]\nlr = {lr}'
    config = to_builtins(parse(text, "a.toml"))
    return rundir.Manifest(
        run="pod", created=time.time(), version="1", config_path="a.toml", config=config, argv=[], cwd="/"
    )


def test_hosts_that_share_the_directory_use_that_of_the_first(tmp_path: Path) -> None:
    created = rundir.create(tmp_path, manifest())
    assert hosts.join_directory(created, manifest(), 1) == created
    with pytest.raises(CommandError, match=r"optim\.lr is 0\.2 here and 0\.1 there"):
        hosts.join_directory(created, manifest(0.2), 1)
    (created / "supervisor-1.jsonl").touch()
    with pytest.raises(CommandError, match="host 1 of the run pod was already started; choose another --name"):
        hosts.join_directory(created, manifest(), 1)


def test_commands_of_the_hosts_may_differ_in_the_number_of_the_host(tmp_path: Path) -> None:
    def of_command(*words: str) -> rundir.Manifest:
        return msgspec.structs.replace(manifest(), config={"script": {"command": list(words)}})

    created = rundir.create(tmp_path, of_command("torchrun", "--node-rank", "0", "train.py"))
    assert hosts.join_directory(created, of_command("torchrun", "--node-rank", "1", "train.py"), 1) == created
    for other in (["--node-rank", "1", "other.py"], ["--node-rank", "0", "train.py", "--layers", "48"]):
        with pytest.raises(CommandError, match=r"script\.command is .* here and .* there.* in TPUTUI_HOST_INDEX"):
            hosts.join_directory(created, of_command("torchrun", *other), 1)
    layers = rundir.create(tmp_path / "joined", of_command("torchrun", "--machine_rank=0", "train.py", "--lr=0.1"))
    assert hosts.join_directory(layers, of_command("torchrun", "--machine_rank=3", "train.py", "--lr=0.1"), 1) == layers
    with pytest.raises(CommandError, match=r"script\.command is .* here and .* there"):
        hosts.join_directory(layers, of_command("torchrun", "--machine_rank=3", "train.py", "--lr=0.2"), 1)


def test_only_the_first_host_needs_the_checkpoint_that_a_run_resumes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--runs-dir", str(tmp_path), "run", "sample_configs/digits.toml", "--nnodes", "2", "--name", "pod"]
    words += ["--rdzv-endpoint", "127.0.0.1:1", "--no-ui", "--resume", "gone", "--set", 'device.strategy="spmd"']
    assert main([*words, "--host-index", "0"]) == ExitCode.USAGE
    assert "gone" in capsys.readouterr().err
    # The second one comes to the checks after that.
    assert main([*words, "--host-index", "1"]) == ExitCode.USAGE
    assert "device.strategy" in capsys.readouterr().err
