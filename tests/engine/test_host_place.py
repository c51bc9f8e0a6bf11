"""The environment contract between the launcher of the hosts and the training process."""

from __future__ import annotations

import pytest

from engine.errors import Unable
from engine.host_place import HostPlace, read_place

CONTRACT = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_a_place_is_read_from_the_variables_of_torchrun() -> None:
    place = read_place({**CONTRACT, "TORCHELASTIC_RESTART_COUNT": "1"}, 2, 4)
    assert place == HostPlace(index=2, num_hosts=4, master_addr="10.0.0.1", master_port=29500, generation=1)
    assert not place.is_first


def test_one_host_needs_no_variables_and_ignores_those_of_others() -> None:
    assert read_place({"WORLD_SIZE": "8", "RANK": "5"}, 0, 1) == HostPlace()


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"RANK": ""}, "RANK is not set"),
        ({"RANK": "1"}, "RANK is 1, but this is host 2"),
        ({"WORLD_SIZE": "8"}, "WORLD_SIZE is 8, but the run has 4 hosts"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"MASTER_PORT": "no"}, "MASTER_PORT is 'no'"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is 70000"),
    ],
)
def test_a_variable_that_is_wrong_is_named(changed: dict[str, str], names: str) -> None:
    with pytest.raises(Unable, match=names):
        read_place({**CONTRACT, **changed}, 2, 4)
