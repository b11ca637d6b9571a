"""FiftyOne: a dataset as ``fiftyone.Dataset.from_json`` reads it, with the masks as PNGs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.paths import inside
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.painting import encoded
from gpgc_dask.results.export.images import Image
from gpgc_dask.storage.location import write_whole

__all__ = ["FiftyOne"]

FIELDS = "fiftyone.core.fields"
SEGMENTATION = f"{FIELDS}.EmbeddedDocumentField(fiftyone.core.labels.Segmentation)"


NUMBERS = ("agreement", "confidence", "noise_variance")


class FiftyOne:
    """A sample each, in the order of the ranking. In its masks 0 is the background."""

    def __init__(self, target: Path, labels: dict[int, str], *, predicted: bool) -> None:
        self.target, self.folder = target, target.with_suffix(".masks").absolute()
        self.layers = ["ground_truth", "prediction"] if predicted else ["ground_truth"]
        drawn = [code for code in labels if code != VOID]
        if len(drawn) >= VOID:
            raise InputError(
                f"FiftyOne's masks are of 8 bits here: {len(drawn)} classes do not fit"
            )
        self.values = np.zeros(VOID + 1, dtype=np.uint8)
        self.values[drawn] = np.arange(1, len(drawn) + 1)
        self.values[VOID] = VOID
        self.targets = {str(self.values[code]): label for code, label in labels.items()}

    def entry(self, image: Image) -> dict[str, Any]:
        """The sample of an image, whose masks are written."""
        sample: dict[str, Any] = {"filepath": image.path, "tags": image.tags, "name": image.name}
        sample |= {name: image.facts[name] for name in ("rank", *NUMBERS)}
        for layer in self.layers:
            codes = image.given if layer == "ground_truth" else image.predicted
            own = inside(f"{image.name}.png")  # a.jpg and a.png have masks of their own
            path = self.folder / layer / own
            write_whole(path, encoded(self.values[codes]))
            sample[layer] = {"_cls": "Segmentation", "mask_path": str(path)}
        return sample

    def files(self, entries: list[dict[str, Any]]) -> dict[Path, bytes]:
        """The description of the dataset."""
        content = {
            "name": self.target.stem,
            "media_type": "image",
            "sample_fields": {
                "filepath": f"{FIELDS}.StringField",
                "tags": f"{FIELDS}.ListField({FIELDS}.StringField)",
                "name": f"{FIELDS}.StringField",
                "rank": f"{FIELDS}.IntField",
                **dict.fromkeys(NUMBERS, f"{FIELDS}.FloatField"),
                **dict.fromkeys(self.layers, SEGMENTATION),
            },
            "default_mask_targets": self.targets,
            "samples": entries,
        }
        return {self.target: json.dumps(content, indent=1, ensure_ascii=False).encode()}
