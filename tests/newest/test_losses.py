"""Losses of scripts with each framework are those that the script computed."""

from __future__ import annotations

import json
import math
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.newest.launched import Launched, run

SCRIPTS = Path(__file__).parent / "scripts"
FLOAT32, PRINTED = 1e-6, 1e-3
"""Relative differences: of a value that is reported as it is, and of one that is printed with four digits."""


def case(script: str, word: str, framework: str, package: str, what: str, tolerance: float) -> Any:
    supports = pytest.mark.supports(framework, package, what)
    return pytest.param(script, word, tolerance, id=f"{package}-{word or 'printed'}", marks=supports)


@pytest.mark.parametrize(
    ("script", "word", "tolerance"),
    [
        case("train_compiled", "", "torch.compile", "torch", "losses that the script prints", PRINTED),
        case("train_jax", "", "JAX", "jax", "losses that the script prints", PRINTED),
        case("train_lightning", "callback", "Lightning", "lightning", "every step, by `TputuiCallback`", FLOAT32),
        case("train_lightning", "logger", "Lightning", "lightning", "every step, without a change", FLOAT32),
        case(
            "train_transformers", "callback", "transformers", "transformers",
            "what the Trainer logs, exactly, by `TputuiCallback`", FLOAT32,
        ),
        case("train_transformers", "", "transformers", "transformers", "every step, without a change", FLOAT32),
        case("train_accelerate", "tracker", "accelerate", "accelerate", "what is logged, by `TputuiTracker`", FLOAT32),
        case("train_accelerate", "", "accelerate", "accelerate", "losses that the script prints", PRINTED),
        case("train_keras", "jax", "Keras", "keras", "every step, with the JAX backend, without a change", FLOAT32),
        case("train_keras", "torch", "Keras", "keras", "every step, with the torch backend, without a change", FLOAT32),
    ],
)  # fmt: skip
def test_losses_are_those_of_the_script(script: str, word: str, tolerance: float, tmp_path: Path) -> None:
    if find_spec(package := script.removeprefix("train_").replace("compiled", "torch")) is None:
        pytest.skip(f"{package} is not installed")
    run_of = run(tmp_path, SCRIPTS / f"{script}.py", *([word] if word else []))
    _assert_losses(run_of, tolerance)


def test_means_that_a_trainer_logs_and_prints_are_a_metric_beside_its_losses(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    logged = run(tmp_path, SCRIPTS / "train_transformers.py").shown()["logged"]
    of_loss = [view for view in logged if view["tag"] == "loss"]
    assert [(view["name"], view["num_values"]) for view in of_loss] == [("loss (Trainer.log)", 12)]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_what_keras_prints_is_not_shown_beside_the_same_values_of_its_callback(tmp_path: Path, backend: str) -> None:
    if find_spec("keras") is None:
        pytest.skip("keras is not installed")
    logged = run(tmp_path, SCRIPTS / "train_keras.py", backend).shown()["logged"]
    # With torch, the running mean is a metric beside the losses of single steps.
    means = {("train", "loss", "Model.fit")} if backend == "torch" else set()
    assert {(view["split"], view["tag"], view["source"]) for view in logged} == means | {
        ("train", "mae", "Model.fit"),
        ("valid", "test_loss", "Model.evaluate"),
        ("valid", "test_mae", "Model.evaluate"),
    }


def test_the_pace_of_keras_is_that_of_its_steps_from_the_first_epoch_on(tmp_path: Path) -> None:
    """Its threads report a step after the next one has begun."""
    if find_spec("keras") is None:
        pytest.skip("keras is not installed")
    printed = run(tmp_path, SCRIPTS / "train_keras.py", "torch", "0.1").printed
    paces = [float(pace) for pace in re.findall(r"([\d.]+) ms/step  ", printed)]
    assert paces
    assert min(paces) > 90


def _assert_losses(run_of: Launched, tolerance: float) -> None:
    """Compares with what the script wrote: its losses by step."""
    computed = {int(step): loss for step, loss in json.loads((run_of.folder / "losses.json").read_text()).items()}
    shown, losses = run_of.shown(), run_of.losses()
    assert (shown["state"], shown["warnings"]) == ("done", [])
    assert len(computed) > 2
    wrong = {
        step: (loss, losses.get(step))
        for step, loss in computed.items()
        if not math.isclose(loss, losses.get(step, math.nan), rel_tol=tolerance)
    }
    assert not wrong
