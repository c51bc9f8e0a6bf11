"""Observers do not change what a program computes, stores or starts."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.observers import observed

FORKING = """
import torch_xla, torch
class Modes(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, place): return torch._C._len_torch_function_stack()
device = torch_xla.device()
model = torch.nn.Linear(8, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(14):
    model(torch.randn(16, 8).to(device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch_xla.sync()
    if torch._C._len_torch_function_stack():
        loader = torch.utils.data.DataLoader(Modes(), batch_size=None, num_workers=1)
        print({int(modes) for modes in loader})
        break
"""


def run(file: Path, folder: Path, **variables: str) -> str:
    """Runs a program with the observers; returns its output."""
    done = subprocess.run(
        [sys.executable, str(file)],
        env=observed.environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_of_numpy_and_signal_handlers_work_while_jax_is_observed(tmp_path: Path) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    found = json.loads(run(Path(__file__).with_name("jax_safety.py"), tmp_path))
    assert found == {
        "is_hooked": True,
        "before": True,
        "during": True,
        "builtin": True,
        "in_class": True,
        "traced": [True, False],
        "total": 3.0 * 2000,
        "handled": True,
    }


@pytest.mark.slow
@pytest.mark.xla
def test_a_worker_of_a_loader_inherits_no_hook(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FORKING)
    assert run(tmp_path / "train.py", tmp_path, PJRT_DEVICE="CPU", TPUTUI_OBSERVE="all") == "{0}\n"
