"""``gpgc evaluate`` reads true masks as ``gpgc ingest`` does."""

from __future__ import annotations

import numpy as np

from gpgc_dask.results.evaluation import evaluate
from tests.results.test_evaluation import save


def test_masks_as_an_ingest_reads_them(tmp_path):
    """Files of classes and colours, both suffixes, and masks that are inverted."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 3, (8, 9))
    colours = np.array([[0, 0, 0], [128, 64, 128], [255, 255, 255]])
    save(tmp_path / "true", town__a_labels=colours[numbers], town__a_other=numbers)
    save(tmp_path / "predicted", town__a_photo=np.where(numbers == 2, 0, numbers))
    table = tmp_path / "classes.csv"
    table.write_text("value,r,g,b,name\n0,0,0,0,ground\n1,128,64,128,road\n9,255,255,255,void\n")
    suffixes = {"mask_suffix": "_labels", "photo_suffix": "_photo"}
    found = evaluate(tmp_path / "predicted", tmp_path / "true", classes=str(table), **suffixes)
    assert (found.images, found.pixel_accuracy) == (1, 1.0)
    assert sum(one.pixels for one in found.classes.values()) == (numbers < 2).sum()
    save(tmp_path / "cells", a=numbers)
    save(tmp_path / "drawn", a=(numbers > 0) * 255)
    found = evaluate(tmp_path / "drawn", tmp_path / "cells", foreground=[0], invert=True)
    assert found.pixel_accuracy == 1.0
