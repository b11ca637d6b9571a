"""Label Studio: tasks with their masks as predictions, and the labelling interface for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as Xml

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import InputError
from gpgc_dask.results.export.images import Image, regions
from gpgc_dask.results.export.runs import brush_bytes
from gpgc_dask.storage.location import check_no_secret

__all__ = ["LabelStudio", "image_urls"]

BRUSH, PICTURE = "mask", "image"
"""Names of the two parts of the labelling interface."""

GIVEN, PREDICTED = "given mask", "prediction"
"""What Label Studio lists as versions of a model. It offers the last one to be mended."""


def image_urls(
    folder: str, document_root: str | None, prefix: str | None
) -> Callable[[Image], str]:
    """Where Label Studio finds an image: below a URL, or among the files that it serves itself.

    folder : of the images;  document_root : what Label Studio is told to serve, by default the
        folder that holds the images' folder
    """
    if prefix is not None:
        check_no_secret(prefix)
        return lambda image: f"{prefix.rstrip('/')}/{quote(image.name)}"
    root = Path(folder).parent if document_root is None else Path(document_root)
    root = root.expanduser().absolute()

    def local(image: Image) -> str:
        path = Path(image.path)
        if not path.is_relative_to(root):
            raise InputError(
                f"{path} is not in the document root {root}: name a folder that holds all photos "
                "(--document-root), or say at which URL they are (--image-prefix)"
            )
        return f"/data/local-files/?d={quote(path.relative_to(root).as_posix())}"

    return local


class LabelStudio:
    """Tasks in the order of the ranking. The score of a prediction is the agreement."""

    def __init__(
        self, target: Path, labels: dict[int, str], url: Callable[[Image], str], n: int
    ) -> None:
        self.target, self.labels, self.url, self.n = target, labels, url, n

    def entry(self, image: Image) -> str:
        """The task of an image, as JSON."""
        facts = image.facts
        told = f"{facts['rank']} of {self.n}, worst first: agreement "
        told += "unknown" if facts["agreement"] is None else f"{facts['agreement']:.2f}"
        told = ", ".join([told, *image.tags])
        data = {"image": self.url(image), "name": image.name, "told": told}
        data |= {key: facts[key] for key in ("rank", "agreement", "confidence", "noise_variance")}
        data["flags"] = ", ".join(image.tags)
        layers = {PREDICTED: image.predicted, GIVEN: image.given}
        predictions = [
            self._prediction(version, image, codes)
            for version, codes in layers.items()
            if codes is not None
        ]
        return json.dumps({"data": data, "predictions": predictions}, ensure_ascii=False)

    def _prediction(self, version: str, image: Image, codes: Labels) -> dict[str, Any]:
        height, width = codes.shape
        return {
            "model_version": version,
            "score": image.score,
            "result": [
                {
                    "id": f"{image.facts['rank']}-{number}",
                    "from_name": BRUSH,
                    "to_name": PICTURE,
                    "type": "brushlabels",
                    "original_width": width,
                    "original_height": height,
                    "image_rotation": 0,
                    "value": {"format": "rle", "rle": brush_bytes(inside), "brushlabels": [label]},
                }
                for number, (label, inside) in enumerate(regions(codes, self.labels))
            ],
        }

    def files(self, entries: list[str]) -> dict[Path, bytes]:
        """The tasks, and the labelling interface beside them."""
        tasks = "[\n" + ",\n".join(entries) + "\n]\n"
        return {
            self.target: tasks.encode(),
            self.target.with_suffix(".config.xml"): self._interface(),
        }

    def _interface(self) -> bytes:
        view = Xml.Element("View")
        Xml.SubElement(view, "Header", value="$told")
        Xml.SubElement(view, "Image", name=PICTURE, value="$image", zoom="true")
        brush = Xml.SubElement(view, "BrushLabels", name=BRUSH, toName=PICTURE)
        for label in self.labels.values():
            Xml.SubElement(brush, "Label", value=label)
        Xml.indent(view)
        return Xml.tostring(view, encoding="utf-8") + b"\n"
