"""The screen in a browser: access control, and that it is the same screen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.deadline import DEADLINE_S

pytest.importorskip("textual_serve", reason="needs the extra `serve`")

import aiohttp
import psutil

from tests import recorded
from tests.supervise.harness import is_running, wait_for
from tests.ui import browser
from tputui.cli import serve as command
from tputui.telemetry import requests
from tputui.ui import web


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that accepts requests."""
    return recorded.write_run(tmp_path, ended=False)


class Served:
    """`tputui serve` in its own process."""

    def __init__(self, *words: str, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tputui", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TERM": "xterm-256color", **environ},
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def end(self) -> int:
        """End it by SIGINT."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode


@pytest.fixture
def served(run_dir: Path) -> Iterator[Served]:
    """The list of runs, read-only."""
    server = Served("--runs-dir", str(run_dir.parent), "serve")
    yield server
    assert server.end() == 0


def ask(script: Callable[[aiohttp.ClientSession], Awaitable[None]]) -> None:
    """Run a script with an HTTP client."""

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as client:
            await script(client)

    asyncio.run(run())


def test_requests_without_the_secret_get_no_answer(served: Served) -> None:
    home, _, token = served.address.rstrip("/").rpartition("/")
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    port = home.rpartition(":")[2]

    async def script(client: aiohttp.ClientSession) -> None:
        for path in ("", "ws", "static/js/textual.js", f"{wrong}/", f"{wrong}/ws", f"{wrong}/keys.js", "download/x"):
            async with client.get(f"{home}/{path}") as answer:
                assert answer.status == 403, path
                assert "lacks the secret" in await answer.text()
                assert token not in str(answer.headers)
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await client.ws_connect(f"{home}/{wrong}/ws")
        foreign = {"Origin": "http://evil.example"}
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await client.ws_connect(f"{served.address}ws", headers=foreign)
        async with client.get(served.address, headers={"Host": f"evil.example:{port}"}) as answer:
            assert answer.status == 403

    ask(script)


def test_a_server_that_is_killed_leaves_no_process_behind(run_dir: Path) -> None:
    server = Served("--runs-dir", str(run_dir.parent), "serve")
    pages: list[int] = []

    async def script(client: aiohttp.ClientSession) -> None:
        async with client.ws_connect(f"{server.address}ws?width=100&height=30") as socket:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    break
            pages.extend(child.pid for child in psutil.Process(server.process.pid).children(recursive=True))
            server.process.kill()

    ask(script)
    server.process.communicate(timeout=DEADLINE_S)
    assert pages
    wait_for(lambda: not any(is_running(pid) for pid in pages), "the end of the pages")


@pytest.mark.parametrize("folders", [[], ["tests/without_proc"]], ids=["linux", "without /proc"])
def test_page_loads_nothing_external_and_draws_the_list(run_dir: Path, folders: list[str]) -> None:
    root = Path(__file__).parents[2]
    path = os.pathsep.join(os.fspath(root / folder) for folder in [*folders, ""])
    served = Served("--runs-dir", str(run_dir.parent), "serve", PYTHONPATH=path)

    async def script(client: aiohttp.ClientSession) -> None:
        async with client.get(served.address) as answer:
            page = await answer.text()
            assert answer.status == 200
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert "https://" not in page
            assert page.count("http://") == 0
        async with client.ws_connect(f"{served.address}ws?width=100&height=30") as socket:
            drawn = b""
            async for message in socket:
                drawn += message.data if message.type is aiohttp.WSMsgType.BINARY else b""
                if b"digits-1" in drawn:
                    break

    ask(script)
    children = psutil.Process(served.process.pid).children(recursive=True)
    assert served.end() == 0
    assert not any(child.is_running() for child in children)


def test_server_listens_on_loopback_only(served: Served) -> None:
    assert served.address.startswith("http://127.0.0.1:")


def test_secrets_are_long_and_unique() -> None:
    secrets = {web.new_token() for _ in range(50)}
    assert len(secrets) == 50
    assert min(map(len, secrets)) >= 32


def test_pages_send_no_requests_unless_allowed(run_dir: Path) -> None:
    parent = run_dir.parent
    assert command.command_line(parent, None, control=False).endswith(" --read-only")
    assert "--read-only" not in command.command_line(parent, None, control=True)
    ended = recorded.write_run(parent, run="digits-2")
    assert f" attach {ended} --read-only" in command.command_line(parent, ended, control=False)
    assert f" {run_dir} --read-only" in command.command_line(parent, run_dir, control=False)


def test_port_in_use_is_reported(run_dir: Path) -> None:
    with web.listen(0) as taken:
        port = taken.getsockname()[1]
        words = ["--runs-dir", str(run_dir.parent), "serve", "--port", str(port)]
        said = subprocess.run(
            [sys.executable, "-P", "-m", "tputui", *words], capture_output=True, text=True, timeout=DEADLINE_S
        )
    assert said.returncode == 2
    assert said.stderr.splitlines() == [f"tputui: serve: port {port}: Address already in use"]


def test_missing_extra_names_package_to_install(run_dir: Path) -> None:
    script = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'textual_serve' else found(name)\n"
        "from tputui.cli.main import main\n"
        "sys.exit(main(['serve']))\n"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert said.returncode == 7
    assert said.stderr.splitlines() == ["tputui: serve needs extra packages: pip install 'tputui[serve]'"]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(browser.find() is None, reason="there is no Chromium on this machine")
def test_browser_shows_the_screen_read_only(run_dir: Path, tmp_path: Path) -> None:
    program = browser.find()
    assert program is not None
    server = Served("--runs-dir", str(run_dir.parent), "serve", str(run_dir))

    async def script() -> None:
        async with asyncio.timeout(DEADLINE_S), browser.opened(program, tmp_path / "profile") as page:
            await page.ask("Page.navigate", url=server.address)
            await page.until_received(b"LOST")
            await page.until_received(b"panels")
            await page.press("?")
            await page.until_received(b"leave this screen")
            await page.press("?")
            await page.press("c")
            await page.until_received(b"checkpoint: ")
            blank = len(await page.picture())
            assert blank > 10_000
            assert all(address.startswith(server.address) for address in page.requested), page.requested

    try:
        asyncio.run(script())
    finally:
        assert server.end() == 0
    assert requests.read_all(run_dir) == []
