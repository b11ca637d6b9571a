"""What an ingest costs on this machine, from a photo that goes through all of its parts."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage

from gpgc_dask.core.threads import one_blas_thread
from gpgc_dask.imaging.features import Recipe, describe
from gpgc_dask.planning.stages import IngestCost

__all__ = ["measure_ingest"]

HEIGHT, WIDTH = 375, 500
PHOTOS = 4


def measure_ingest(recipe: Recipe) -> IngestCost:
    """Put a few drawn photos of 500×375 pixels through superpixels and network: CPU time counts.

    Parameters
    ----------
    recipe : Recipe
        Backbone and superpixels.
    """
    with tempfile.TemporaryDirectory() as folder, one_blas_thread():
        paths = [Path(folder) / f"{number}.jpg" for number in range(PHOTOS)]
        for number, path in enumerate(paths):
            _draw(path, number)
        describe(paths[0], recipe)  # loads the network
        start = time.process_time()
        for path in paths:
            describe(path, recipe)
        seconds = (time.process_time() - start) / PHOTOS
    return IngestCost(seconds, "photos described on this machine")


def _draw(path: Path, seed: int) -> None:
    """Save noise at several scales, which has edges everywhere as photos have."""
    rng = np.random.default_rng(seed)
    total = rng.uniform(60, 190, 3) + np.zeros((HEIGHT, WIDTH, 3))
    for scale in (2, 8, 32):
        small = rng.normal(0, 1, (HEIGHT // scale + 2, WIDTH // scale + 2, 3))
        zoomed = ndimage.zoom(small, (scale, scale, 1), order=1)[:HEIGHT, :WIDTH]
        total += 6 * np.sqrt(scale) * zoomed
    Image.fromarray(np.clip(total, 0, 255).astype(np.uint8)).save(path, quality=90)
