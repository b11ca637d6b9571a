"""What a review costs on this machine, from its parts on masks that are drawn for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask
import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.threads import one_blas_thread
from gpgc_dask.planning.stages import ReviewCost
from gpgc_dask.quality.corruption import corrupt, follow_superpixels
from gpgc_dask.quality.descriptors import describe
from gpgc_dask.quality.predictions import FOLDS, Evidence, read_images
from gpgc_dask.quality.quality_regression import Copies, cross_predict
from gpgc_dask.quality.region_scores import score_regions

__all__ = ["measure_review"]

HEIGHT, WIDTH, CELLS = 192, 256, (15, 20)
"""Masks at half the size of photos of 512 pixels, as ingest stores them, with 300 superpixels."""

IMAGES, DESCRIBED, COPIES = 16, 8, 12
LEARNED = 1200
"""Copies of one pass of the regressions."""

PASSES = 2


def measure_review() -> ReviewCost:
    """Describe masks, copies with errors and regions, and learn from them: CPU time counts."""
    dataset, evidence = _draw()
    predictions = evidence.predictions
    images = [predictions.of_image(photo) for photo in range(IMAGES)]
    read = list(read_images(dataset, images))
    rng = np.random.default_rng(0)
    columns: list[Array] = []

    def copy() -> None:
        for number in range(DESCRIBED):
            prediction, mask = read[number]
            for _ in range(COPIES):
                drawn = corrupt(mask, read[number - 1][1], 2, rng)
                drawn = follow_superpixels(drawn, prediction.segments, 2)
                columns.append(describe(prediction, drawn))

    with one_blas_thread(), dask.config.set(scheduler="sync"):
        given = _cpu_seconds(lambda: [describe(*each) for each in read])
        copied = _cpu_seconds(copy)
        learned = _cpu_seconds(lambda: _learn(np.stack(columns), rng))
        trusted = np.ones(IMAGES, dtype=np.bool_)
        regions = _cpu_seconds(lambda: score_regions(dataset, predictions, trusted, 0))
    return ReviewCost(
        given / IMAGES,
        copied / (DESCRIBED * COPIES),
        PASSES * learned,
        regions / IMAGES,
        "parts of a review on this machine",
    )


def _cpu_seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _learn(columns: Array, rng: np.random.Generator) -> None:
    """One pass of the regressions, from as many copies as of a large dataset."""
    index: Index = rng.integers(len(columns), size=LEARNED)
    spread = columns.std(0)
    many = columns[index] + 0.1 * spread * rng.standard_normal((LEARNED, columns.shape[1]))
    image = np.repeat(np.arange(LEARNED // COPIES), COPIES)
    copies = Copies(many, rng.random(LEARNED), image)
    fold = np.arange(LEARNED // COPIES) % FOLDS
    cross_predict(copies, many[: fold.size], fold)


def _draw() -> tuple[xr.Dataset, Evidence]:
    """Masks of an ellipse each, and predictions that see it, with noise and in the wrong place."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    rows, columns = CELLS
    segments = (y * rows // HEIGHT * columns + x * columns // WIDTH).astype(np.uint16)
    masks, values, codes = [], [], []
    n = rows * columns
    area = np.bincount(segments.ravel(), minlength=n).astype(float)
    for _ in range(IMAGES):
        cy, cx = rng.uniform(0.3, 0.7, 2) * (HEIGHT, WIDTH)
        radius = rng.uniform(0.15, 0.3) * HEIGHT
        mask = np.hypot(y - cy, x - cx) < radius
        seen = np.hypot(y - cy - rng.normal(0, 8), x - cx - rng.normal(0, 8)) < radius
        masks.append(mask.astype(np.uint8))
        share = np.bincount(segments.ravel(), seen.ravel(), n) / area
        values.append(2 * share - 1 + 0.5 * rng.standard_normal(n))
        codes.append(np.bincount(segments.ravel(), mask.ravel(), n) > 0.5 * area)
    dataset = xr.Dataset(
        {
            "segments": (("photo", "y", "x"), np.repeat(segments[None], IMAGES, 0)),
            "mask": (("photo", "y", "x"), np.stack(masks)),
            "segment_height": ("photo", np.full(IMAGES, HEIGHT)),
            "segment_width": ("photo", np.full(IMAGES, WIDTH)),
            "image_name": ("photo", np.array([f"{number}" for number in range(IMAGES)])),
        },
        attrs={"classes": [0, 255]},
    )
    evidence = Evidence(
        values=np.concatenate(values),
        codes=np.concatenate(codes).astype(np.intp),
        area=np.tile(area, IMAGES),
        image=np.repeat(np.arange(IMAGES), n),
        noise=np.ones(IMAGES),
        classes=np.array([0, 1]),
    )
    return dataset, evidence
