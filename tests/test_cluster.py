"""The place of a host, from the environment of each cluster."""

from __future__ import annotations

import pytest

from tputui.cluster import MissingVariable, find, first_node

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "tpu-[03-05,9]",
    "SLURM_NODEID": "2",
}
SLICE = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "job-0-0.job,job-0-1.job", "JOBSET_NAME": "job"}
RANKS = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
TORCHRUN = {**RANKS, "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "exp 7", "TORCHELASTIC_RESTART_COUNT": "0"}


def test_slurm() -> None:
    found = find(SLURM)
    assert found is not None
    assert (found.cluster, found.host_index, found.num_hosts) == ("SLURM", 2, 4)
    assert (found.coordinator, found.port, found.job) == ("tpu-03", None, "slurm-4711.0")


def test_a_job_of_slurm_that_was_requeued_is_another_attempt() -> None:
    found = find({**SLURM, "SLURM_RESTART_COUNT": "1"})
    assert found is not None
    assert (found.job, found.attempt) == ("slurm-4711.0", 1)


def test_a_tpu_slice_of_gke() -> None:
    found = find({**SLICE, "JOB_INDEX": "0"})
    assert found is not None
    assert (found.host_index, found.num_hosts, found.coordinator, found.job) == (1, 2, "job-0-0.job", "job")
    second = find({**SLICE, "JOB_INDEX": "1", "JOBSET_RESTART_ATTEMPT": "2"})
    assert second is not None
    assert (second.job, second.attempt) == ("job-slice-1", 2)


def test_a_tpu_vm_has_no_name_of_a_job() -> None:
    found = find({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "10.0.0.2,10.0.0.3"})
    assert found is not None
    assert (found.host_index, found.coordinator, found.job) == (0, "10.0.0.2", None)


def test_an_outer_torchrun_restarts_and_uses_its_own_port() -> None:
    found = find(TORCHRUN)
    assert found is not None
    assert (found.host_index, found.num_hosts, found.port, found.job) == (1, 3, 29501, "exp-7")
    assert found.restarts
    again = find({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "2"})
    assert again is not None
    assert (again.job, again.attempt, again.may_undercount) == ("exp-7", 2, False)
    restarting = find({**TORCHRUN, "TORCHELASTIC_MAX_RESTARTS": "3"})
    assert restarting is not None
    assert (restarting.attempt, restarting.may_undercount) == (0, True)
    unnamed = find({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"})
    assert unnamed is not None
    assert unnamed.job is None


def test_ranks_of_another_launcher_count_only_when_they_are_asked_for() -> None:
    assert find(RANKS) is None
    found = find(RANKS, contract=True)
    assert found is not None
    assert (found.host_index, found.num_hosts, found.coordinator, found.restarts) == (1, 3, "10.0.0.1", False)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "1", "SLURM_NNODES": "4", "SLURM_NODEID": "0"},  # in the batch script, outside of srun
        {**SLURM, "SLURM_STEP_NUM_NODES": "1"},
        {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"},
        {"TPU_WORKER_ID": "0"},
        {**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"},
    ],
)
def test_a_single_host_is_no_cluster(environ: dict[str, str]) -> None:
    assert find(environ) is None


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({**SLURM, "SLURM_NODEID": ""}, "SLURM started this command, but SLURM_NODEID is not set"),
        ({**SLURM, "SLURM_NODEID": "4"}, "SLURM_NODEID is 4, but there are only 4 hosts"),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "8"}, "one task per node: srun --ntasks-per-node=1"),
        ({**SLURM, "SLURM_STEP_NODELIST": ""}, "SLURM_STEP_NODELIST is not set"),
        ({**SLURM, "SLURM_STEP_NODELIST": "[["}, "SLURM_STEP_NODELIST is '[[', which is not a list of nodes"),
        ({"TPU_WORKER_ID": "1"}, "TPU_WORKER_ID is 1, but TPU_WORKER_HOSTNAMES is not set"),
        ({**SLICE, "TPU_WORKER_ID": ""}, "but TPU_WORKER_ID is not set"),
        ({**SLICE, "TPU_WORKER_ID": "x"}, "TPU_WORKER_ID is 'x', which is not a number"),
        ({**TORCHRUN, "RANK": ""}, "torchrun started this command, but RANK is not set"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"}, "one process per host: torchrun --nproc-per-node=1"),
        ({**TORCHRUN, "MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
    ],
)
def test_what_is_missing_is_one_sentence_that_names_the_variable(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(MissingVariable) as raised:
        find(environ)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("tpu1", "tpu1"),
        ("a,b", "a"),
        ("tpu-[003-100]", "tpu-003"),
        ("n[7,9-11]-x.local,b", "n7-x.local"),
        ("r1[2],r2[3]", "r12"),
    ],
)
def test_the_first_node_of_a_list_of_slurm(nodes: str, first: str) -> None:
    assert first_node(nodes) == first
