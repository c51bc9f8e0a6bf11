"""Ranks read from environment variables, as the launchers set them."""

from __future__ import annotations

import pytest

from tputui.telemetry.rank_environment import RankInfo, environ_of, host_index, num_hosts, rank_info, restarts


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, (3, 1, 4)),
        ({"PJRT_LOCAL_PROCESS_RANK": "2", "PJRT_LOCAL_PROCESS_COUNT": "4"}, (2, 2, 4)),
        (
            {
                "PJRT_LOCAL_PROCESS_RANK": "2",
                "PJRT_LOCAL_PROCESS_COUNT": "4",
                "TPU_WORKER_ID": "1",
                "TPU_WORKER_HOSTNAMES": "a,b",
            },
            (6, 2, 8),
        ),
        ({"PJRT_LOCAL_PROCESS_RANK": "2", "TPU_WORKER_ID": "1"}, (None, 2, None)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, (5, 1, 8)),
        ({"SLURM_PROCID": "0", "RANK": "7", "WORLD_SIZE": "16"}, (7, None, 16)),
        ({"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}, (1, None, 2)),
        ({"RANK": "3", "WORLD_SIZE": "2"}, (3, None, None)),
        ({"TPUTUI_HOST_INDEX": "1", "TPUTUI_NUM_HOSTS": "4"}, (1, None, 4)),
        ({"RANK": "0", "WORLD_SIZE": "2", "TPUTUI_HOST_INDEX": "1", "TPUTUI_NUM_HOSTS": "2"}, (0, None, 2)),
    ],
)
def test_launchers_number_their_processes(
    environ: dict[str, str], expected: tuple[int | None, int | None, int | None]
) -> None:
    info = rank_info(environ)
    assert (info.rank, info.local_rank, info.world_size) == expected
    assert set(info.sources) <= set(environ)
    assert info.sources


@pytest.mark.parametrize("value", ["", "-1", "x", "1.0", "9" * 40, "²"])
def test_a_variable_without_a_rank_is_ignored(value: str) -> None:
    assert rank_info({"RANK": value, "WORLD_SIZE": value}) == RankInfo()


def test_the_environment_of_a_process_is_split_into_variables() -> None:
    assert environ_of(b"RANK=1\0EMPTY=\0odd\0A=b=c\0\xff=\xff\0") == {"RANK": "1", "EMPTY": "", "A": "b=c", "�": "�"}


@pytest.mark.parametrize(
    ("environ", "host"),
    [
        ({}, 0),
        ({"RANK": "5", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, 1),
        ({"RANK": "5", "LOCAL_WORLD_SIZE": "2"}, 2),
        ({"RANK": "5"}, 0),
        ({"SLURM_PROCID": "5", "SLURM_NODEID": "1"}, 1),
        ({"TPU_WORKER_ID": "3"}, 3),
        ({"GROUP_RANK": "no number", "TPU_WORKER_ID": "2"}, 2),
        ({"TPUTUI_HOST_INDEX": "1", "GROUP_RANK": "0"}, 1),
    ],
)
def test_launchers_number_their_hosts(environ: dict[str, str], host: int) -> None:
    assert host_index(environ) == host


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({}, 1),
        ({"WORLD_SIZE": "8", "RANK": "5", "LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "3"}, 3),
        ({"WORLD_SIZE": "8", "RANK": "5", "LOCAL_WORLD_SIZE": "4"}, 2),
        ({"WORLD_SIZE": "8", "RANK": "5"}, 1),
        ({"SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "4"}, 2),
        ({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}, 4),
        ({"GROUP_WORLD_SIZE": "0"}, 1),
        ({"TPUTUI_NUM_HOSTS": "3"}, 3),
    ],
)
def test_launchers_count_their_hosts(environ: dict[str, str], hosts: int) -> None:
    assert num_hosts(environ) == hosts


def test_torchrun_counts_its_restarts() -> None:
    assert restarts({"TORCHELASTIC_RESTART_COUNT": "2"}) == 2
    assert restarts({}) == 0
