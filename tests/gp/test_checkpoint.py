"""Fits that are killed and resumed."""

from __future__ import annotations

import io
import resource
import signal
import subprocess
import sys

import fsspec
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gpgc_dask import GP, GPGC
from tests.support.problems import classification

DATA = classification(2000, 60, 60)


class StopError(Exception):
    pass


def interrupt_at(iteration):
    def listener(entry):
        if entry["iteration"] == iteration:
            raise StopError

    return listener


@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
@pytest.mark.parametrize("redundancy", [1.0, "auto"])
def test_resumed_fit_reaches_the_same_optimum(tmp_path, solver, redundancy):
    path = tmp_path / "fit.npz"
    given = {"solver": solver, "redundancy": redundancy}
    whole = GPGC(**given).fit(DATA.X, DATA.y, groups=DATA.groups)
    with pytest.raises(StopError):
        GPGC(**given, checkpoint=path, progress=interrupt_at(2)).fit(
            DATA.X, DATA.y, groups=DATA.groups
        )
    assert [file.name for file in tmp_path.iterdir()] == ["fit.npz"]
    resumed = GPGC(**given, checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert not path.exists()
    assert resumed.converged_
    np.testing.assert_allclose(resumed.noise_variance_, whole.noise_variance_, rtol=1e-2)
    assert resumed.redundancy_ == pytest.approx(whole.redundancy_, rel=1e-2)
    if redundancy == 1.0:
        assert resumed.log_evidence_ == pytest.approx(whole.log_evidence_, abs=1e-3)
    assert [entry["iteration"] for entry in resumed.history_] == list(range(resumed.n_iter_ + 2))
    assert resumed.n_reads_ >= whole.n_reads_


def test_resume_after_kill(tmp_path):
    """SIGKILL in the middle of a fit in another process.

    The other process reads the data from a file: a matrix product made anew there may round
    differently (BLAS shares the work out by the processors it finds), and a checkpoint knows that.
    """
    script = """
import os, signal, sys
import numpy as np
from gpgc_dask import GPGC
data = np.load(sys.argv[2])
def listener(entry):
    if entry["iteration"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
GPGC(checkpoint=sys.argv[1], progress=listener).fit(data["X"], data["y"], groups=data["groups"])
"""
    path, given = tmp_path / "fit.npz", tmp_path / "data.npz"
    np.savez(given, X=DATA.X, y=DATA.y, groups=DATA.groups)
    done = subprocess.run([sys.executable, "-c", script, path, given], check=False)
    assert done.returncode == -9
    assert path.exists()
    resumed = GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    whole = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)
    assert resumed.converged_
    np.testing.assert_allclose(resumed.noise_variance_, whole.noise_variance_, rtol=1e-2)


