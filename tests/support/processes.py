"""A Dask cluster of separate processes over TLS, which tests kill, stop and limit in memory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
from distributed import Client

from gpgc_dask.clusters.certificates import make_certificates
from gpgc_dask.clusters.connect import connect
from gpgc_dask.clusters.kubernetes.pods import ALLOWED_FAILURES
from gpgc_dask.clusters.tls import TlsFiles
from tests.support.ports import free_ports

SHORT_TIMEOUTS = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(ALLOWED_FAILURES),
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "4s",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "1.0",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
}
"""Settings with which a scheduler removes silent workers sooner than by default.

Tests kill more workers than chance does: a task may be on as many as with gpgc deploy.
"""

SPAWNED = {"distributed.worker.multiprocessing-method": "spawn"}
"""Workers as users get them, with the current environment; tests/conftest.py sets forkserver."""


def tls_files(folder, role: str) -> TlsFiles:
    """Certificate files of a role in a folder of :func:`make_certificates`."""
    names = ("ca.pem", f"{role}.pem", f"{role}-key.pem")
    return TlsFiles(*(str(Path(folder) / name) for name in names))


class Processes:
    """One scheduler and some workers with nannies, each in its own process.

    hosts : addresses of the scheduler and of each worker, by default loopback
    within : function that returns the prefix of a command for a host
    """

    def __init__(
        self,
        folder,
        n_workers: int = 2,
        memory_limit: str = "2GB",
        hosts: list[str] | None = None,
        within=lambda host: [],
    ) -> None:
        self.folder = Path(folder)
        self.n_workers, self.memory_limit = n_workers, memory_limit
        self.hosts, self.within = hosts or ["127.0.0.1"] * (1 + n_workers), within
        self.certificates = self.folder / "tls"
        make_certificates(self.certificates)
        (self.port,) = free_ports(1)
        self.scheduler: subprocess.Popen | None = None
        self.workers: list[subprocess.Popen] = []
        self.log = (self.folder / "cluster.log").open("ab")

    @property
    def address(self) -> str:
        return f"tls://{self.hosts[0]}:{self.port}"

    def _start(self, host: str, *command: str, role: str) -> subprocess.Popen:
        files = tls_files(self.certificates, role)
        tls = ["--tls-ca-file", files.ca, "--tls-cert", files.cert, "--tls-key", files.key]
        return subprocess.Popen(
            [*self.within(host), sys.executable, "-m", "dask", *command, "--host", host, *tls],
            env=os.environ | SHORT_TIMEOUTS,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def start(self) -> None:
        self.scheduler = self._start(
            self.hosts[0],
            *("scheduler", "--port", str(self.port), "--protocol", "tls", "--no-dashboard"),
            role="scheduler",
        )
        self.workers = [
            self._start(
                host,
                *("worker", self.address, "--nthreads", "1", "--no-dashboard"),
                *("--memory-limit", self.memory_limit, "--death-timeout", "30"),
                *("--local-directory", str(self.folder)),
                role="worker",
            )
            for host in self.hosts[1:]
        ]

    def wait(self, client: Client) -> None:
        client.wait_for_workers(self.n_workers, timeout=60)

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.workers, self.scheduler = [], None

    def worker_pids(self) -> list[int]:
        """Process ids of the workers, which their nannies restart if they die."""
        pids = []
        for nanny in self.workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                pids += [
                    child.pid
                    for child in psutil.Process(nanny.pid).children(recursive=True)
                    if "spawn_main" in " ".join(child.cmdline())
                ]
        return pids

    def connect(self):
        return connect(self.address, tls=tls_files(self.certificates, "client"))

    def tls_options(self, role: str = "client") -> list[str]:
        files = tls_files(self.certificates, role)
        return ["--tls-ca", files.ca, "--tls-cert", files.cert, "--tls-key", files.key]

    def __enter__(self) -> Processes:
        self.start()
        deadline = time.monotonic() + 60
        while self.hosts[0] == "127.0.0.1" and not self._answers() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def __exit__(self, *error) -> None:
        self.stop()
        self.log.close()
