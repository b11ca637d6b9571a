"""Cost of what surrounds a fit: ingest, and the review that estimates the quality of each mask."""

from __future__ import annotations

from dataclasses import dataclass

from gpgc_dask.planning.memory import PROCESS_BYTES
from gpgc_dask.planning.resources import Resources

__all__ = ["TYPICAL_INGEST", "TYPICAL_REVIEW", "IngestCost", "ReviewCost", "Stage"]


@dataclass(frozen=True)
class Stage:
    """One command of the pipeline, or a part of it.

    Attributes
    ----------
    name : str
        Such as "ingest".
    seconds : float
        Wall time.
    worker_bytes : int
        Peak memory of a worker, the Python process included.
    """

    name: str
    seconds: float
    worker_bytes: int


# Costs by default, in seconds of one core, of photos of 500×375 pixels with 300 superpixels and two
# classes. Measure them again, after a change of ingest or review, by benchmarks/plans.py --costs.

INGEST_SECONDS = 0.057
"""One photo: decoding, superpixels, network, pooling."""

INGEST_STORED = 1.08
"""With the writing of parts, and their assembly into chunks, relative to without."""

INGEST_BYTES = 150 << 20
"""Memory of a worker in addition to that of the process: the network, one photo, one part."""

GIVEN_SECONDS, REGION_SECONDS = 0.002, 0.1
"""One mask: its description; regions where it may be wrong."""

COPY_SECONDS, LEARNING_SECONDS = 0.002, 2.1
"""One copy of a mask with an error; the regressions."""

ROW_SECONDS = 2e-7
"""One row at the driver: calibration and agreement."""

REVIEW_BYTES = 128 << 20
"""Memory of a worker in addition to that of the process: maps of some images, regressions."""

ROW_BYTES = 100
"""Memory of the driver per row: decision values, probabilities, classes, areas, images."""

FEWEST_IMAGES = 30
"""With fewer there are no copies and nothing is learned."""

COPIES_PER_IMAGE, MOST_COPIES = 6.0, 1800.0
"""Copies that the regressions learn from: 12 of each of half of the images, 100 to 200 in all."""


@dataclass(frozen=True)
class IngestCost:
    """Seconds of one core per photo, and memory of a worker.

    Attributes
    ----------
    photo_seconds : float
        Decoding, superpixels, network and pooling of one photo.
    name : str
        Where the figures come from.
    """

    photo_seconds: float
    name: str = "typical"

    def stage(self, images: int, resources: Resources) -> Stage:
        """Time and memory of an ingest."""
        cores = min(resources.workers * resources.threads, max(images, 1))
        seconds = images * self.photo_seconds * INGEST_STORED / cores
        return Stage("ingest", seconds, PROCESS_BYTES + resources.threads * INGEST_BYTES)


@dataclass(frozen=True)
class ReviewCost:
    """Seconds of one core for the parts of a review.

    Attributes
    ----------
    given_seconds : float
        Describing one mask.
    copy_seconds : float
        Drawing an error into a mask and describing it.
    learning_seconds : float
        Learning the quality of masks from the copies.
    region_seconds : float
        Finding regions of one image where its mask may be wrong.
    name : str
        Where the figures come from.
    """

    given_seconds: float
    copy_seconds: float
    learning_seconds: float
    region_seconds: float
    name: str = "typical"

    def stage(self, images: int, rows: int, resources: Resources) -> Stage:
        """Time and memory of a review with predictions that the fit has kept."""
        cores = max(resources.workers * resources.threads, 1)
        learns = images >= FEWEST_IMAGES
        copies = min(COPIES_PER_IMAGE * images, MOST_COPIES) if learns else 0.0
        learning = self.learning_seconds if learns else 0.0
        work = images * (self.given_seconds + self.region_seconds) + copies * self.copy_seconds
        # The regressions are one task per fold, five in each of two passes.
        seconds = work / cores + learning / min(cores, 5) + rows * ROW_SECONDS
        needed = PROCESS_BYTES + resources.threads * REVIEW_BYTES
        if not resources.separate:
            needed += ROW_BYTES * rows
        return Stage("review", seconds, needed)


TYPICAL_INGEST = IngestCost(INGEST_SECONDS)
TYPICAL_REVIEW = ReviewCost(GIVEN_SECONDS, COPY_SECONDS, LEARNING_SECONDS, REGION_SECONDS)
