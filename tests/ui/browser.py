"""A headless Chromium, driven over its debugging protocol: what a page shows, and keys pressed in it."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.deadline import DEADLINE_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """The program; None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """The one page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self.received = b""
        """What the page's own websockets were sent by the server."""
        self.requested: list[str] = []
        """Addresses that the page asked for."""

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == self._number:
                assert "error" not in message, message
                answer: dict[str, Any] = message["result"]
                return answer

    async def until_received(self, wanted: bytes) -> None:
        """Waits until the server has sent something to the page's websocket."""
        while wanted not in self.received:
            await self._next()

    async def picture(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode((await self.ask("Page.captureScreenshot"))["data"])

    async def press(self, key: str) -> None:
        """Presses and releases a key that is a character."""
        await self.ask("Input.dispatchKeyEvent", type="keyDown", text=key, key=key)
        await self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await asyncio.wait_for(self._socket.receive_json(), DEADLINE_S)
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            data = frame["payloadData"]
            self.received += base64.b64decode(data) if frame["opcode"] == 2 else data.encode()
        elif message.get("method") == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        return message


@asynccontextmanager
async def opened(program: str, profile: Path) -> AsyncIterator[Page]:
    """A browser with an empty page, ended afterwards. `profile` is a directory of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(
            [
                program,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--enable-unsafe-swiftshader",
                "--disable-background-networking",
                "--no-first-run",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
                "--window-size=1400,900",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # It leaves a socket there when it is ended. The name of a socket must be short.
            env={**os.environ, "TMPDIR": scratch},
        )
        try:
            port = await _port(profile / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = await answer.json()
                address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    page = Page(socket)
                    await page.ask("Network.enable")
                    await page.ask("Page.enable")
                    yield page
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


async def _port(port_file: Path) -> int:
    async with asyncio.timeout(DEADLINE_S):
        while not port_file.is_file() or not port_file.read_text():
            await asyncio.sleep(0.05)
    return int(port_file.read_text().splitlines()[0])
