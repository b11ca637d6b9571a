"""Settings that users can change, in one table.

A setting is looked up in Dask's configuration under ``gpgc.NAME``, so that it can be given in a
YAML file, by ``dask.config.set`` or in the environment of each process: ``gpgc.store.tries`` is
``DASK_GPGC__STORE__TRIES``. This module does not import Dask: if Dask is not loaded, only the
environment is read.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from gpgc_dask.core.errors import InputError

__all__ = ["DEFAULTS", "number", "seconds"]

DEFAULTS: dict[str, str | float] = {
    "store.tries": 5,
    "store.wait": 1.0,
    "store.seconds": 90.0,
    "cluster.reconnect-timeout": "2 minutes",
    "cluster.no-workers-timeout": "10 minutes",
    "update.stale-after": "20 s",
}
"""{setting: default}.

store.tries
    Maximum number of requests, including the first one.
store.wait
    Seconds before the second request; three times as long before each further one.
store.seconds
    Seconds after the first request until which it is repeated.
cluster.reconnect-timeout
    Time for which a client looks for a scheduler that it has lost.
cluster.no-workers-timeout
    Time to wait for a worker if there is none left.
update.stale-after
    Time after which an update of a dataset in an object store counts as dead if it does not write.
"""

UNITS = {
    "ms": 1e-3,
    "s": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
}


def number(name: str) -> float:
    """Return a setting as a number."""
    return float(_find(name))


def seconds(name: str) -> float:
    """Return a setting in seconds; text may have a unit, such as "2 minutes"."""
    value = _find(name)
    if not isinstance(value, str):
        return float(value)
    match = re.fullmatch(r"\s*([\d.]+)\s*([a-z]*)\s*", value.lower())
    unit = "s" if match is None or not match[2] else match[2]
    if unit not in UNITS:
        unit = unit.removesuffix("s")
    if match is None or unit not in UNITS:
        raise InputError(f"gpgc.{name} is {value!r}: give seconds, or text such as '2 minutes'")
    return float(match[1]) * UNITS[unit]


def _find(name: str) -> Any:
    config: Any = sys.modules.get("dask.config")
    if config is not None:
        return config.get(f"gpgc.{name}", DEFAULTS[name])
    variable = "DASK_GPGC__" + name.upper().replace(".", "__").replace("-", "_")
    return os.environ.get(variable, DEFAULTS[name])
