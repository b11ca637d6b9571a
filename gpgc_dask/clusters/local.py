"""A cluster of processes on this machine."""

from __future__ import annotations

import logging

import dask
from distributed import LocalCluster

from gpgc_dask.clusters.request import ClusterRequest
from gpgc_dask.execution.cancel import ignore_interrupts

__all__ = ["DASK_SETTINGS", "start_local"]

DASK_SETTINGS = {
    # A worker that holds a second task while others idle makes a sweep wait for it at the end.
    "distributed.scheduler.worker-saturation": 1.0,
    # A worker that has stopped answering is given up after one minute instead of five.
    "distributed.scheduler.worker-ttl": "60s",
    # By default each process looks at its own clock 50 times per second, and each worker at what
    # it is doing 100 times, which costs time when all cores are busy.
    "distributed.admin.tick.interval": "200ms",
    "distributed.worker.profile.interval": "100ms",
}
"""Dask's settings for schedulers and workers that this package starts."""


def start_local(request: ClusterRequest) -> LocalCluster:
    """Start worker processes of one thread each.

    They leave Ctrl-C to this process, and log no more than it does.
    """
    request.reject_settings("local")
    tls = request.tls
    level = logging.getLogger("distributed").getEffectiveLevel()
    with ignore_interrupts(), dask.config.set(DASK_SETTINGS):
        cluster = LocalCluster(
            n_workers=request.start_count(dask.system.CPU_COUNT),
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=max(level, logging.WARNING),
            memory_limit=request.memory_limit or "auto",
            **({} if tls is None else {"security": tls.security(), "protocol": "tls://"}),
        )
    if request.is_adaptive:
        low, high = request.bounds(dask.system.CPU_COUNT)
        cluster.adapt(minimum=low, maximum=high)
    return cluster
