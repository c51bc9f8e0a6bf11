"""Observers start in a command of the user by the entry points of the package, and nowhere else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.helpers import tputui
from tests.test_reporter_api import of_type, read_events
from tputui.observers import autoload
from tputui.supervise.command import AUTOLOAD_VARIABLE, unobserved_reason
from tputui.telemetry import events as ev
from tputui.telemetry import rundir

ROOT = Path(__file__).parents[2]
SCRIPT = """
import torch_xla
import torch
model = torch.nn.Linear(8, 4).to(torch_xla.device())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for size in [16] * 7 + [5]:
    batch = torch.randn(size, 8).to(torch_xla.device())
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch_xla.sync()
"""


def declared() -> dict[str, dict[str, str]]:
    """The entry points of the package, by group."""
    groups: dict[str, dict[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return groups


def installed(folder: Path) -> Path:
    """A folder for the import path with the package's own entry points, as an installation has them."""
    metadata = folder / "observed-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: observed\nVersion: 0\n")
    lines = [f"[{group}]\n{name} = {target}\n" for group, named in declared().items() for name, target in named.items()]
    (metadata / "entry_points.txt").write_text("".join(lines))
    return folder


def test_entry_points_exist() -> None:
    for named in declared().values():
        for target in named.values():
            module, _, function = target.partition(":")
            assert not function or callable(getattr(import_module(module), function))


def test_nothing_is_imported_in_other_programs() -> None:
    code = (
        "import sys; before = set(sys.modules); from tputui.hooks import entry, frameworks; entry.torch_imported(); "
        "entry.jax_started(); frameworks.lightning_callbacks(); "
        "print(sorted(name for name in set(sys.modules) - before if 'tputui' in name), len(sys.meta_path))"
    )
    env = {name: value for name, value in os.environ.items() if name != rundir.RUN_DIR_VARIABLE}
    finders = len(sys.meta_path)
    printed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    modules = ["tputui", "tputui.hooks", "tputui.hooks.entry", "tputui.hooks.frameworks", "tputui.observers"]
    assert str([*modules, "tputui.observers.autoload"]) in printed
    assert int(printed.split()[-1]) <= finders


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="needs a pipe that keeps writes apart")
def test_a_printed_line_is_one_write_in_a_command(tmp_path: Path) -> None:
    code = "from tputui.observers import autoload; autoload.torch_imported(); print('loss', 0.5); print('a', 'b')"
    env = {**os.environ, rundir.RUN_DIR_VARIABLE: str(tmp_path), "PYTHONUNBUFFERED": "1"}
    # Each write to such a pipe is a packet of its own, and each read returns one.
    read, write = os.pipe2(os.O_DIRECT)
    with open(read, "rb", buffering=0) as packets:
        try:
            subprocess.run([sys.executable, "-c", code], env=env, stdout=write, check=True)
        finally:
            os.close(write)
        assert list(iter(lambda: packets.read(4096), b"")) == [b"loss 0.5\n", b"a b\n"]


def test_a_module_is_observed_after_its_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_later.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    seen: list[int] = []

    def act() -> None:
        seen.append(sys.modules["imported_later"].value)
        raise RuntimeError("must not reach the program")

    autoload.after_import("imported_later", act)
    import_module("imported_later")
    autoload.after_import("imported_later", act)
    assert seen == [1, 1]
    del sys.modules["imported_later"]


def test_disabled_extensions_of_torch_are_reported() -> None:
    assert unobserved_reason({}) is None
    assert unobserved_reason({AUTOLOAD_VARIABLE: "1"}) is None
    why = unobserved_reason({AUTOLOAD_VARIABLE: "0"})
    assert why is not None
    assert why.startswith("TORCH_DEVICE_BACKEND_AUTOLOAD is '0' in the environment of the command, so torch loads no")


@pytest.mark.slow
@pytest.mark.xla
def test_a_script_is_observed_without_a_change_to_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    path = os.pathsep.join([str(installed(tmp_path / "site")), str(ROOT)])
    words = ("--runs-dir", "runs", "run", "--no-ui", "--", sys.executable, "train.py")
    done = tputui(*words, cwd=tmp_path, PJRT_DEVICE="CPU", PYTHONPATH=path)
    assert done.code == 0, done.err
    [run_dir] = rundir.listing(tmp_path / "runs")
    # It trains, so it has a journal of its own, which the observers write to.
    events = read_events(run_dir / "worker-0.jsonl")
    [late] = [event for event in of_type(events, ev.CompileObserved) if not event.warm_up]
    assert late.user_frame == ev.CodeFrame(
        file=str(tmp_path / "train.py"), line=SCRIPT.splitlines().index("    torch_xla.sync()") + 1,
        function="<module>", owner="user", code="torch_xla.sync()",
    )  # fmt: skip
    assert late.changed_inputs == [ev.ChangedInput(name="batch", before="f32[16,8]", now="f32[5,8]")]
    shown = json.loads(tputui("show", str(run_dir), "--json").out)
    assert shown["state"] == "done"
    assert [core["core"] for core in shown["cores"]] == [0]
