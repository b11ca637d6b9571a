"""Fits that are killed and go on."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from gpgc_dask import GP, GPGC
from tests.problems import classification

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
def test_a_stopped_fit_goes_on_to_the_same_optimum(tmp_path, solver, redundancy):
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
    assert [entry["iteration"] for entry in resumed.history_] == list(range(resumed.n_iter_))
    assert resumed.n_reads_ >= whole.n_reads_


def test_killed_outright(tmp_path):
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


def test_another_fits_checkpoint_is_refused(tmp_path):
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


def test_an_unfinished_fit_can_go_on(tmp_path):
    path = tmp_path / "fit.npz"
    with pytest.warns(ConvergenceWarning):
        GPGC(checkpoint=path, max_iter=2).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert path.exists()
    model = GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
    assert model.converged_
    assert not path.exists()


def foreign_npz():
    buffer = io.BytesIO()
    np.savez(buffer, meta=np.frombuffer(b"{}", dtype=np.uint8))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 not really", b"\x93NUMPY\x01\x00", foreign_npz()]
)
def test_a_damaged_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "fit.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"fit.npz cannot be read .* remove it"):
        GPGC(checkpoint=path).fit(DATA.X, DATA.y, groups=DATA.groups)
