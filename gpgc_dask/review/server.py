"""The server of the review page: loopback by default, one token, no files of the page's choice."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from tornado.httpserver import HTTPServer
from tornado.ioloop import IOLoop
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from gpgc_dask.core.errors import GpgcError, InputError
from gpgc_dask.results.report.page import read_parts
from gpgc_dask.review.state import OutdatedError, Review

__all__ = ["DEFAULT_PORT", "ReviewServer", "is_loopback", "serve_review"]

DEFAULT_PORT = 8765
"""Tried first; another free one is taken if it is not free. Pages keep unsent verdicts by port."""

TOKEN_VARIABLE = "GPGC_REVIEW_TOKEN"
MIN_TOKEN = 16

MAX_BODY = 8 << 20
"""Bytes of a request: the run lengths of the most fragmented mask of a picture need less."""

SCRIPTS = ("state.js", "painting.js", "stage.js", "regions.js", "brush.js", "page.js")
"""Parts of the script of the page, after what it shares with the report."""

THREADS = 4

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = logging.getLogger("gpgc_dask")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ReviewServer:
    """A review that is served over HTTP.

    Parameters
    ----------
    review : Review
        The state of the review.
    host : str, default "127.0.0.1"
        Address to listen at. Beyond loopback, others in the network who know the address with its
        token can look at the photos and decide.
    port : int or None
        Port to listen at; None takes :data:`DEFAULT_PORT` or, if it is not free, any other one.
    token : str, optional
        The secret of the address, of at least 16 characters; by default the content of the
        variable GPGC_REVIEW_TOKEN, or a random one.
    """

    def __init__(
        self,
        review: Review,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        token: str | None = None,
    ) -> None:
        self.review, self.host = review, host
        self.token = token or os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        if len(self.token) < MIN_TOKEN or not self.token.isascii():
            raise InputError(
                f"the token ({TOKEN_VARIABLE}) must have at least {MIN_TOKEN} ASCII characters"
            )
        self.sockets = _bind(host, port)
        self.port = int(self.sockets[0].getsockname()[1])
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="review")
        self._server: HTTPServer | None = None

    @property
    def url(self) -> str:
        """The address of the page. The token is in the fragment, which browsers do not send."""
        host = self.host
        if host in ("0.0.0.0", "::", ""):
            host = socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/#token={self.token}"

    def allows_host(self, header: str) -> bool:
        """Whether a request may name this host: a page of another domain names its own."""
        parts = urlsplit(f"//{header}")
        name = (parts.hostname or "").rstrip(".")
        try:
            if (parts.port or 80) != self.port:
                return False
        except ValueError:
            return False
        if is_loopback(name) or name == self.host.lower():
            return True
        if is_loopback(self.host):
            return False
        if name in (socket.gethostname().lower(), socket.getfqdn().lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def start(self) -> None:
        """Begin to answer, in the running event loop."""
        options: dict[str, Any] = {"server": self}
        routes: list[Any] = [
            (r"/(|page\.js|page\.css)", _Static, options),
            (r"/api/(start|sync|verdict|leave|fit)", _Call, options),
            (r"/api/picture/(\d{1,9})", _Picture, options),
        ]
        application = Application(
            routes, default_handler_class=_Nothing, default_handler_args=options, log_function=_log
        )
        self._server = HTTPServer(
            application, max_body_size=MAX_BODY, max_buffer_size=2 * MAX_BODY, body_timeout=60.0
        )
        self._server.add_sockets(self.sockets)

    async def stop(self) -> None:
        """Close all connections; verdicts that have arrived are stored."""
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
        self.pool.shutdown(wait=True)


def _bind(host: str, port: int | None) -> list[socket.socket]:
    if port is None:
        try:
            return bind_sockets(DEFAULT_PORT, host)
        except OSError:
            port = 0
    try:
        return bind_sockets(port, host)
    except OSError as error:
        raise InputError(
            f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another "
            "--port, or another --host"
        ) from None


def serve_review(server: ReviewServer, ready: Callable[[], None] = lambda: None) -> None:
    """Serve a review until Ctrl-C.

    Parameters
    ----------
    server : ReviewServer
    ready : callable, optional
        Called once the server answers.
    """

    async def run() -> None:
        server.start()
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            await server.stop()

    asyncio.run(run())


def _log(handler: RequestHandler) -> None:
    request = handler.request
    log.debug("%s %s: %s", request.method, request.path, handler.get_status())


class _Handler(RequestHandler):
    """Checks and headers that all answers have in common."""

    server: ReviewServer

    def initialize(self, server: ReviewServer) -> None:
        self.server = server

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        headers = self.request.headers
        host = headers.get("Host", "")
        if not self.server.allows_host(host):
            raise HTTPError(403, reason="Wrong host")
        origin = headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise HTTPError(403, reason="Wrong origin")
        # A link on another page may lead here; no other page may load anything from here.
        is_link = headers.get("Sec-Fetch-Mode") == "navigate" and self.request.path == "/"
        is_own = headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        if not (is_own or is_link):
            raise HTTPError(403, reason="Wrong origin")

    def check_token(self) -> None:
        sent = self.request.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(sent, f"Bearer {self.server.token}".encode()):
            raise HTTPError(401, reason="Wrong token")

    def write_error(self, status_code: int, **more: Any) -> None:
        """Answer with one line; no traceback leaves the server."""
        error = (more.get("exc_info") or (None, None, None))[1]
        expected = isinstance(error, GpgcError | OSError) and not isinstance(error, HTTPError)
        text = str(error) if expected else self._reason
        self.finish_json({"error": text})

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        if not isinstance(value, HTTPError | GpgcError):
            log.error("%s: %s", self.request.path, value, exc_info=(typ, value, tb))

    async def work(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in a thread, so that the server answers others meanwhile."""
        try:
            return await IOLoop.current().run_in_executor(self.server.pool, call, *arguments)
        except InputError as error:
            self.set_status(409 if isinstance(error, OutdatedError) else 400)
            self.finish_json({"error": str(error)})
        return None

    def finish_json(self, answer: Mapping[str, Any]) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.finish(json.dumps(answer))


