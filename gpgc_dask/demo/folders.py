"""A set of scenes as folders of photos and masks, some of which are corrupted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from dask.system import CPU_COUNT
from PIL import Image

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import ExistsError, InputError
from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.demo.corruption import CORRUPTIONS, corrupt_mask
from gpgc_dask.demo.scenes import draw_scene

__all__ = ["write_set"]

FOLDERS = ("images", "masks", "truth")
JPEG_QUALITY = 92


def write_set(
    folder: Path,
    n: int = 200,
    corrupted: float = 1 / 3,
    seed: int = 0,
    progress: Listener | None = None,
) -> pd.DataFrame:
    """Draw scenes and corrupt the masks of some of them, each kind of corruption equally often.

    Parameters
    ----------
    folder : Path
        Folder for images/NAME.jpg, masks/NAME.png, truth/NAME.png (0 and 255) and corrupted.csv.
    n : int, default 200
        Number of scenes.
    corrupted : float, default 1/3
        Share of the masks to corrupt.
    seed : int, default 0
        Seed of the random numbers.
    progress : callable, optional
        Called with a :class:`~gpgc_dask.core.progress.Progress` after each photo.

    Returns
    -------
    pandas.DataFrame
        The content of corrupted.csv: ``image``, the file name of the photo, and ``kind``, the kind
        of corruption of its mask, "" if it is not corrupted.
    """
    if n < 2 or not 0 <= corrupted <= 1:
        raise InputError(f"n must be 2 or more and corrupted in 0 … 1, got {n} and {corrupted}")
    if any((folder / name).exists() for name in FOLDERS):
        raise ExistsError(f"{folder} already contains images: choose another folder or remove it")
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(seed)
    names = [f"scene_{number:0{max(len(str(n - 1)), 3)}d}" for number in range(n)]
    masks, others = _write_photos(folder, names, rng, Meter(progress, "drawing", n))
    kinds = _choose_kinds(n, round(n * corrupted), rng)
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        mask = masks[number]
        if kind:
            other_masks = masks[:number] + masks[number + 1 :]
            mask = corrupt_mask(kind, mask, others[number], other_masks, rng)
        _save(mask, folder / f"masks/{name}.png")
    table = pd.DataFrame({"image": [f"{name}.jpg" for name in names], "kind": kinds})
    table.to_csv(folder / "corrupted.csv", index=False, lineterminator="\n")
    return table


def _write_photos(
    folder: Path, names: list[str], rng: np.random.Generator, meter: Meter
) -> tuple[list[Mask], list[Mask]]:
    """Photos and true masks; (masks (h, w) of the objects, masks of the other things)."""
    seeds = rng.integers(1 << 62, size=len(names)).tolist()
    masks, others = [], []
    with ThreadPoolExecutor(CPU_COUNT) as pool:
        for mask, other in pool.map(partial(_write_photo, folder), names, seeds):
            masks.append(mask)
            others.append(other)
            meter(1, 0)
    return masks, others


def _write_photo(folder: Path, name: str, seed: int) -> tuple[Mask, Mask]:
    scene = draw_scene(seed)
    Image.fromarray(scene.photo).save(folder / f"images/{name}.jpg", quality=JPEG_QUALITY)
    _save(scene.mask, folder / f"truth/{name}.png")
    return scene.mask, scene.other


def _choose_kinds(n: int, corrupted: int, rng: np.random.Generator) -> list[str]:
    """n kinds in random order, "" for n − corrupted of them, the others in equal numbers."""
    names = rng.permutation(list(CORRUPTIONS)).tolist()
    kinds = [names[number % len(names)] if number < corrupted else "" for number in range(n)]
    return rng.permutation(kinds).tolist()


def _save(mask: Mask, path: Path) -> None:
    Image.fromarray(mask * np.uint8(255)).save(path)
