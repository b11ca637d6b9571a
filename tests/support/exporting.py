"""A small annotation job with bad masks, and a decoder of Label Studio's brush format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from PIL import Image

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from tests.support.images import save_pair, save_pairs
from tests.support.ingesting import QUICK

VOID = 128


@dataclass(frozen=True)
class Job:
    """Photos and masks in a folder, their dataset, and a model that was fitted to it."""

    folder: Path
    dataset: xr.Dataset
    model: Any

    def given(self, name: str) -> np.ndarray:
        """The mask of a photo as it is on disk: 0, 255 and 128 (void)."""
        return np.asarray(Image.open(self.folder / "masks" / Path(name).with_suffix(".png")))


def make_job(folder: Path) -> Job:
    """Write 13 photos, one in a subfolder; some masks are inverted, empty or (partly) void."""
    save_pairs(folder, 12)
    (folder / "images").rename(folder / "photos")
    save_pair(folder, "deep/er/a photo, 50 %", 40)
    (folder / "images/deep").rename(folder / "photos/deep")
    shape = (60, 80)
    inverted = 255 - np.asarray(Image.open(folder / "masks/photo_000.png"))
    partly = np.asarray(Image.open(folder / "masks/photo_002.png")).copy()
    partly[:5] = VOID
    bad = [inverted, np.zeros(shape), partly, np.full(shape, VOID)]
    for number, values in enumerate(bad):
        Image.fromarray(values.astype(np.uint8)).save(folder / f"masks/photo_{number:03d}.png")
    ingest(
        folder / "photos",
        folder / "masks",
        folder / "data.zarr",
        recipe=QUICK,
        masks_as=MaskOptions(void=[VOID]),
    )
    dataset = open_dataset(folder / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    model.save(folder / "model.zarr")
    return Job(folder, dataset, model)


def decode_brush(content: list[int]) -> np.ndarray:
    """Decode rle-pack, the format of Label Studio's brush, bit by bit to (n,) values."""
    bits = "".join(f"{byte:08b}" for byte in content)
    place = 0

    def read(size: int) -> int:
        nonlocal place
        place += size
        return int(bits[place - size : place], 2)

    n, word = read(32), read(5) + 1
    sizes = [read(4) + 1 for _ in range(4)]
    values: list[int] = []
    while len(values) < n:
        repeated = read(1)
        length = read(sizes[read(2)]) + 1
        values += [read(word)] * length if repeated else [read(word) for _ in range(length)]
    return np.array(values)
