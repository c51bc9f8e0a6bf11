"""Observers do not change what a program computes, stores or starts."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S
from tests.observers import observed
from tputui.logs.formats import opened_logs_name
from tputui.telemetry.rundir import host_id

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


OPENING = """
import builtins, io, os, pickle, sys, types
from tputui.observers import autoload
autoload.torch_imported()
folder = sys.argv[1]
os.chdir(folder)
assert type(open) is types.BuiltinFunctionType and open is io.open and pickle.loads(pickle.dumps(open)) is open
for path in ("a.csv", b"b.csv", os.path.join(folder, "c.jsonl")):
    for _ in range(3):
        open(path, "a").close()
os.close(os.open("d.csv", os.O_WRONLY | os.O_CREAT))
open("a.csv").close()
open("e.txt", "w").close()
open(os.open("f.csv", os.O_RDWR | os.O_CREAT), "w").close()
for arguments in ((), ("x.csv",), ("x.csv", "w", None), (None, None, os.O_WRONLY), ("\\0.csv", "w", os.O_WRONLY)):
    sys.audit("open", *arguments)
for wrong in ("missing/g.csv", "\\0.csv"):
    try:
        open(wrong, "w")
    except (OSError, ValueError) as error:
        assert error.__traceback__.tb_next is None
os.mkdir("second")
os.chdir("second")
open("a.csv", "a").close()
os.chdir(folder)
if (child := os.fork()) == 0:
    open("h.csv", "w").close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
os.rename(os.environ["TPUTUI_RUN_DIR"], "moved")
open("i.csv", "w").close()
"""


def run(file: Path, folder: Path, **variables: str) -> str:
    """Runs a program with the observers; returns its output."""
    done = subprocess.run(
        [sys.executable, str(file)],
        env=observed.environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
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


def test_opened_logs_are_listed_and_open_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OPENING)
    folder = tmp_path / "of the user"
    folder.mkdir()
    command = [sys.executable, str(tmp_path / "train.py"), str(folder)]
    done = subprocess.run(
        command, env=observed.environment(tmp_path), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    listing = (folder / "moved" / opened_logs_name(host_id())).read_bytes()
    listed = [Path(os.fsdecode(path)) for path in listing.split(b"\0")[:-1]]
    names = ["a.csv", "b.csv", "c.jsonl", "d.csv", "f.csv", "missing/g.csv", "second/a.csv", "h.csv"]
    assert listed == [folder / name for name in names]


@pytest.mark.slow
@pytest.mark.xla
def test_a_worker_of_a_loader_inherits_no_hook(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FORKING)
    assert run(tmp_path / "train.py", tmp_path, PJRT_DEVICE="CPU", TPUTUI_OBSERVE="all") == "{0}\n"
