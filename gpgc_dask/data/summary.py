"""A summary of a dataset as plain values, for printing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.data.dataset import text_values

__all__ = ["flagged_images", "summary"]


def summary(dataset: xr.Dataset) -> dict[str, Any]:
    """Sizes, classes, flags, skipped files and provenance of a dataset, as plain values."""
    per_image = np.bincount(dataset["image"].values, minlength=dataset.sizes["photo"])
    columns = Counter(text_values(dataset["feature_group"]).tolist())
    features = dataset["features"]
    return {
        "images": dataset.sizes["photo"],
        "superpixels": dataset.sizes["superpixel"],
        "superpixels_per_image": {
            "min": int(per_image.min()),
            "mean": float(per_image.mean()),
            "max": int(per_image.max()),
        },
        "features": dict(columns),
        "dtype": str(features.dtype),
        "block_rows": int(features.data.chunksize[0]),
        "classes": _classes(dataset),
        "void": float(np.mean(dataset["weight"].values == 0)),
        "flagged": flagged_images(dataset),
        "skipped": [
            {"name": name, "reason": reason}
            for name, reason in zip(
                text_values(dataset["skipped_name"]).tolist(),
                text_values(dataset["skipped_reason"]).tolist(),
                strict=True,
            )
        ],
        **{name: dataset.attrs[name] for name in ("source", "backbone", "recipe", "versions")},
    }


def flagged_images(dataset: xr.Dataset) -> dict[str, list[str]]:
    """{flag: names of the images that have it}."""
    images: dict[str, list[str]] = {}
    names = text_values(dataset["image_name"]).tolist()
    for name, text in zip(names, text_values(dataset["flags"]).tolist(), strict=True):
        for flag in filter(None, text.split(";")):
            images.setdefault(flag, []).append(name)
    return dict(sorted(images.items()))


def _classes(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """Name, value in the masks, and shares of superpixels and pixels of each class."""
    label, weight = dataset["label"].values, dataset["weight"].values
    area = weight * dataset["pixels"].values
    names, values = dataset.attrs["classes"], dataset.attrs["class_values"]
    return [
        {
            "name": name,
            "value": value,
            "superpixels": _share(weight, label == code),
            "pixels": _share(area, label == code),
        }
        for code, (name, value) in enumerate(zip(names, values, strict=True))
    ]


def _share(values: Labels, where: Labels) -> float:
    total = float(values.sum())
    return float(values[where].sum()) / total if total else 0.0