class _Nothing(_Handler):
    """Any other path."""

    def prepare(self) -> None:
        super().prepare()
        raise HTTPError(404)


class _Static(_Handler):
    """The page itself, which is the same for everybody and holds no data."""

    def get(self, name: str) -> None:
        kind, content = _page()[name]
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish(content)


class _Call(_Handler):
    """Requests and answers in JSON."""

    async def post(self, name: str) -> None:
        self.check_token()
        request = self._request()
        review = self.server.review
        calls: Mapping[str, Callable[[], Any]] = {
            "start": review.start,
            "sync": lambda: review.sync(request),
            "verdict": lambda: review.save(request),
            "leave": lambda: review.leave(request),
            "fit": review.fit_again,
        }
        answer = await self.work(calls[name])
        if not self._finished:
            self.finish_json({} if answer is None else answer)

    def _request(self) -> dict[str, Any]:
        kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HTTPError(415, reason="Send JSON")
        try:
            request = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError):
            raise HTTPError(400, reason="Not JSON") from None
        if not isinstance(request, dict):
            raise HTTPError(400, reason="Not an object")
        return request


class _Picture(_Handler):
    """The picture of an image, by its number."""

    async def get(self, number: str) -> None:
        self.check_token()
        content = await self.work(self.server.review.picture, int(number))
        if not self._finished:
            self.set_header("Content-Type", "application/octet-stream")
            self.finish(content)


def _page() -> dict[str, tuple[str, str]]:
    """{name: (type, content)} of the page, its script and its style."""
    place = files("gpgc_dask.review")
    own = {name: place.joinpath(name).read_text("utf-8") for name in (*SCRIPTS, "page.html")}
    first, *rest = (own[name] for name in SCRIPTS)
    script = ['"use strict";', "(async () => {", first, *read_parts("pixels.js"), *rest, "})();"]
    style = "".join(read_parts("base.css")) + place.joinpath("page.css").read_text("utf-8")
    return {
        "": ("text/html", own["page.html"]),
        "page.js": ("text/javascript", "\n".join([*script, ""])),
        "page.css": ("text/css", style),
    }
