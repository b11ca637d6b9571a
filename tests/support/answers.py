"""Photos with several masks each, drawn for the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.images import draw

ANNOTATORS = ("anna", "bert", "carl")
"""Anna's masks are right, Bert's a little too large, Carl's are of another photo."""


def save_answers(folder: Path, n: int) -> tuple[Path, Path]:
    """Write n photos, and masks/PHOTO/ANNOTATOR.png for each; return their two folders."""
    for number in range(n):
        photo, truth = draw(number)
        masks = {"anna": truth, "bert": _grow(truth), "carl": draw(number + 1000)[1]}
        (folder / "images").mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo).save(folder / f"images/photo_{number:03d}.jpg")
        place = folder / f"masks/photo_{number:03d}"
        place.mkdir(parents=True)
        for name, mask in masks.items():
            Image.fromarray(mask * np.uint8(255)).save(place / f"{name}.png")
    return folder / "images", folder / "masks"


def _grow(mask: np.ndarray) -> np.ndarray:
    grown = mask.copy()
    for axis in (0, 1):
        for step in (-2, 2):
            grown |= np.roll(mask, step, axis)
    return grown
