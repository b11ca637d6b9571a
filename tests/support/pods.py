"""The commands of pods, run as processes on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import dask

from tests.support.manifests import containers, environment

ROOT = Path(__file__).parents[2]


@contextmanager
def processes():
    """Yield a function that starts processes, which end with the context."""
    running = []

    def start(arguments, variables):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        every = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | variables
        running.append(
            subprocess.Popen(arguments, env=every, stdout=subprocess.DEVNULL, stderr=sys.stderr)
        )
        return running[-1]

    try:
        yield start
    finally:
        for process in reversed(running):  # workers before their scheduler
            process.terminate()
            process.wait(timeout=60)


def local(settings, name, comm, dashboard, certificates):
    """(arguments, environment) with which a container runs as a process here."""

    def here(text):
        text = text.replace("gpgc-scheduler.gpgc.svc:8786", f"127.0.0.1:{comm}")
        text = text.replace("0.0.0.0", "127.0.0.1").replace(":8787", f"127.0.0.1:{dashboard}")
        text = text.replace("/certificates", str(certificates))
        return re.sub("^8786$", str(comm), text.replace("$(DASK_WORKER_NAME)", "pod-1"))

    container = containers(settings)[name]
    variables = {key: here(value) for key, value in environment(container).items()}
    return [here(argument) for argument in container["args"]], variables


def own_config(settings, certificates, name):
    """Dask's configuration in a container, for this process."""
    _, variables = local(settings, name, 0, 0, certificates)
    return dask.config.merge(dask.config.config, dask.config.collect(paths=[], env=variables))
