"""The part of the Kubernetes API that KubeCluster calls: real servers need a real cluster."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import yaml

CLUSTERS = "/apis/kubernetes.dask.org/v1/daskclusters"
SERVICES, PODS, EVENTS = "/api/v1/services", "/api/v1/pods", "/api/v1/events"
NODES = "/api/v1/nodes"


class FakeApi:
    """Holds one DaskCluster, whose phase stays Pending although its scheduler runs.

    ports : ports of a scheduler on this machine, which the operator would have started; None is a
        cluster without an operator
    waiting : statuses of pods of the cluster that do not start, by name
    late : number of lists of pods for which the scheduler's pod is not ready
    events, nodes : objects of these kinds
    forbidden : kinds that may not be listed
    """

    def __init__(self):
        self.ports = None
        self.created = []
        self.reset()

    def reset(self):
        self.cluster = None
        self.waiting, self.late, self.events, self.forbidden = {}, 0, [], ()
        address = {"type": "InternalIP", "address": "127.0.0.1"}
        self.nodes = [_resource("Node", "here", status={"addresses": [address]})]

    def answer(self, method, path, body, query=""):
        """Answer a request: (status code, object)."""
        if path == "/version/":
            return 200, {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
        path = re.sub("/namespaces/[a-z0-9-]+", "", path)  # objects of all namespaces
        if (method, path) == ("POST", CLUSTERS):
            name = body["metadata"]["name"]
            if self.cluster is not None and self.cluster["metadata"]["name"] == name:
                return _failure(409, f'daskclusters.kubernetes.dask.org "{name}" already exists')
            self.cluster = body | {"status": {"phase": "Pending"}}
            self.created.append(body)
            return 201, self.cluster
        folder, _, name = path.rpartition("/")
        if path in self.forbidden:
            return _failure(403, f"{name} is forbidden")
        objects = self.objects()
        if path == PODS:
            self.late = max(self.late - 1, 0)
        if path in objects:
            items = [each for each in objects[path] if _is_selected(each, parse_qs(query))]
            return 200, {"kind": "List", "metadata": {}, "items": items}
        for candidate in objects.get(folder, []):
            if candidate["metadata"]["name"] == name:
                if method == "DELETE":
                    self.cluster = None
                return 200, candidate
        return _failure(404, "not found")

    def objects(self):
        """All objects that exist, by the path of their kind."""
        rest = {EVENTS: self.events, NODES: self.nodes}
        if self.cluster is None:
            return {CLUSTERS: []} | rest
        if self.ports is None:
            return {CLUSTERS: [self.cluster]} | rest
        cluster = self.cluster["metadata"]["name"]
        names = ("tcp-comm", "http-dashboard")
        ports = [{"name": n, "nodePort": p} for n, p in zip(names, self.ports, strict=True)]
        service = self.cluster["spec"]["scheduler"]["service"]
        service = service | {"type": "NodePort", "ports": ports}  # reached without forwarding
        running = {
            "phase": "Running",
            "conditions": [condition("Ready"), condition("ContainersReady")],
        }
        statuses = {f"{cluster}-scheduler-1": running} if not self.late else {}
        pods = [
            _resource("Pod", name, status=status, labels=_labels(cluster, name))
            for name, status in (statuses | self.waiting).items()
        ]
        return {
            CLUSTERS: [self.cluster],
            SERVICES: [_resource("Service", f"{cluster}-scheduler", spec=service)],
            PODS: pods,
        } | rest


def _is_selected(item, query):
    """Whether an object has the labels, and a pod the phase, of a query."""
    selectors = ",".join(query.get("labelSelector", []))
    labels = dict(part.split("=") for part in selectors.split(",") if part)
    running = "status.phase=Running" in query.get("fieldSelector", [])
    return labels.items() <= item["metadata"].get("labels", {}).items() and not (
        running and item["status"].get("phase") != "Running"
    )


def condition(kind, status="True", **parts):
    """A condition of a pod."""
    return {"type": kind, "status": status, **parts}


def _labels(cluster, pod):
    component = "scheduler" if "scheduler" in pod else "worker"
    return {"dask.org/cluster-name": cluster, "dask.org/component": component}


def _failure(code, message):
    return code, {"kind": "Status", "status": "Failure", "code": code, "message": message}


def _resource(kind, name, labels=None, **parts):
    metadata = {"name": name, "namespace": "gpgc", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **parts}


@contextmanager
def serve_api(folder):
    """Start the API; yield it and the path of its kubeconfig."""
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            url = urlsplit(self.path)
            code, result = api.answer(self.command, url.path, body, url.query)
            content = json.dumps(result).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PATCH = handle_any  # noqa: N815

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = folder / "kubeconfig"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": url}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            }
        )
    )
    try:
        yield api, config
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
