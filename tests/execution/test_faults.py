"""Fits on separate processes over TLS that are killed, stopped and starved, and end the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from distributed.utils import get_mp_context

from gpgc_dask import RunOptions, load
from gpgc_dask.cli import main
from gpgc_dask.core.errors import ClusterError
from gpgc_dask.execution.compute import compute_on
from gpgc_dask.pipelines.train import train
from tests.support.processes import Processes
from tests.support.superpixels import write_dataset

pytestmark = pytest.mark.newest

N, K = 60_000, 384
PAPER = {"redundancy": 1.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "data.zarr", N, K, 900)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return train(data, tmp_path_factory.mktemp("undisturbed") / "m.zarr", parameters=PAPER)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(autouse=True)
def _many_tasks(monkeypatch):
    monkeypatch.setattr(
        "gpgc_dask.gp.oracle.dask.count_tasks", lambda n_rows, n_features, n_threads: 12
    )


@pytest.fixture
def rng(request):
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # shown where the test fails
    return random.Random(seed)


def check_same(model, undisturbed):
    assert model.converged_
    assert abs(model.log_evidence_ - undisturbed.log_evidence_) <= 1e-6 * N
    np.testing.assert_allclose(model.noise_variance_, undisturbed.noise_variance_, rtol=0.02)
    np.testing.assert_allclose(
        model.review_["agreement"], undisturbed.review_["agreement"], atol=0.02
    )


class Faults:
    """Calls ``strike(client)`` a moment after a computation on the cluster has begun."""

    def __init__(self, monkeypatch, strike, rng, *, at=None, within=0.4):
        self.strike, self.rng, self.at, self.within = strike, rng, at, within
        self.computations = self.struck = 0
        monkeypatch.setattr("gpgc_dask.execution.compute.compute_on", self._compute)

    def _compute(self, client, collections, watch):
        self.computations += 1
        if self.at is not None and self.computations not in self.at:
            return compute_on(client, collections, watch)
        timer = threading.Timer(self.rng.uniform(0, self.within), self._strike, [client])
        timer.start()
        try:
            return compute_on(client, collections, watch)
        finally:
            timer.join()

    def _strike(self, client):
        self.struck += bool(self.strike(client))


@pytest.mark.parametrize("attempt", [1, 2])
def test_workers_killed_in_every_phase(
    processes, data, undisturbed, tmp_path, monkeypatch, rng, attempt
):
    """The sample, the first read, every step, the certificate, the review: a kill in each."""

    def kill(client):
        pids = processes.worker_pids()
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
        return pids

    faults = Faults(monkeypatch, kill, rng)
    model = train(
        data, tmp_path / "m.zarr", parameters=PAPER, run=RunOptions(client=processes.connect())
    )
    check_same(model, undisturbed)
    assert faults.computations >= 5
    assert faults.struck >= 5


def test_workers_that_stop_answering(processes, data, undisturbed, tmp_path, monkeypatch, rng):
    """One for a moment, one for longer than the scheduler waits; both come back."""
    awake = []
    pauses = iter([1.0, 8.0])

    def stop(client):
        pid = rng.choice(processes.worker_pids())
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(next(pauses), os.kill, [pid, signal.SIGCONT])
        timer.start()
        awake.append(timer)
        return True

    faults = Faults(monkeypatch, stop, rng, at=(2, 4), within=0.1)
    with processes.connect() as client:
        processes.wait(client)
        model = train(data, tmp_path / "m.zarr", parameters=PAPER)
    check_same(model, undisturbed)
    assert faults.struck == 2
    for timer in awake:
        timer.join()


def eat(gigabytes):
    """Runs on a worker, beyond what it may have."""
    eaten = []
    for _ in range(int(gigabytes * 10)):
        eaten.append(np.ones(int(1e8 / 8)))
        time.sleep(0.02)
    return len(eaten)


def test_workers_out_of_memory(processes, data, undisturbed, tmp_path, monkeypatch, rng):
    """A greedy task of somebody else's brings workers down in the middle of a read."""
    greedy = []

    def starve(client):
        worker = rng.choice(list(client.nthreads()))
        greedy.append(client.submit(eat, 4, workers=[worker], pure=False, priority=100))
        time.sleep(3)
        client.cancel(greedy)
        return True

    faults = Faults(monkeypatch, starve, rng, at=(2, 3), within=0.1)
    with processes.connect() as client:
        processes.wait(client)
        before = set(processes.worker_pids())
        model = train(data, tmp_path / "m.zarr", parameters=PAPER)
        processes.wait(client)
        assert set(processes.worker_pids()) != before, "nobody ran out of memory"
    check_same(model, undisturbed)
    assert faults.struck == 2


