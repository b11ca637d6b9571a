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

__all__ = ["Sizes", "shape_of"]

MIB = 1 << 20

CALM_SHARE = 0.7
"""Of a worker's memory: what the plan may fill before Dask spills (0.7) and pauses (0.8)."""

USUAL_BYTES = 8192 * MIB
"""Of a worker for fits that nobody has told yet: enough for 4,113 features on 16 threads."""

NANNY_BYTES = 256 * MIB
"""The process that watches over a worker, in the same container."""

SCHEDULER_BYTES = 1024 * MIB
SQUARES_AT_SCHEDULER = 8
"""k×k float64 arrays that may pass through the scheduler at a time, with copies."""


@dataclass(frozen=True)
class Sizes:
    """Bytes, in whole MiB.

    worker_limit : what Dask may use in a worker
    worker, driver, scheduler : of their containers; the driver's is 0 where there is no fit
    """

    worker_limit: int
    worker: int
    driver: int
    scheduler: int

    @classmethod
    def of(cls, settings: Settings) -> Sizes:
        """With the redundancy solved for, which needs more than a given one."""
        shape = settings.shape
        if settings.memory is not None:
            limit = int(parse_bytes(settings.memory)) // MIB * MIB
        elif shape is not None:
            limit = _whole(
                worker_bytes(shape, settings.threads, estimate_redundancy=True) / CALM_SHARE
            )
        else:
            limit = USUAL_BYTES
        squares = 0 if shape is None else SQUARES_AT_SCHEDULER * 8 * shape.n_features**2
        return cls(
            worker_limit=limit,
            worker=limit + NANNY_BYTES,
            driver=0 if shape is None else _whole(driver_bytes(shape) / CALM_SHARE),
            scheduler=_whole(SCHEDULER_BYTES + squares),
        )


def _whole(n_bytes: float) -> int:
    """Rounded up to 256 MiB: figures that people can compare with those of their nodes."""
    step = 256 * MIB
    return -int(-n_bytes // step) * step


def shape_of(images: int | None, features: int, plan: Path | None) -> Shape | None:
    """The data's: of so many images, or of what ``gpgc plan --json`` printed; None of neither."""
    if images is not None and plan is not None:
        raise InputError("--images and --plan both say what to size by: choose one")
    if images is not None:
        return Shape.from_images(images, features)
    if plan is None:
        return None
    try:
        return Shape(**json.loads(plan.read_text())["shape"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{plan} is not what gpgc plan DATA --json prints ({type(error).__name__}: {error}): "
            "write it anew with that"
        ) from error
