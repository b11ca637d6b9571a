"""FiftyOne: a dataset as ``fiftyone.Dataset.from_json`` reads it, with the masks as PNGs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.paths import relative_path
from gpgc_dask.core.progress import Listener
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.painting import encode_picture
from gpgc_dask.results.columns import Column, columns_in
from gpgc_dask.results.export.base import ExportReport, Selection
from gpgc_dask.results.export.images import Image, ImageFormat
from gpgc_dask.storage.location import write_whole

__all__ = ["FiftyOne"]

FIELDS = "fiftyone.core.fields"
SEGMENTATION = f"{FIELDS}.EmbeddedDocumentField(fiftyone.core.labels.Segmentation)"

FIELD_TYPES = {
    "integer": f"{FIELDS}.IntField",
    "text": f"{FIELDS}.StringField",
    "number": f"{FIELDS}.FloatField",
    "labels": f"{FIELDS}.ListField({FIELDS}.StringField)",
}
"""{kind of a column: FiftyOne's field}."""


class FiftyOne(ImageFormat):
    """One sample per image, in the order of the ranking.

    Masks are 8-bit PNGs in a folder next to the target; 0 is the background. Flags are tags.
    """

    suffix = ".json"

    def __init__(self, target: Path, selection: Selection, **options: Any) -> None:
        super().__init__(target, selection, **options)
        self.folder = target.with_suffix(".masks").absolute()
        predicted = selection.predicted is not None
        self.layers = ["ground_truth", "prediction"] if predicted else ["ground_truth"]
        drawn = [code for code in self.labels if code != VOID]
        if len(drawn) >= VOID:
            raise InputError(f"FiftyOne's masks have 8 bits here: {len(drawn)} classes do not fit")
        self.values = np.zeros(VOID + 1, dtype=np.uint8)
        self.values[drawn] = np.arange(1, len(drawn) + 1)
        self.values[VOID] = VOID
        self.targets = {str(self.values[code]): label for code, label in self.labels.items()}

    def entry(self, image: Image) -> dict[str, Any]:
        """Write the masks of an image and return its sample."""
        sample: dict[str, Any] = {"filepath": image.path, "tags": image.tags, "name": image.name}
        sample |= {column.name: image.attributes[column.name] for column in _columns()}
        for layer in self.layers:
            codes = image.given if layer == "ground_truth" else image.predicted
            own = relative_path(f"{image.name}.png")  # a.jpg and a.png have masks of their own
            path = self.folder / layer / own
            write_whole(path, encode_picture(self.values[codes]))
            sample[layer] = {"_cls": "Segmentation", "mask_path": str(path)}
        return sample

    def files(self, entries: list[dict[str, Any]]) -> dict[Path, bytes]:
        """The description of the dataset."""
        content = {
            "name": self.target.stem,
            "media_type": "image",
            "sample_fields": {
                "filepath": FIELD_TYPES["text"],
                "tags": FIELD_TYPES["labels"],
                "name": FIELD_TYPES["text"],
                **{column.name: FIELD_TYPES[column.kind] for column in _columns()},
                **dict.fromkeys(self.layers, SEGMENTATION),
            },
            "default_mask_targets": self.targets,
            "samples": entries,
        }
        return {self.target: json.dumps(content, indent=1, ensure_ascii=False).encode()}

    def write(self, progress: Listener | None = None) -> ExportReport:
        """Write the description and the folder of masks."""
        report = super().write(progress)
        return replace(report, files=[*report.files, str(self.folder)])


def _columns() -> list[Column]:
    """Columns that are fields of a sample."""
    return [column for column in columns_in("exports") if column.name != "flags"]
