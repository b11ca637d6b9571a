"""Settings from Dask's configuration, in numbers and with units."""

from __future__ import annotations

import subprocess
import sys

import dask
import pytest

from gpgc_dask.core import config
from gpgc_dask.core.errors import InputError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(3, 3.0), ("2 minutes", 120.0), ("90s", 90.0), ("500 ms", 0.5), ("1.5 hours", 5400.0)],
)
def test_times_have_units(value, seconds):
    with dask.config.set({"gpgc.cluster.reconnect-timeout": value}):
        assert config.seconds("cluster.reconnect-timeout") == seconds


def test_a_time_that_cannot_be_read():
    with (
        dask.config.set({"gpgc.cluster.reconnect-timeout": "soon"}),
        pytest.raises(InputError, match=r"gpgc\.cluster\.reconnect-timeout is 'soon'"),
    ):
        config.seconds("cluster.reconnect-timeout")


def test_defaults():
    assert config.number("store.tries") == 5
    assert config.seconds("cluster.no-workers-timeout") == 600


def test_the_environment_is_enough_without_dask():
    code = (
        "import sys; from gpgc_dask.core import config; "
        "print(config.number('store.tries'), 'dask' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"DASK_GPGC__STORE__TRIES": "9", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "9.0 False\n"
