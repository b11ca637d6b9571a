"""Scheduler and workers must run the same program as the process that connects to them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client
from distributed.versions import VersionMismatchWarning

from gpgc_dask.core.errors import VersionError

__all__ = ["IMAGE_VARIABLE", "INSTALL", "check_versions", "without_dasks_table"]

IMAGE_VARIABLE = "GPGC_IMAGE"
"""Environment variable with the name of the image that a pod runs."""

PACKAGES = ("gpgc_dask", "dask", "distributed", "numpy", "zarr")

SHORT = ("python", "numpy", "zarr")
"""Of these the first two numbers must agree: they exchange data and code with any patch release."""

INSTALL = "install the same on both sides (pip install)"


def check_versions(client: Client, way_out: str = INSTALL) -> None:
    """Raise a VersionError if scheduler or workers run another image or other versions.

    Parameters
    ----------
    client : distributed.Client
        Connection to the cluster.
    way_out : str
        What to do, for the message.
    """
    here, there = _programs(client)
    for place, program in there.items():
        differences = [
            f"{name} {_text(program.get(name))} (here {_text(own)})"
            for name, own in here.items()
            if _comparable(name, program.get(name)) != _comparable(name, own)
        ]
        if differences:
            raise VersionError(f"{place} has {', '.join(differences)}: {way_out}")


@contextmanager
def without_dasks_table() -> Iterator[None]:
    """Hide Dask's table of versions while a client connects: check_versions names what matters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VersionMismatchWarning)
        yield


def _programs(client: Client) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """What runs here, {name: version}, and at the other places, by place."""
    # Dask's own handler and a function of Python: workers without the package can run them.
    versions: dict[str, Any] = client.get_versions(packages=PACKAGES)
    names = ("python", *PACKAGES)
    here = _choose(versions["client"], names)
    there = {"the scheduler": _choose(versions["scheduler"], names)}
    for address, answer in versions["workers"].items():
        there[f"worker {address}"] = _choose(answer, names)
    image = os.getenv(IMAGE_VARIABLE)
    if image:
        here["image"] = image
        there["the scheduler"]["image"] = client.run_on_scheduler(os.getenv, IMAGE_VARIABLE)
        for address, other in client.run(os.getenv, IMAGE_VARIABLE, on_error="ignore").items():
            there.setdefault(f"worker {address}", dict(here))["image"] = other
    return here, there


def _choose(answer: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: answer["packages"].get(name) for name in names}


def _comparable(name: str, version: str | None) -> str | None:
    if version is None or name not in SHORT:
        return version
    return ".".join(version.split(".")[:2])


def _text(version: str | None) -> str:
    return "missing" if version is None else version.removesuffix(".final.0")
