"""The part of a labelling interface that masks are drawn with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np

from gpgc_dask.core.errors import InputError
from gpgc_dask.quality.polygons import outline
from gpgc_dask.results.export.images import regions
from gpgc_dask.results.export.runs import brush_bytes

KINDS = {"BrushLabels": "brushlabels", "PolygonLabels": "polygonlabels"}


@dataclass(frozen=True)
class Interface:
    """Where predictions belong.

    Attributes
    ----------
    control, image : str
        Names of the tags of labels and image.
    kind : {"brushlabels", "polygonlabels"}
    key : str
        Key of the image's URL in the data of a task.
    labels : list of str
        Labels that can be drawn.
    """

    control: str
    image: str
    kind: str
    key: str
    labels: list[str]

    @classmethod
    def parse(cls, config: str) -> Interface:
        """Find the first brush, or else polygon, of a labelling interface."""
        try:
            root = Xml.fromstring(config)
        except Xml.ParseError as error:
            raise InputError(f"the labelling interface is no XML: {error}") from None
        images = {tag.get("name"): tag.get("value", "") for tag in root.iter("Image")}
        for tag, kind in KINDS.items():
            for control in root.iter(tag):
                image = control.get("toName")
                if image in images and images[image].startswith("$"):
                    labels = [label.get("value", "") for label in control.iter("Label")]
                    key = images[image].removeprefix("$")
                    return cls(control.get("name", ""), image, kind, key, labels)
        raise InputError(
            "the labelling interface has no BrushLabels and no PolygonLabels for an Image: add one "
            "with the classes of the model as labels"
        )

    def match(self, classes: Mapping[int, str]) -> dict[int, str]:
        """{class code: label}; one class and one label belong together whatever their names."""
        if len(classes) == len(self.labels) == 1:
            return dict(zip(classes, self.labels, strict=True))
        missing = [name for name in classes.values() if name not in self.labels]
        if missing:
            raise InputError(
                f"the labelling interface has no label {missing[0]!r}: its labels must be the "
                f"classes of the model, {', '.join(classes.values())}"
            )
        return dict(classes)

    def regions(self, codes: np.ndarray, labels: Mapping[int, str]) -> list[dict[str, Any]]:
        """Regions of a mask, in Label Studio's format.

        Parameters
        ----------
        codes : (height, width) array
            Class codes.
        labels : dict
            {class code: label}.
        """
        height, width = codes.shape
        found: list[dict[str, Any]] = []
        for label, inside in regions(codes, dict(labels)):
            for value in self._values(inside):
                found.append(
                    {
                        "id": f"gpgc-{len(found)}",
                        "from_name": self.control,
                        "to_name": self.image,
                        "type": self.kind,
                        "original_width": width,
                        "original_height": height,
                        "image_rotation": 0,
                        "value": value | {self.kind: [label]},
                    }
                )
        return found

    def _values(self, inside: np.ndarray) -> list[dict[str, Any]]:
        if self.kind == "brushlabels":
            return [{"format": "rle", "rle": brush_bytes(inside)}]
        height, width = inside.shape
        size = np.array([width, height])
        polygons = [100 * np.reshape(flat, (-1, 2)) / size for flat in outline(inside, (1.0, 1.0))]
        return [{"points": polygon.tolist(), "closed": True} for polygon in polygons]