def test_a_scheduler_that_comes_back(tmp_path, data, undisturbed, monkeypatch, rng):
    """All workers go with it; the driver waits, and begins the read anew."""
    with Processes(tmp_path) as own:

        def kill(client):
            own.stop()
            own.start()
            return True

        faults = Faults(monkeypatch, kill, rng, at=(2, 4))
        with own.connect() as client:
            own.wait(client)
            model = train(data, tmp_path / "m.zarr", parameters=PAPER)
    check_same(model, undisturbed)
    assert faults.struck == 2


def test_a_scheduler_that_is_gone(tmp_path, data, undisturbed, monkeypatch, rng):
    """The driver stops and says how to go on; going on elsewhere ends the same."""
    import dask

    target = tmp_path / "m.zarr"
    with Processes(tmp_path) as own, monkeypatch.context() as patch:

        def kill(client):
            own.stop()
            return True

        Faults(patch, kill, rng, at=(4,))
        start = time.monotonic()
        with (
            dask.config.set({"gpgc.cluster.reconnect-timeout": "3s"}),
            own.connect() as client,
        ):
            own.wait(client)
            with pytest.raises(ClusterError, match=r"scheduler went away .* --resume"):
                train(data, target, parameters=PAPER)
        assert time.monotonic() - start < 60
    assert not target.exists()
    check_same(train(data, target, parameters=PAPER, run=RunOptions(resume=True)), undisturbed)


def test_no_worker_left(tmp_path, data, monkeypatch, rng):
    import dask

    monkeypatch.setattr("gpgc_dask.execution.compute.LOOK_SECONDS", 0.5)
    with Processes(tmp_path) as own:

        def kill(client):
            for worker in own.workers:
                os.killpg(worker.pid, signal.SIGKILL)
            return True

        Faults(monkeypatch, kill, rng, at=(2,))
        with (
            dask.config.set({"gpgc.cluster.no-workers-timeout": "2s"}),
            own.connect() as client,
        ):
            own.wait(client)
            with pytest.raises(ClusterError, match=r"no worker for 2 s: start some, .*--resume"):
                train(data, tmp_path / "m.zarr", parameters=PAPER)


def run_quietly(words):
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    main(words)


def test_the_driver_killed_five_times(processes, data, undisturbed, tmp_path, rng):
    """The program itself, at random moments; each time the same command with --resume.

    Drivers that are to be killed are forked off a process that has imported everything, which
    takes longer than the fit.
    """
    target = tmp_path / "m.zarr"
    words = ["fit", str(data), "-o", str(target), "--resume", "--redundancy", "1.0", "--json"]
    words += ["--scheduler", processes.address, *processes.tls_options()]
    checkpoint = tmp_path / "m.zarr.unfinished.npz"
    kills = 0
    while kills < 5:
        driver = get_mp_context().Process(target=run_quietly, args=[words])
        driver.start()
        reads, seen = rng.choice([0, 1, 1, 2]), _written(checkpoint)
        while driver.is_alive() and reads:
            if _written(checkpoint) != seen:
                reads, seen = reads - 1, _written(checkpoint)
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.5))
        driver.kill()
        driver.join()
        if driver.exitcode == -signal.SIGKILL:
            kills += 1
        else:  # it was done before: start again
            assert driver.exitcode == 0
            shutil.rmtree(target)
    command = [sys.executable, "-m", "gpgc_dask", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["converged"]
    assert not checkpoint.exists()
    check_same(load(target), undisturbed)


def _written(checkpoint):
    """When a checkpoint was written last; None where there is none."""
    try:
        return checkpoint.stat().st_mtime_ns
    except FileNotFoundError:
        return None
