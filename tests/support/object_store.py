"""An S3 server on this machine, behind a proxy that fails or delays requests on demand."""

from __future__ import annotations

import http.client
import logging
import random
import socket
import struct
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from moto.server import ThreadedMotoServer

BUSY = b"<Error><Code>%s</Code><Message>not now</Message></Error>"
FAILURES = (
    (500, BUSY % b"InternalError"),
    (503, BUSY % b"SlowDown"),
    (503, BUSY % b"ServiceUnavailable"),
    None,  # the connection is reset
)
PER_HOP = {"connection", "transfer-encoding", "keep-alive", "date", "server"}


class Proxy(ThreadingHTTPServer):
    """Passes requests on to the server, and lets some of them fail.

    failing : share of the requests with a ``wanted`` path that fail
    answer : the failure; None is a random one of FAILURES
    delay : seconds before each answer
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.random = random.Random(0)
        self.heal()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def heal(self) -> None:
        """Stop failures and delays, and set the counters to 0."""
        self.failing, self.delay = 0.0, 0.0
        self.requests, self.failed = 0, 0
        self.wanted = lambda path: True
        self.answer = None

    def handle_error(self, request, client_address) -> None:
        pass  # the client has closed the connection


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Proxy

    def log_message(self, format, *args) -> None:
        pass

    def _pass_on(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy.requests += 1
        time.sleep(proxy.delay)
        if proxy.random.random() < proxy.failing and proxy.wanted(self.path):
            proxy.failed += 1
            self._fail(proxy.answer or proxy.random.choice(FAILURES))
            return
        connection = http.client.HTTPConnection(*proxy.upstream)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in PER_HOP | {"content-length"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    def _fail(self, failure) -> None:
        if failure is None:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()
            return
        status, content = failure
        content = b"" if self.command == "HEAD" else content
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def object_store():
    """Start a :class:`Proxy` for an S3 server with the empty bucket "bucket"."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
    proxy = Proxy(server.get_host_and_port())
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    # All servers of a process share their contents.
    for method, path in (("POST", "/moto-api/reset"), ("PUT", "/bucket")):
        connection = http.client.HTTPConnection(*server.get_host_and_port())
        connection.request(method, path, headers={"Authorization": AUTHORIZATION})
        assert connection.getresponse().status == 200
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        server.stop()


AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request"
