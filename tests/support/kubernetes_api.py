"""As much of a Kubernetes API as KubeCluster calls: no API server can be had without a cluster."""

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


class StandIn:
    """Holds one DaskCluster, whose phase stays Pending though its scheduler runs.

    The operator's part is played by ``ports``, of a scheduler on this machine; None: no operator.
    """

    def __init__(self):
        self.ports = None
        self.cluster = None
        self.created = []

    def answer(self, method, path, body):
        """(status code, object) for a request."""
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
        for found in objects.get(folder, []):
            if found["metadata"]["name"] == name:
                if method == "DELETE":
                    self.cluster = None
                return 200, found
        return 404, {"kind": "Status", "status": "Failure", "code": 404, "message": "not found"}

    def objects(self):
        """All that there is, by the path of its kind."""
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
        return {
            CLUSTERS: [self.cluster],
            SERVICES: [_made("Service", "gpgc-scheduler", spec=service)],
            PODS: [
                _made("Pod", "gpgc-scheduler-1", status={"phase": "Running", "conditions": ready})
            ],
            NODES: [_made("Node", "here", status={"addresses": [address]})],
        }


def _made(kind, name, **parts):
    metadata = {"name": name, "namespace": "gpgc"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **parts}


@contextmanager
def serving(folder):
    """A stand-in that listens, and the kubeconfig that leads to it."""
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or "null")
            code, found = stand_in.answer(self.command, urlsplit(self.path).path, body)
            content = json.dumps(found).encode()
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
        yield stand_in, config
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
