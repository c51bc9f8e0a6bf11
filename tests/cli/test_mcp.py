"""`tputui mcp`: the SDK's own client over stdio, against recorded runs and a run that trains."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from tests import recorded
from tests.cli.helpers import one_sentence, script, tputui
from tests.deadline import DEADLINE_S
from tests.supervise.harness import events_in, text_of, wait_for
from tputui.telemetry import events as ev
from tputui.telemetry import requests, rundir

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "agents.md").read_text()
[CONFIGURED] = re.findall(r"```json\n(.*?)```", PAGE, re.S)
[EXAMPLE] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
ANSWER_BYTES_MAX = 20_000
TRAINING = """
import tputui

run = tputui.start()
step = 0
while not run.should_stop():
    step += 1
    run.step(loss=1 / step)
    run.save_if_asked(lambda: open("saved.pt", "wb").write(b"weights") and "saved.pt")
    print("step", step, flush=True)
    tputui_pause.wait(0.02)
"""
Calls = Callable[[Client], Awaitable[None]]


def client_does(calls: Calls, runs: Path, *options: str, cwd: Path | None = None) -> None:
    """Starts the server as a client does that is configured as in the guide, makes the calls and closes it."""
    configured = json.loads(CONFIGURED)["mcpServers"]["tputui"]

    async def connected() -> None:
        words = [str(runs) if word == "/home/me/runs" else word for word in configured["args"]]
        argv = ["-P", "-m", configured["command"], *words, *options]
        server = StdioServerParameters(command=sys.executable, args=argv, env=dict(os.environ), cwd=cwd)
        with anyio.fail_after(DEADLINE_S):
            async with Client(server) as client:
                await calls(client)

    anyio.run(connected)


def text(answer: CallToolResult) -> str:
    """The text of an answer, which is all that it has."""
    [content] = answer.content
    assert isinstance(content, TextContent)
    assert len(content.text.encode()) <= ANSWER_BYTES_MAX
    assert answer.structured_content is None
    return content.text


async def called(client: Client, tool: str, **arguments: Any) -> Any:
    """The value that a tool answers with."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return json.loads(text(answer))


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The sentence with which a tool refuses."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return text(answer)


def printed(*words: str, runs: Path) -> Any:
    """The JSON value that a command prints."""
    done = tputui(*words, "--json", cwd=runs, TPUTUI_RUNS=str(runs))
    return json.loads(done.out)


def test_tools_answer_with_the_json_of_their_commands(tmp_path: Path) -> None:
    for name in ("first", "second"):
        recorded.write_run(tmp_path, run=name)

    async def calls(client: Client) -> None:
        assert (await called(client, "runs"))["runs"] == printed("runs", runs=tmp_path)
        assert [run["run"] for run in (await called(client, "runs", skip=1))["runs"]] == ["first"]
        assert (await called(client, "runs", tag="none"))["runs"] == []
        shown = await called(client, "show", run="first")
        assert {**shown, "now": 0} == {**printed("show", "first", runs=tmp_path), "now": 0}
        assert await called(client, "doctor", run="first") == printed("doctor", "first", runs=tmp_path)
        both = await called(client, "compare", runs=["first", "second"])
        assert both == printed("compare", "first", "second", runs=tmp_path)
        assert await called(client, "wait", run="first") == printed("wait", "first", runs=tmp_path)
        late = await called(client, "wait", run="first", until="los < 1", timeout_s=60)
        assert late["holds"] is False
        assert "did you mean loss?" in late["messages"][0]
        part = await called(client, "show", run="first", sections=["epochs", "config.optim.name"], entries=1, skip=1)
        assert ([epoch["epoch"] for epoch in part["epochs"]], part["config.optim.name"]) == ([2], "adam")
        assert "findings" in await called(client, "doctor")

    client_does(calls, tmp_path)


def test_errors_are_the_sentences_of_the_command_line(tmp_path: Path) -> None:
    recorded.write_run(tmp_path / "runs", run="first")
    recorded.write_run(tmp_path, run="outside")

    async def calls(client: Client) -> None:
        assert await refused(client, "show", run="furst") == (
            f"furst: no such run in {tmp_path / 'runs'}; did you mean first?"
        )
        for name in ("../outside", str(tmp_path / "outside"), "ssh://host/first", "--help", "", "a\x1b[2J", "x" * 9999):
            sentence = await refused(client, "show", run=name)
            assert sentence.endswith("is not the name of a run; `runs` lists them")
            assert sentence.isprintable()
        assert await refused(client, "show", run="outside") == f"outside: no such run in {tmp_path / 'runs'}; " + (
            "`tputui runs` lists the runs"
        )
        assert await refused(client, "show", run="first", entries="ten") == (
            "show: entries: Input should be a valid integer, unable to parse string as an integer"
        )
        assert await refused(client, "stop", run="first", when="soon") == (
            "stop: when: Input should be 'after_step', 'after_epoch' or 'now'"
        )
        assert await refused(client, "show") == "show: run: Field required"
        assert await refused(client, "compare", runs=["first"]) == "got 1 run; compare takes 2-8 runs"
        assert (await refused(client, "wait", run="first", until="loss <")).startswith("wait: argument --until: ")
        assert (await refused(client, "show", run="first", sections=["epoch5"])).startswith("no section epoch5; there")

    # A run in the directory of the client is none of the directory that is served.
    client_does(calls, tmp_path / "runs", "--allow-control", cwd=tmp_path)


