"""The scan LSTM equals `nn.LSTM`: same weights, results and gradients, on the CPU and on virtual cores."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from engine.models.scan_lstm import LSTM
from tests.engine.lstmcases import CASES, FEATURES, HIDDEN, LONG, SHORT
from tests.engine.processes import on_cores

TOLERANCE = 1e-5
"""Relative to the largest value: single precision, summed in another order."""
xla = pytest.mark.xla


@pytest.fixture(scope="module")
def on_device() -> dict[str, Any]:
    """Results of the comparison on 8 virtual cores."""
    found: dict[str, Any] = on_cores("tests.engine.lstmcheck")
    return found


@pytest.mark.parametrize("case", CASES)
def test_weights_have_nn_lstm_names_and_shapes(case: str) -> None:
    ours, theirs = LSTM(FEATURES, HIDDEN, **CASES[case]), nn.LSTM(FEATURES, HIDDEN, **CASES[case])
    shapes = {name: value.shape for name, value in theirs.state_dict().items()}
    assert {name: value.shape for name, value in ours.state_dict().items()} == shapes


@pytest.mark.parametrize("case", CASES)
def test_cpu_results_equal_nn_lstm(case: str) -> None:
    ours, theirs = LSTM(FEATURES, HIDDEN, **CASES[case]), nn.LSTM(FEATURES, HIDDEN, **CASES[case])
    ours.load_state_dict(theirs.state_dict())
    sequence = torch.randn(4, 7, FEATURES)
    for found, expected in zip(ours(sequence)[1], theirs(sequence)[1], strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(ours(sequence)[0], theirs(sequence)[0])


def test_cpu_does_not_import_the_runtime() -> None:
    code = (
        "import sys, torch; from engine.models.scan_lstm import LSTM; LSTM(2, 3)(torch.randn(4, 1, 2)); "
        "assert 'torch_xla' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cpu_accepts_a_packed_sequence() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, FEATURES), torch.randn(2, FEATURES)])
    output, _ = LSTM(FEATURES, HIDDEN)(packed)
    assert output.data.shape == (5, HIDDEN)


def test_projection_is_rejected() -> None:
    with pytest.raises(ValueError, match="no projection; leave proj_size at 0"):
        LSTM(4, 8, proj_size=2)


@xla
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_on_8_cores_match_nn_lstm(case: str, on_device: dict[str, Any]) -> None:
    found = on_device[case]
    assert set(found) == {"output", "h", "c", "sequence", *LSTM(FEATURES, HIDDEN, **CASES[case]).state_dict()}
    assert {name: value for name, value in found.items() if not value < TOLERANCE} == {}


@xla
def test_long_sequence_compiles_as_fast_as_short_one(on_device: dict[str, Any]) -> None:
    short, long = on_device["programs"]
    assert short["compiles"] == long["compiles"] == 1
    # Unrolled, twenty times the steps would take more than twenty times as long.
    assert long["seconds"] < LONG / SHORT / 2 * short["seconds"]
    assert on_device["fallbacks"] == {}
