"""Memory of each pod, from the plan of the fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dask.utils import parse_bytes

from gpgc_dask.clusters.kubernetes.settings import Settings
from gpgc_dask.core.errors import InputError
from gpgc_dask.planning.memory import driver_bytes, worker_bytes
from gpgc_dask.planning.shape import Shape
from gpgc_dask.planning.sweeps import ROUNDS

__all__ = ["Sizes", "shape_of"]

MIB = 1 << 20

CALM_SHARE = 0.7
"""Share of a worker's memory that the plan may fill: Dask spills at 0.7 and pauses at 0.8."""

DEFAULT_BYTES = 8192 * MIB
"""Memory per worker if the data is not known: enough for 4,113 features on 16 threads."""

NANNY_BYTES = 256 * MIB
"""Memory of the process that restarts a worker, in the same container."""

DRIVER_BYTES = 4096 * MIB
"""Memory of the driver of a command that is not a fit."""

SCHEDULER_BYTES = 1024 * MIB
SQUARES_AT_SCHEDULER = 8
"""Number of k×k float64 arrays, copies included, that the scheduler may hold at a time."""


@dataclass(frozen=True)
class Sizes:
    """Memory of each pod in bytes, a multiple of 1 MiB.

    Attributes
    ----------
    worker_limit : int
        Memory that Dask may use in a worker.
    worker, driver, scheduler : int
        Memory of their containers.
    """

    worker_limit: int
    worker: int
    driver: int
    scheduler: int

    @classmethod
    def of(cls, settings: Settings) -> Sizes:
        """Memory for a fit that solves for the redundancy, which needs more than a given one."""
        shape = settings.shape
        if settings.memory_limit is not None:
            limit = int(parse_bytes(settings.memory_limit)) // MIB * MIB
        elif shape is not None:
            limit = _whole(
                worker_bytes(shape, settings.threads, estimate_redundancy=True, rounds=ROUNDS)
                / CALM_SHARE
            )
        else:
            limit = DEFAULT_BYTES
        squares = 0 if shape is None else SQUARES_AT_SCHEDULER * 8 * shape.n_features**2
        return cls(
            worker_limit=limit,
            worker=limit + NANNY_BYTES,
            driver=DRIVER_BYTES
            if shape is None
            else _whole(driver_bytes(shape, rounds=ROUNDS) / CALM_SHARE),
            scheduler=_whole(SCHEDULER_BYTES + squares),
        )


def _whole(n_bytes: float) -> int:
    """Round up to 256 MiB, so that figures are easy to compare with those of nodes."""
    step = 256 * MIB
    return -int(-n_bytes // step) * step


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0  # also False and True


def shape_of(images: int | None, features: int, plan: Path | None) -> Shape | None:
    """Shape of the data, from a number of images or from the output of ``gpgc plan --json``."""
    if images is not None and plan is not None:
        raise InputError("--images and --plan both describe the data: choose one")
    if images is not None:
        return Shape.from_images(images, features)
    if plan is None:
        return None
    try:
        values = json.loads(plan.read_text(encoding="utf-8"))["shape"]
        wrong = [name for name, value in values.items() if not _is_count(value)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} must be numbers of 0 or more")
        return Shape(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{plan} is not the output of gpgc plan DATA --json ({type(error).__name__}: {error}): "
            "write it again with that command"
        ) from error
