"""Contents of datasets per image, and updates that are killed at a chosen write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask import open_dataset

PER_PHOTO = (
    "photo_name", "group", "annotator", "annotated", "image_path", "mask_path", "photo_stamp",
    "photo_digest", "mask_stamp", "height", "width", "flags", "segment_height", "segment_width",
)  # fmt: skip

PER_ROW = ("features", "label", "weight", "pixels")

PER_OBJECT = ("id", "class", "crowd", "area", "box", "region")

ATTRIBUTES = ("classes", "class_values", "source", "backbone", "recipe", "versions", "image_info")


def contents(path: Any) -> dict[str, Any]:
    """{image: {array: values}} of a dataset, and what is not of an image under the name ""."""
    dataset = open_dataset(path).load()
    image, owner = dataset["image"].values, dataset["object_image"].values
    assert np.all(np.diff(image) >= 0), "rows of an image are adjacent"
    found: dict[str, Any] = {}
    for number, name in enumerate(dataset["image_name"].values.tolist()):
        own = {key: dataset[key].values[number] for key in PER_PHOTO}
        own |= {key: dataset[key].values[image == number].tolist() for key in PER_ROW}
        height, width = own["segment_height"], own["segment_width"]
        for key, outside in (("segments", 65535), ("mask", 255)):
            whole = dataset[key].values[number].copy()
            own[key] = whole[:height, :width].tolist()
            whole[:height, :width] = outside
            assert np.all(whole == outside), "nothing is outside the photo"
        for key in PER_OBJECT:
            own[f"object_{key}"] = dataset[f"object_{key}"].values[owner == number].tolist()
        found[name] = own
    found[""] = {
        "skipped": [dataset[f"skipped_{key}"].values.tolist() for key in ("name", "reason")],
        "feature_group": dataset["feature_group"].values.tolist(),
        "chunks": {key: open_dataset(path)[key].data.chunksize for key in (*PER_ROW, "mask")},
        "attributes": {key: dataset.attrs[key] for key in ATTRIBUTES},
        "files_digest": dataset.attrs["files_digest"],
        "y, x": (dataset.sizes["y"], dataset.sizes["x"]),
    }
    return found


DRIVER = """
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from gpgc_dask import update
from gpgc_dask.data import writing

limit, calls = int(sys.argv[1]), count(1)


def killing(function):
    def call(*arguments, **options):
        if next(calls) == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return call


if __name__ == "__main__":
    writing.CHUNK_BYTES, writing.SEGMENT_BYTES = 64 * 31 * 4, 4 * 2 * 60 * 80
    for owner, name in ((Path, "replace"), (Path, "unlink"), (shutil, "rmtree"), (os, "link")):
        setattr(owner, name, killing(getattr(owner, name)))
    update(*sys.argv[2:], prune=True)
    print(next(calls) - 1)
"""


def killed_update(folder: Path, limit: int, *words: Any) -> int | None:
    """Update a dataset, with few images per chunk, in a process that kills itself.

    It does so just before it puts its ``limit``-th file in place, or removes one. The number of
    these is returned if there are fewer, otherwise None.
    """
    script = folder / "driver.py"
    script.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, script, str(limit), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr
    return int(done.stdout) if done.returncode == 0 else None
