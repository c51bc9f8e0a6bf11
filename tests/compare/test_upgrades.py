"""Packages of other versions are joined to what got slower, and only then."""

from __future__ import annotations

from typing import Any

from tests.diagnosis.runs import compiled, reports, snapshot_of, topology
from tputui.compare.compare import compare
from tputui.state.snapshot import Snapshot


def run(compile_s: float) -> Snapshot:
    warm_up = [compiled(1, compile_s, warm_up=True, runtime="jax", program=f"f{number}") for number in range(2)]
    return snapshot_of({"worker-0": [topology(), *reports(), *warm_up]})


def code(**packages: str) -> dict[str, Any]:
    return {"packages": packages}


def upgrades(
    base_s: float, run_s: float, base: dict[str, Any] | None, other: dict[str, Any] | None
) -> list[str | None]:
    return compare([run(base_s), run(run_s)], codes=[base, other]).upgrades


def test_an_upgrade_is_joined_to_what_got_slower() -> None:
    old, new = code(jax="0.10.1", rich="14.0", numpy="2.1"), code(jax="0.10.2", rich="14.1", numpy="2.1")
    assert upgrades(5.0, 8.0, old, new) == [None, "B: jax 0.10.1 -> 0.10.2: compile time x 1.6"]
    assert upgrades(8.0, 5.0, old, new) == [None, None], "nothing is slower"
    assert upgrades(0.5, 0.8, old, new) == [None, None], "less than a second"
    assert upgrades(5.0, 8.0, old, old) == [None, None], "no package differs"
    assert upgrades(5.0, 8.0, None, new) == [None, None], "the packages are not recorded"
