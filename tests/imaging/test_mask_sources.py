"""Sources of masks: adding one takes a class and a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GPGC, MaskOptions, ingest, open_dataset, rank, write_report
from gpgc_dask.imaging.files import Pair, find_images
from gpgc_dask.imaging.mask_sources import MASK_SOURCES, Item, MaskSource, file_stamp, open_source
from gpgc_dask.results.selection import write_folder
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK


@dataclass(frozen=True)
class NpzMask:
    path: str
    name: str

    def read(self, orientation):
        with np.load(self.path) as stored:
            return stored[self.name]


class NpzFile(MaskSource):
    """All masks in one .npz file, by the names of the photos."""

    def find_items(self):
        stamp = file_stamp(self.masks)
        pairs = [Pair(n, str(Path(self.images) / n), self.masks) for n in find_images(self.images)]
        return [Item(pair, stamp, NpzMask(self.masks, pair.name)) for pair in pairs], []

    @classmethod
    def restore(cls, provenance, names, paths):
        return [NpzMask(provenance["masks"], name) for name in names]


@pytest.fixture
def npz(tmp_path):
    """(folder of photos, folder of masks, the same masks in one file)."""
    images, masks = save_pairs(tmp_path, 12)
    codes = {
        f"{p.stem}.jpg": (np.asarray(Image.open(p)) > 0).astype(np.uint8) for p in masks.iterdir()
    }
    np.savez(tmp_path / "all.npz", **codes)
    MASK_SOURCES.add("npz", NpzFile)
    yield images, masks, tmp_path / "all.npz"
    MASK_SOURCES.remove("npz")


def test_a_source_is_one_class_and_one_line(npz, tmp_path):
    """Ingest, fit, report and selection know it by its name."""
    images, masks, file = npz
    ingest(images, masks, tmp_path / "files.zarr", recipe=QUICK)
    ingest(images, file, tmp_path / "npz.zarr", recipe=QUICK, masks_as=MaskOptions(format="npz"))
    dataset, same = (open_dataset(tmp_path / f"{name}.zarr") for name in ("npz", "files"))
    np.testing.assert_array_equal(dataset["label"].values, same["label"].values)
    assert dataset.attrs["source"]["format"] == "npz"
    model = GPGC().fit(dataset)
    model.review(dataset)
    report = write_report(dataset, model, tmp_path / "report.html")
    assert (report.gone, (tmp_path / "report.html").stat().st_size > 10_000) == (0, True)
    best = rank(model.review_).head(3)
    folder = write_folder(best, model.dataset_["source"], tmp_path / "clean")
    assert {path.name for path in folder.iterdir()} == {"images", "all.npz"}
    assert "npz" in MASK_SOURCES.names()
    with pytest.raises(ValueError, match=r"choose one of masks, answers, coco.*, npz"):
        open_source(images, file, MaskOptions(format="sketch"))


def test_options_that_do_not_apply_are_rejected(npz):
    images, _, file = npz
    with pytest.raises(ValueError, match="threshold: not an option of masks in the format npz"):
        open_source(images, file, MaskOptions(format="npz", threshold=0.5))