def test_checkpoint_of_another_fit_raises(tmp_path):
    path = tmp_path / "fit.npz"
    with pytest.raises(StopError):
        GPGC(checkpoint=path, progress=interrupt_at(1)).fit(DATA.X, DATA.y, groups=DATA.groups)
    other = np.where(DATA.groups == 0, 1 - DATA.y, DATA.y)
    with pytest.raises(ValueError, match="belongs to another fit; what differs: y and weights"):
        GPGC(checkpoint=path).fit(DATA.X, other, groups=DATA.groups)
    with pytest.raises(ValueError, match="noise model"):
        GP(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    with pytest.raises(ValueError, match="values of X"):
        GPGC(checkpoint=path).fit(DATA.X + 1, DATA.y, groups=DATA.groups)
    assert path.exists()


def test_unfinished_fit_can_be_resumed(tmp_path):
    path = tmp_path / "fit.npz"
    with pytest.warns(ConvergenceWarning):
        GPGC(checkpoint=path, max_iter=2).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert path.exists()
    model = GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert model.converged_
    assert not path.exists()


@pytest.mark.parametrize("redundancy", [1.0, "auto"])
def test_resumed_fit_takes_the_same_steps(tmp_path, redundancy):
    """A fit stopped at every iteration: no step is lost, and none is repeated."""
    given = (DATA.X, DATA.y)
    whole = GPGC(redundancy=redundancy).fit(*given, groups=DATA.groups)
    path = tmp_path / "fit.npz"
    for iteration in range(whole.n_iter_):
        with pytest.raises(StopError):
            GPGC(redundancy=redundancy, checkpoint=path, progress=interrupt_at(iteration)).fit(
                *given, groups=DATA.groups
            )
    resumed = GPGC(redundancy=redundancy, checkpoint=path).fit(*given, groups=DATA.groups)
    assert resumed.n_iter_ == whole.n_iter_
    for name in ("log_evidence", "redundancy", "predicted_gain"):
        np.testing.assert_allclose(
            [entry[name] for entry in resumed.history_],
            [entry[name] for entry in whole.history_],
            rtol=1e-6,
            err_msg=name,
        )
    np.testing.assert_allclose(resumed.noise_variance_, whole.noise_variance_, rtol=1e-6)


def test_finished_fit_is_not_repeated(tmp_path):
    """Killed between the end of the fit and the model on disk: only the second look is repeated."""
    path = tmp_path / "fit.npz"
    model = GPGC(checkpoint=path)
    model._keeps_checkpoint = True
    model.fit(DATA.X, DATA.y, groups=DATA.groups)
    resumed = GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    n = model.n_iter_
    assert resumed.history_[:n] == model.history_[:n]
    assert [entry["phase"] for entry in resumed.history_[n:]] == ["second look 1", "second look 2"]
    assert resumed.log_evidence_ == pytest.approx(model.log_evidence_, rel=1e-12)
    np.testing.assert_allclose(resumed.coef_, model.coef_, rtol=1e-9)


def test_resumed_fit_stays_in_float64(tmp_path):
    path = tmp_path / "fit.npz"
    X = (DATA.X * np.geomspace(1e-3, 1e3, DATA.X.shape[1])).astype(np.float32)
    X[:, 0] = X[:, 1] * (1 + 1e-6)
    whole = GPGC(dtype="float64").fit(X, DATA.y, groups=DATA.groups)
    with pytest.raises(StopError):
        GPGC(dtype="float64", checkpoint=path, progress=interrupt_at(2)).fit(
            X, DATA.y, groups=DATA.groups
        )
    resumed = GPGC(checkpoint=path).fit(X, DATA.y, groups=DATA.groups)
    assert {entry["arithmetic"] for entry in resumed.history_} == {
        entry["arithmetic"] for entry in whole.history_
    }


def test_checkpoint_at_a_url(tmp_path):
    """Any fsspec URL can be used."""
    url = f"memory://{tmp_path.name}/fit.npz"
    with pytest.raises(StopError):
        GPGC(checkpoint=url, progress=interrupt_at(2)).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert fsspec.filesystem("memory").exists(url)
    resumed = GPGC(checkpoint=url).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert resumed.converged_
    assert not fsspec.filesystem("memory").exists(url)


def test_a_full_disk_does_not_stop_a_fit(tmp_path):
    """No further state can be saved: the last one is still there, and the fit finishes."""
    path = tmp_path / "fit.npz"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill_disk(entry):
        if entry["iteration"] == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    model = GPGC(checkpoint=path, progress=fill_disk)
    model._keeps_checkpoint = True
    try:
        with pytest.warns(UserWarning, match=r"could not be saved .*fit\.npz.*: the fit continues"):
            model.fit(DATA.X, DATA.y, groups=DATA.groups)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert model.converged_
    assert [file.name for file in tmp_path.iterdir()] == ["fit.npz"]
    resumed = GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    np.testing.assert_allclose(resumed.noise_variance_, model.noise_variance_, rtol=1e-6)


def test_corruption_anywhere_raises(tmp_path):
    """500 files with some bytes changed, lost or added: each raises an error with its name."""
    small = classification(300, 8, 12)
    path = tmp_path / "fit.npz"
    model = GPGC(checkpoint=path)
    model._keeps_checkpoint = True
    model.fit(small.X, small.y, groups=small.groups)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(500):
        corrupted = damaged(content, rng)
        if corrupted == content:  # a part of no bytes
            continue
        path.write_bytes(corrupted)
        with pytest.raises(ValueError, match=r"fit\.npz cannot be read"):
            GPGC(checkpoint=path).fit(small.X, small.y, groups=small.groups)
        assert path.read_bytes() == corrupted


def damaged(content, rng):
    """Some bytes changed, a part lost, a part doubled, zeros in the middle."""
    kind = rng.integers(4)
    start, stop = np.sort(rng.integers(0, len(content), 2))
    if kind == 0:
        corrupted = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 5)):
            corrupted[place] ^= int(rng.integers(1, 256))
        return bytes(corrupted)
    if kind == 1:
        return content[:start]
    if kind == 2:
        return content[:stop] + content[start:]
    return content[:start] + bytes(int(stop - start)) + content[stop:]


def foreign_npz():
    buffer = io.BytesIO()
    np.savez(buffer, meta=np.frombuffer(b"{}", dtype=np.uint8))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 not really", b"\x93NUMPY\x01\x00", foreign_npz()]
)
def test_unreadable_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "fit.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"fit.npz cannot be read .* remove it"):
        GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
