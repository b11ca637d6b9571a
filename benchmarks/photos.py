"""Random photo-like images with masks, for benchmarks without real photos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage


def texture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """(h, w, 3) noise at several scales around a random colour."""
    total = rng.uniform(60, 190, 3) + np.zeros((height, width, 3))
    for scale in (2, 8, 32):
        small = rng.normal(0, 1, (height // scale + 2, width // scale + 2, 3))
        zoomed = ndimage.zoom(small, (scale, scale, 1), order=1)[:height, :width]
        total += 6 * np.sqrt(scale) * zoomed
    return total


def draw(seed: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """(photo, mask): a textured blob on a textured ground."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.uniform(0.35, 0.65, 2) * (height, width)
    angle = np.arctan2(y - cy, x - cx)
    radius = min(height, width) * (0.25 + 0.06 * np.sin(3 * angle + rng.uniform(0, 6)))
    mask = np.hypot(y - cy, x - cx) < radius
    photo = np.where(mask[..., None], texture(rng, height, width), texture(rng, height, width))
    return np.clip(photo, 0, 255).astype(np.uint8), mask


def save_set(folder: Path, n: int, height: int, width: int, wrong_share: float = 0.0) -> None:
    """images/*.jpg and masks/*.png in ``folder``; some masks belong to other photos."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    lines = ["image,mask_iou"]
    for number in range(n):
        photo, truth = draw(number, height, width)
        wrong = number < wrong_share * n
        mask = draw(number + n, height, width)[1][::-1] if wrong else truth
        iou = (mask & truth).sum() / (mask | truth).sum()
        lines.append(f"photo{number:04d},{0.0 if wrong else iou:.3f}")
        Image.fromarray(photo).save(folder / f"images/photo{number:04d}.jpg", quality=90)
        Image.fromarray(mask * np.uint8(255)).save(folder / f"masks/photo{number:04d}.png")
    (folder.parent / f"{folder.name}.csv").write_text("\n".join(lines))
