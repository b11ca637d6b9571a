"""Datasets of any size in the layout of ``gpgc ingest``, with random features."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from gpgc_dask.data import writing
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.storage.location import Location

ABOUT = {
    "classes": ["background", "object"],
    "class_values": [0, 1],
    "source": {
        "format": "masks",
        "images": "photos",
        "masks": "masks",
        "mask_format": asdict(MaskFormat()),
    },
    "backbone": {"name": "made up"},
    "recipe": Recipe("colour", superpixels=100).to_json(),
    "versions": {},
    "files_digest": "made up",
    "image_info": {},
}


def write_dataset(path: Path, n: int, k: int, n_images: int, seed: int = 0) -> Path:
    """Write ReLU-like features, and labels by a linear rule, flipped in a third of the images."""
    rng = np.random.default_rng(seed)
    image = np.repeat(np.arange(n_images), np.diff(np.linspace(0, n, n_images + 1).astype(int)))
    mixing = rng.standard_normal((32, k)).astype(np.float32) / 6
    rule = rng.standard_normal(k)
    flip_rate = np.where(rng.random(n_images) < 1 / 3, rng.uniform(0.1, 0.5, n_images), 0.02)
    group = Location.of(path).group("w")
    features = writing.create_array(group, "features", (n, k), np.float32)
    label = np.empty(n, dtype=np.uint8)
    rows = features.chunks[0]
    for start in range(0, n, rows):
        own = slice(start, min(start + rows, n))
        size = own.stop - own.start
        block = rng.standard_normal((size, 32)).astype(np.float32) @ mixing
        block += 0.3 * rng.standard_normal((size, k), dtype=np.float32)
        np.maximum(block + 0.2, 0, out=block)
        block[:, -1] = 1.0
        score = (block - block.mean(0)) @ rule
        label[own] = (score > 0) ^ (rng.random(size) < flip_rate[image[own]])
        features[own] = block
    names = [f"photo_{number:05d}.jpg" for number in range(n_images)]
    ones = np.ones(n_images, dtype=np.int32)
    values = {
        "label": label,
        "weight": np.ones(n, dtype=np.float32),
        "image": image.astype(np.int32),
        "pixels": np.full(n, 100),
        "feature_group": np.array(["appearance"] * (k - 1) + ["constant"]),
        "image_name": np.array(names),
        "photo_name": np.array(names),
        "group": np.array(names),
        "annotator": np.array([""] * n_images),
        "annotated": np.array([""] * n_images),
        "image_path": np.array([f"photos/{name}" for name in names]),
        "mask_path": np.array([f"masks/{name}" for name in names]),
        **{
            name: np.array([""] * n_images)
            for name in ("flags", "photo_stamp", "photo_digest", "mask_stamp")
        },
        "height": ones,
        "width": ones,
        "segments": np.zeros((n_images, 1, 1), dtype=np.uint16),
        "mask": np.zeros((n_images, 1, 1), dtype=np.uint8),
        "segment_height": ones,
        "segment_width": ones,
        "object_image": np.empty(0, dtype=np.int32),
        "object_id": np.array([], dtype=str),
        "object_class": np.empty(0, dtype=np.uint8),
        "object_crowd": np.empty(0, dtype=np.uint8),
        "object_area": np.empty(0, dtype=np.float32),
        "object_box": np.empty((0, 4), dtype=np.float32),
        "object_region": np.array([], dtype=str),
        "skipped_name": np.array([], dtype=str),
        "skipped_reason": np.array([], dtype=str),
    }
    for name, value in values.items():
        writing.write_array(group, name, value)
    writing.finish(Location.of(path), ABOUT)
    return path
