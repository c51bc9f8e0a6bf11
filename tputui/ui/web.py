"""The screen in a browser: textual-serve, guarded by a secret.

The secret is part of the address, so that it protects the page, its files and its websocket. The server is bound to
loopback, and refuses requests that name another host or come from the page of another site.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import secrets
import signal
import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from textual_serve.server import Server

HOST = "127.0.0.1"
TOKEN_BYTES = 24
FONT_PX = 15
COOKIE = "tputui"
"""Holds the secret for downloads, whose address textual-serve chooses."""

_REFUSAL = "This address lacks the secret that `tputui serve` printed, or has an old one."
_FOREIGN = "This server only answers requests to its own address."
_SHUTDOWN_S = 5.0

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self' ws:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="static/css/xterm.css">
<script src="static/js/textual.js"></script>
<script src="keys.js" defer></script>
<style>
@font-face {{ font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }}
html, body {{ margin: 0; height: 100%; background: #0e1218; color: #dfe6ee; font-family: monospace; }}
#terminal {{ width: 100vw; height: 100vh; }}
.ended {{ display: none; position: absolute; inset: 0; align-items: center; justify-content: center; z-index: 1; }}
body.-closed .ended {{ display: flex; background: #0e1218; }}
</style>
</head>
<body>
<div class="ended">This view was left. Reload the page to open it again.</div>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{websocket}" data-font-size="{font}"></div>
</body>
</html>
"""

_KEYS = """addEventListener("load", () => document.querySelector(".xterm-helper-textarea")?.focus());
"""
"""Focuses the terminal, so that it takes keys without a click."""


class GuardedServer(Server):
    """Serves the terminal of a command to requests with the secret."""

    def __init__(self, command: str, port: int, title: str, token: str) -> None:
        """`command` is a shell command, run once per page that is opened."""
        super().__init__(command, host=HOST, port=port, title=title, public_url=f"http://{HOST}:{port}")
        self.token = token
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}

    @property
    def address(self) -> str:
        """The address of the page, including the secret."""
        return f"{self.public_url}/{self.token}/"

    def application(self) -> web.Application:
        """The guarded application."""
        inner = web.Application()
        inner.add_routes(
            [
                web.get("/", self._page),
                web.get("/keys.js", self._keys),
                web.get("/ws", self.handle_websocket),
                web.static("/static", self.statics_path),
            ]
        )
        outer = web.Application(middlewares=[self._guard()])
        outer.add_subapp(f"/{self.token}", inner)
        outer.add_routes([web.get("/download/{key}", self.handle_download)])
        outer.on_response_prepare.append(_add_headers)
        return outer

    def _guard(self) -> Middleware:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            refusal = self._refusal(request)
            if refusal is not None:
                raise web.HTTPForbidden(text=refusal)
            return await handler(request)

        return guard

    def _refusal(self, request: web.Request) -> str | None:
        """The reason why a request is refused; None if it is allowed."""
        origin = request.headers.get("Origin", "")
        if request.host not in self._hosts or (origin and origin.removeprefix("http://") not in self._hosts):
            return _FOREIGN
        first = request.path.split("/")[1]
        token = request.cookies.get(COOKIE, "") if first == "download" else first
        return None if hmac.compare_digest(token.encode(), self.token.encode()) else _REFUSAL

    async def _page(self, request: web.Request) -> web.Response:
        websocket = f"ws://{request.host}/{self.token}/ws"
        page = _PAGE.format(title=html.escape(self.title), websocket=html.escape(websocket), font=FONT_PX)
        response = web.Response(text=page, content_type="text/html")
        response.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict", path="/download")
        return response

    async def _keys(self, _: web.Request) -> web.Response:
        return web.Response(text=_KEYS, content_type="text/javascript")


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def new_token() -> str:
    """Return a random secret."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def listen(port: int) -> socket.socket:
    """Return a listening socket on loopback; port 0 takes a free one. Raises `OSError`."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def serve(command: str, listening: socket.socket, title: str, announce: Callable[[str], Any]) -> None:
    """Serve until SIGINT or SIGTERM; `announce` gets the address once the server answers."""
    server = GuardedServer(command, listening.getsockname()[1], title, new_token())
    asyncio.run(_serve(server, listening, announce))


async def _serve(server: GuardedServer, listening: socket.socket, announce: Callable[[str], Any]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        announce(server.address)
        await ended.wait()
    finally:
        await runner.cleanup()
