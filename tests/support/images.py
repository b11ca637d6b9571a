"""Small photos and masks that are drawn for the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def draw(seed: int, height: int = 60, width: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """Draw a reddish disc on textured green: photo (h, w, 3) uint8, mask (h, w) bool."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.uniform(0.3, 0.7, 2) * (height, width)
    mask = np.hypot(y - cy, x - cx) < rng.uniform(0.2, 0.35) * min(height, width)
    background = np.array([60, 120, 50]) + rng.normal(0, 20, (height, width, 3))
    thing = np.array([170, 80, 60]) + rng.normal(0, 15, (height, width, 3))
    photo = np.where(mask[..., None], thing, background)
    return np.clip(photo, 0, 255).astype(np.uint8), mask


def save_pair(folder: Path, name: str, seed: int, **size: int) -> None:
    """Write images/NAME.jpg and masks/NAME.png (0 and 255) below ``folder``."""
    photo, mask = draw(seed, **size)
    for kind, array, ending in (("images", photo, "jpg"), ("masks", mask * np.uint8(255), "png")):
        path = folder / kind / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)


def save_pairs(folder: Path, n: int, **size: int) -> tuple[Path, Path]:
    """Write n photos and n masks; return their two folders."""
    for number in range(n):
        save_pair(folder, f"photo_{number:03d}", number, **size)
    return folder / "images", folder / "masks"


def tree_bytes(folder: Path) -> dict[str, bytes]:
    """Contents of all files below a folder by their paths, without the marker of a model."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".gpgc-model"
    }
