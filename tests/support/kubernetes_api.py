"""The part of the Kubernetes API that KubeCluster calls: real servers need a real cluster."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import yaml

CLUSTERS = "/apis/kubernetes.dask.org/v1/namespaces/gpgc/daskclusters"
SERVICES, PODS = "/api/v1/namespaces/gpgc/services", "/api/v1/namespaces/gpgc/pods"
NODES = "/api/v1/nodes"


class FakeApi:
    """Holds one DaskCluster, whose phase stays Pending although its scheduler runs.

    ports : ports of a scheduler on this machine, which the operator would have started; None is a
        cluster without an operator
    """

    def __init__(self):
        self.ports = None
        self.cluster = None
        self.created = []

    def answer(self, method, path, body):
        """Answer a request: (status code, object)."""
        if path == "/version/":
            return 200, {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
        if (method, path) == ("POST", CLUSTERS):
            self.cluster = body | {"status": {"phase": "Pending"}}
            self.created.append(body)
            return 201, self.cluster
        folder, _, name = path.rpartition("/")
        objects = self.objects()
        if path in objects:
            return 200, {"kind": "List", "metadata": {}, "items": objects[path]}
        for candidate in objects.get(folder, []):
            if candidate["metadata"]["name"] == name:
                if method == "DELETE":
                    self.cluster = None
                return 200, candidate
        return 404, {"kind": "Status", "status": "Failure", "code": 404, "message": "not found"}

    def objects(self):
        """All objects that exist, by the path of their kind."""
        if self.cluster is None:
            return {CLUSTERS: []}
        if self.ports is None:
            return {CLUSTERS: [self.cluster]}
        names = ("tcp-comm", "http-dashboard")
        ports = [{"name": n, "nodePort": p} for n, p in zip(names, self.ports, strict=True)]
        service = self.cluster["spec"]["scheduler"]["service"]
        service = service | {"type": "NodePort", "ports": ports}  # reached without forwarding
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        address = {"type": "InternalIP", "address": "127.0.0.1"}
        running = {"phase": "Running", "conditions": ready}
        return {
            CLUSTERS: [self.cluster],
            SERVICES: [_resource("Service", "gpgc-scheduler", spec=service)],
            PODS: [_resource("Pod", "gpgc-scheduler-1", status=running)],
            NODES: [_resource("Node", "here", status={"addresses": [address]})],
        }


def _resource(kind, name, **parts):
    metadata = {"name": name, "namespace": "gpgc"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **parts}


@contextmanager
def serve_api(folder):
    """Start the API; yield it and the path of its kubeconfig."""
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            code, result = api.answer(self.command, urlsplit(self.path).path, body)
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
