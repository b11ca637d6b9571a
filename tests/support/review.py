"""A server of a review in a thread, or as a process of its own, and requests to it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager

from gpgc_dask.data.verdicts import VerdictLog
from gpgc_dask.review.server import ReviewServer
from gpgc_dask.storage.location import Location

TOKEN = "a-token-of-the-tests"


@contextmanager
def serving(review, **options):
    """The server of a review, in a thread, at a free port."""
    server = ReviewServer(review, **{"port": 0, "token": TOKEN} | options)
    ready, loop = threading.Event(), asyncio.new_event_loop()
    end = asyncio.Event()

    async def run():
        server.start()
        ready.set()
        await end.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(20)
        loop.close()


def request(port, path, body=None, *, token=TOKEN, method=None, raw=None, **headers):
    """(status, content, headers) of a request; JSON is decoded."""
    content = raw if raw is not None else None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} if content is not None else {}
    sent |= {} if token is None else {"Authorization": f"Bearer {token}"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=content, headers=sent, method=method
    )
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            status, found, own = answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        status, found, own = error.code, error.read(), error.headers
    if "json" in own.get("Content-Type", ""):
        found = json.loads(found)
    return status, found, own


def verdict(image, kind="confirmed", **more):
    """The body of a request that stores a verdict."""
    return {"id": uuid.uuid4().hex, "image": image, "kind": kind, "name": "anna", **more}


def read_log(place):
    return VerdictLog(Location.of(place)).read()


class ReviewProcess:
    """``gpgc review`` as a process, which tests kill."""

    def __init__(self, data, model, port, **environment):
        command = [sys.executable, "-m", "gpgc_dask", "review", str(data), str(model)]
        self.process = subprocess.Popen(
            [*command, "--no-browser", "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        lines = []
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", "".join(lines))):
            line = self.process.stdout.readline()
            assert line, f"the server has ended: {''.join(lines)}"
            lines.append(line)
        self.port, self.token = int(found[1]), found[2]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