def test_long_answers_are_cut_and_say_what_to_ask_for(tmp_path: Path) -> None:
    run_dir = rundir.create(tmp_path, recorded.manifest("long"))
    recorded.write_journal(run_dir / "worker-0.jsonl", recorded.worker_events(num_epochs=300))
    for number in range(100):
        rundir.create(tmp_path, msgspec.structs.replace(recorded.manifest(f"run-{number:02}"), created=number))

    async def calls(client: Client) -> None:
        shown = await called(client, "show", run="long")
        assert next(iter(shown)) == "left_out"
        total = len(printed("show", "long", runs=tmp_path)["epochs"])
        assert f"epochs ({len(shown['epochs'])} of {total} kept)" in shown["left_out"]
        assert shown["left_out"].endswith("such as sections=['epochs'], entries=20, skip=20")
        assert shown["epochs"][-1]["epoch"] == 300
        older = await called(client, "show", run="long", sections=["epochs"], entries=20, skip=20)
        assert [epoch["epoch"] for epoch in older["epochs"]] == list(range(261, 281))
        assert "left_out" not in older
        listed = await called(client, "runs")
        assert [run["run"] for run in listed["runs"][:2]] == ["long", "run-99"]
        kept = len(listed["runs"])
        assert f"runs ({kept} of 101 kept)" in listed["left_out"]
        rest = await called(client, "runs", skip=kept)
        assert rest["runs"][0]["run"] == f"run-{100 - kept}"

    client_does(calls, tmp_path)


@pytest.fixture
def training(tmp_path: Path, nothing_left: None) -> Path:
    """A run that trains until it is stopped."""
    pause = "import threading\ntputui_pause = threading.Event()\n"
    done = tputui(
        *("--runs-dir", "runs", "run", "--detach", "--name", "live", "--"),
        *(sys.executable, script(tmp_path, pause + TRAINING)),
        cwd=tmp_path,
    )
    assert done.code == 0, done.err
    wait_for(lambda: "step 3\n" in text_of(tmp_path / "runs/live/worker-0.log"), "the first steps")
    return tmp_path / "runs" / "live"


def test_a_run_saves_and_stops_on_request_if_that_is_allowed(training: Path) -> None:
    async def watches(client: Client) -> None:
        for tool in ("checkpoint", "stop"):
            assert await refused(client, tool, run="live") == (
                "this server is read-only: it saves and stops runs only if it is started by "
                "`tputui mcp --allow-control`"
            )
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert {name for name, hints in tools.items() if hints and hints.read_only_hint} == {
            *("runs", "show", "doctor", "compare", "wait")
        }
        waited = await called(client, "wait", run="live", timeout_s=0)
        assert (waited["state"], waited["holds"]) == ("running", False)

    async def controls(client: Client) -> None:
        saved = await client.call_tool("checkpoint", {"run": "live"})
        assert not saved.is_error
        assert re.search(r"^applied: after step [\d,]+, .*saved\.pt", text(saved), re.M)
        stopped = await client.call_tool("stop", {"run": "live", "when": "after_step"})
        assert not stopped.is_error, stopped
        assert text(stopped).startswith("requested: stop\n")
        waited = await called(client, "wait", run="live", timeout_s=500)
        assert (waited["state"], waited["holds"]) == ("stopped", True)
        assert (await refused(client, "stop", run="live")).startswith("live: the run has already ended (it is stopped")

    client_does(watches, training.parent)
    assert requests.read_all(training) == []
    client_does(controls, training.parent, "--allow-control")
    recorded_requests = [(request.kind, request.by) for request in requests.read_all(training)]
    assert recorded_requests == [("checkpoint", "tputui mcp"), ("stop", "tputui mcp")]
    assert events_in(training, "supervisor-0", ev.RunEnded)[-1].exit_code == 4


def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    recorded.write_run(tmp_path / "runs", run="first")
    example = script(tmp_path, EXAMPLE, "agent.py")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, example, "first"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    newest, older = map(json.loads, done.stdout.splitlines())
    assert ([epoch["epoch"] for epoch in newest["epochs"]], older["epochs"]) == ([1, 2, 3], [])


WITHOUT_SDK = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mcp":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_SDK)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = tputui("mcp", cwd=tmp_path, PYTHONPATH=path)
    assert done.code == 7, "as of serve without its extra"
    assert one_sentence(done) == (
        "tputui: mcp needs the SDK of the Model Context Protocol, version 2: pip install 'tputui[mcp]'"
    )


def test_a_closed_stdin_ends_the_server(tmp_path: Path) -> None:
    done = tputui("mcp", cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "", "")
