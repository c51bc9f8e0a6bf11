"""The table `[launch]`: hosts of a run, and settings that contradict each other."""

from __future__ import annotations

import pytest

from tputui.config import ConfigError, parse
from tputui.config.checks import endpoint_of

BASE = 'task = "digits"\nepochs = 1\n[data]\nbatch_per_core = 4\n[launch]\n'


def test_torchrun_is_the_engine_of_several_hosts() -> None:
    assert parse(BASE, "a.toml").launch.used_engine == "local"
    several = parse(BASE + "nnodes = 4", "a.toml").launch
    assert (several.used_engine, several.num_hosts, several.max_restarts) == ("torchrun", 4, 0)
    listed = parse(BASE + 'hosts = ["a", "b"]\nengine = "external"', "a.toml").launch
    assert (listed.used_engine, listed.num_hosts) == ("external", 2)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("nnodes = 0", "launch.nnodes: 0 must be positive"),
        ("nnodes = 100000", "launch.nnodes: 100000 exceeds the maximum of 4,096"),
        ('hosts = ["a", "a"]', "launch.hosts: contains a twice; each host has one index"),
        ('hosts = ["a", ""]', "launch.hosts: contains a name that is empty or has a space"),
        ('hosts = ["a", "b"]\nnnodes = 3', "launch.nnodes: 3 contradicts the 2 hosts of launch.hosts"),
        ('engine = "local"\nnnodes = 2', 'launch.engine: "local" is one host, but the run has 2; write "torchrun"'),
        ('engine = "external"\nmax_restarts = 2', 'launch.max_restarts: 2 needs engine = "torchrun"'),
        ('engine = "ray"', "launch.engine: 'ray' is not one of local, torchrun, external"),
        ('rdzv_endpoint = "a:b"', "launch.rdzv_endpoint: 'a:b' is not HOST:PORT, such as 10.0.0.2:29400"),
        ("join_timeout_s = 0", "launch.join_timeout_s: 0.0 must be positive"),
        ("max_restarts = -1", "launch.max_restarts: -1 must be 0 or more"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_one_sentence(keys: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(BASE + keys, "a.toml")
    assert str(raised.value).startswith("a.toml: " + sentence)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.2:1234", ("10.0.0.2", 1234)),
        ("vm-0", ("vm-0", 29400)),
        ("[fd00::1]:80", ("fd00::1", 80)),
        ("[fd00::1]", ("fd00::1", 29400)),
        ("fd00::1:80", None),
        ("vm-0:0", None),
        ("vm-0:70000", None),
        (":80", None),
        ("a b:80", None),
    ],
)
def test_endpoints(text: str, endpoint: tuple[str, int] | None) -> None:
    assert endpoint_of(text) == endpoint
