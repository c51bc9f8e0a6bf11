"""Optimizers and schedules: the results of torch, one program for every step, and errors for conflicting keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import forked

HERE = Path(__file__).parent
COSINE = "optim.schedule=cosine,optim.warmup_steps=4"
QUICK = (f"optim.name=adam,{COSINE},optim.accumulate=2,optim.clip_norm=0.3,non_finite.policy=stop",)
SLOW = (
    f"optim.name=rmsprop,{COSINE}",
    "optim.name=adam,optim.betas=[0.8, 0.99]",
    f"optim.name=adamw,optim.weight_decay=0.1,{COSINE},optim.min_lr=0.001",
    "optim.name=adamw,optim.weight_decay=0.1,optim.step_size=1,optim.gamma=0.5,optim.warmup_epochs=0.5",
    f"optim.name=sgd,{COSINE},optim.clip_norm=0.5",
    "optim.name=sgd,optim.momentum=0,optim.lr=1,optim.step_size=1,optim.clip_norm=0.1",
    "optim.name=sgd,optim.accumulate=3,optim.step_size=2",
    "optim.name=rmsprop,optim.momentum=0.9,optim.alpha=0.9,optim.weight_decay=0.01",
    f"optim.name=rmsprop,{COSINE},optim.accumulate=6",
)
TOLERANCE = 1e-5


def check(settings: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """The result of `optimcheck` for each setting."""
    words = (setting.replace(", ", ";") for setting in settings)
    done = forked.run("tests.engine.optimcheck", *words, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return {setting: found[setting.replace(", ", ";")] for setting in settings}


@pytest.fixture(scope="module")
def quick() -> dict[str, dict[str, Any]]:
    """A setting that combines most options."""
    return check(QUICK)


@pytest.fixture(scope="module")
def slow() -> dict[str, dict[str, Any]]:
    """All other settings."""
    return check(SLOW)


def requires_plain_arithmetic_and_one_program(found: dict[str, Any], setting: str) -> None:
    assert found["apart"] < TOLERANCE
    # Settings of one process may share a program.
    assert found["in all"] == found["first epoch"] <= (2 if "accumulate" in setting else 1)


@pytest.mark.xla
@pytest.mark.parametrize("setting", QUICK)
def test_optimizer_matches_torch_and_compiles_once(quick: dict[str, dict[str, Any]], setting: str) -> None:
    requires_plain_arithmetic_and_one_program(quick[setting], setting)


@pytest.mark.xla
@pytest.mark.slow
@pytest.mark.parametrize("setting", SLOW)
def test_every_optimizer_matches_torch_and_compiles_once(slow: dict[str, dict[str, Any]], setting: str) -> None:
    requires_plain_arithmetic_and_one_program(slow[setting], setting)
