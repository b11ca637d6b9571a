"""A dataset with bad masks, and files of verdicts on it as other tools write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, ingest
from tests.support.images import draw, save_pairs

SMALL = Recipe(backbone="colour", superpixels=40)
SHIFTED = (2, 5, 9)
"""Photos whose masks are wrong: shifted to the side."""


def name(number: int) -> str:
    return f"photo_{number:03d}.jpg"


def true_mask(number: int) -> np.ndarray:
    """(60, 80) correct mask of a photo, as bool."""
    return draw(number)[1]


def save_shifted(folder: Path, n: int = 16) -> tuple[Path, Path]:
    """Write images/ and masks/ of n photos; some masks are shifted."""
    images, masks = save_pairs(folder, n)
    for number in SHIFTED:
        shifted = np.roll(true_mask(number), 30, axis=1)
        save_mask(masks / f"photo_{number:03d}.png", 255 * shifted)
    return images, masks


def save_mask(path: Path, values: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values).astype(np.uint8)).save(path)


def make_dataset(folder: Path, masks_as: MaskOptions | None = None, n: int = 16) -> Path:
    images, masks = save_shifted(folder, n)
    ingest(images, masks, folder / "data.zarr", recipe=SMALL, masks_as=masks_as)
    return folder / "data.zarr"


def write_json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path
