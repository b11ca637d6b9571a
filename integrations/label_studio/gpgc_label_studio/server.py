"""The protocol of Label Studio's ML backends."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from gpgc_dask.core.errors import GpgcError

from .backend import Backend

logger = logging.getLogger("gpgc_label_studio")

LARGEST_REQUEST = 1 << 30
"""Bytes: a request has up to 100 tasks with their annotations."""

SUBMITTED = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED")
TRAINING = "START_TRAINING"


class _Handler(RequestHandler):
    def initialize(self, backend: Backend, pool: ThreadPoolExecutor) -> None:
        self.backend, self.pool = backend, pool

    def content(self) -> dict[str, Any]:
        """The request. Pages of other sites cannot send JSON without being asked for permission."""
        if self.request.headers.get("Content-Type", "").partition(";")[0] != "application/json":
            raise HTTPError(415)
        try:
            content = json.loads(self.request.body)
        except ValueError:
            raise HTTPError(400) from None
        if not isinstance(content, dict):
            raise HTTPError(400)
        return content

    async def work(self, function: Any, *arguments: Any) -> Any:
        """Run in the one thread that works; a GpgcError is answered with its message."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.pool, function, *arguments)
        except GpgcError as error:
            logger.warning("%s", error)
            self.set_status(400)
            self.finish({"error": str(error)})
            return None


class _Health(_Handler):
    def get(self) -> None:
        self.finish({"status": "UP", "model_class": "GPGC"})


class _Versions(_Handler):
    def get(self) -> None:
        self.finish({"versions": [self.backend.version]})


class _Setup(_Handler):
    def post(self) -> None:
        self.content()
        self.finish({"model_version": self.backend.version})


class _Predict(_Handler):
    async def post(self) -> None:
        content = self.content()
        tasks, config = content.get("tasks") or [], content.get("label_config") or ""
        results = await self.work(self.backend.predict, tasks, config)
        if results is not None:
            self.finish({"results": results, "model_version": self.backend.version})


class _Webhook(_Handler):
    async def post(self) -> None:
        content = self.content()
        action = content.get("action")
        if action in SUBMITTED:
            add, task = self.backend.add_annotation, content.get("task") or {}
            done = await self.work(add, task, content.get("annotation") or {})
            if done is not None:
                self.finish({"result": done})
        elif action == TRAINING:
            if not self.backend.can_fit:
                self.set_status(400)
                self.finish({"error": "start the backend with --dataset and --refit-to"})
                return
            self.pool.submit(_fit, self.backend)  # Label Studio does not wait for it
            self.set_status(201)
            self.finish({"job": "fit"})
        else:
            self.finish({"result": f"ignored: {action}"})


class _Nothing(_Handler):
    """Requests of Label Studio that need no work here."""

    def post(self) -> None:
        self.finish({})


def _fit(backend: Backend) -> None:
    try:
        logger.info("fitted again: %s", backend.fit())
    except Exception:
        logger.exception("the fit failed; the backend goes on with %s", backend.version)


def make_application(backend: Backend) -> Application:
    """The routes of the protocol. One thread predicts and fits; the others answer meanwhile."""
    own = {"backend": backend, "pool": ThreadPoolExecutor(1)}
    routes = {
        "/": _Health, "/health": _Health, "/versions": _Versions, "/setup": _Setup,
        "/predict": _Predict, "/webhook": _Webhook, "/delete": _Nothing,
        "/duplicate_model": _Nothing, "/job_status": _Nothing,
    }  # fmt: skip
    return Application([(route, handler, own) for route, handler in routes.items()])


async def _serve(application: Application, host: str, port: int) -> None:
    sockets = bind_sockets(port, host)
    server = HTTPServer(application, max_buffer_size=LARGEST_REQUEST)
    server.add_sockets(sockets)
    print(f"http://{host}:{sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


def main(arguments: list[str] | None = None) -> None:
    """The program ``gpgc-label-studio``."""
    parser = argparse.ArgumentParser(
        description="Serve the masks and scores of a model to Label Studio. LABEL_STUDIO_URL and "
        "LABEL_STUDIO_API_KEY are for photos that were uploaded to it."
    )
    parser.add_argument("model", help="model of gpgc fit: a path or URL")
    parser.add_argument("--document-root", help="Label Studio's folder of local files")
    parser.add_argument("--dataset", help="the model's dataset: takes submitted annotations")
    parser.add_argument("--refit-to", help="where to write models that are fitted again")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9090)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        backend = Backend(
            options.model,
            document_root=options.document_root,
            url=os.environ.get("LABEL_STUDIO_URL", ""),
            token=os.environ.get("LABEL_STUDIO_API_KEY", ""),
            dataset=options.dataset,
            refit_to=options.refit_to,
        )
    except GpgcError as error:
        parser.exit(2, f"gpgc-label-studio: {error}\n")
    try:
        asyncio.run(_serve(make_application(backend), options.host, options.port))
    except KeyboardInterrupt:
        parser.exit(130)


if __name__ == "__main__":
    main()
