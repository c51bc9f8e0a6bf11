"""A run in a notebook, in a real IPython kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import recorded
from tests.deadline import DEADLINE_S

pytest.importorskip("ipykernel")

PAGE = Path(__file__).parent.parent / "docs" / "guide" / "export-and-notebooks.md"


class Outputs(NamedTuple):
    """The messages of a cell."""

    displayed: list[dict[str, Any]]
    updated: list[dict[str, Any]]
    printed: str
    """What was written to the streams. A kernel may send one line in several messages."""
    other: list[dict[str, Any]]
    """Results and errors."""


class Kernel:
    """Executes cells."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, code: str) -> Outputs:
        displayed: list[dict[str, Any]] = []
        updated: list[dict[str, Any]] = []
        printed: list[str] = []
        other: list[dict[str, Any]] = []

        def take(message: dict[str, Any]) -> None:
            kind, content = message["msg_type"], message["content"]
            if kind == "display_data":
                displayed.append(content)
            elif kind == "update_display_data":
                updated.append(content)
            elif kind == "stream":
                printed.append(content["text"])
            elif kind in ("execute_result", "error"):
                other.append(content)

        reply = self._client.execute_interactive(code, output_hook=take, timeout=DEADLINE_S, allow_stdin=False)
        assert reply["content"]["status"] == "ok", reply["content"]
        return Outputs(displayed, updated, "".join(printed), other)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file

    path, _ = write_connection_file(str(tmp_path / "kernel.json"), transport="ipc", ip=str(tmp_path / "k"))
    env = {**os.environ, "TPUTUI_RUNS": str(tmp_path / "runs"), "IPYTHONDIR": str(tmp_path / "ipython")}
    with subprocess.Popen(
        [sys.executable, "-m", "ipykernel_launcher", "-f", path],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        client = BlockingKernelClient(connection_file=path)
        client.load_connection_file()
        # A kernel that does not answer for a second is taken for dead otherwise.
        client.hb_channel.time_to_dead = DEADLINE_S
        client.start_channels()
        try:
            client.wait_for_ready(timeout=DEADLINE_S)
            yield Kernel(client)
        finally:
            client.stop_channels()
            process.terminate()


def words(content: dict[str, Any]) -> str:
    """The text of an output."""
    html = content["data"]["text/html"]
    return " ".join("".join(ET.fromstring(re.sub("<style>.*?</style>", "", html, flags=re.S)).itertext()).split())


def shows_steps(content: dict[str, Any]) -> bool:
    """Whether an output has the steps, how many are planned, and the loss."""
    shown = words(content)
    return "loss 0.5000" in shown and re.search(r"step [\d,]+ of 10,000,000", shown) is not None


def test_a_run_is_one_output_that_is_updated_in_place(kernel: Kernel, tmp_path: Path) -> None:
    begun = kernel.run("import tputui\nrun = tputui.start(total_steps=10_000_000, name='mine')")
    assert (len(begun.displayed), begun.printed, begun.other) == (1, "", [])
    name = begun.displayed[0]["transient"]["display_id"]
    assert "starting" in words(begun.displayed[0])

    loop = "while time.monotonic() < began + 2.5: run.step(loss=0.5, examples=8)"
    trained = kernel.run(f"import time\nbegan = time.monotonic()\n{loop}\nprint(time.monotonic() - began)")
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until and not (trained.updated and shows_steps(trained.updated[-1])):
        # On a busy machine the first steps, and how many are planned, are shown later.
        trained = kernel.run(f"began = time.monotonic()\n{loop}\nprint(time.monotonic() - began)")
    assert (trained.displayed, trained.other) == ([], [])
    assert 1 <= len(trained.updated) <= float(trained.printed) + 1, "at most one a second, the first at any time"
    assert {update["transient"]["display_id"] for update in trained.updated} == {name}
    assert shows_steps(trained.updated[-1])
    assert "running" in words(trained.updated[-1])
    assert '<path class="tpu-t"' in trained.updated[-1]["data"]["text/html"]

    closed = kernel.run("run.close()")
    assert (closed.displayed, closed.printed, closed.other) == ([], "", [])
    assert 1 <= len(closed.updated) <= 2, "the end, and before it the last steps if an update of them was due"
    assert "done" in words(closed.updated[-1])
    assert "-mine done: " in closed.updated[-1]["data"]["text/plain"]

    # Another run, which has ended: one output, none for the value of the cell, and no update later.
    recorded.write_run(tmp_path / "runs", run="demo")
    watched = kernel.run(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)[1])
    assert (len(watched.displayed), watched.updated, watched.printed, watched.other) == (1, [], "", [])
    assert "best validation loss 0.1333 in epoch 3" in words(watched.displayed[0])
    heavy = kernel.run("import sys; print(*{'torch', 'numpy', 'textual', 'jax'} & {*sys.modules})")
    assert (heavy.printed.strip(), heavy.displayed, heavy.updated, heavy.other) == ("", [], [], [])


def test_nothing_is_shown_outside_of_a_notebook(tmp_path: Path) -> None:
    run_dir = recorded.write_run(tmp_path)
    code = (
        f"import IPython, tputui; from tputui.notebook import watch; assert watch({str(run_dir)!r}).wait(0)\n"
        "with tputui.start() as run: run.step(loss=1.0)\n"
        "try: watch('none')\nexcept ValueError as error: print(error)"
    )
    env = {**os.environ, "TPUTUI_RUNS": str(tmp_path / "runs")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout == f"no run 'none': neither a run directory nor a name in {tmp_path / 'runs'}\n"
    assert done.stderr == ""
