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
from gpgc_dask.results.columns import format_interval
from gpgc_dask.results.export.base import Selection
from gpgc_dask.results.export.images import VERDICTS, Image, ImageFormat, regions
from gpgc_dask.results.export.runs import brush_bytes
from gpgc_dask.storage.location import check_no_secret

__all__ = ["LabelStudio"]

BRUSH, PICTURE, VERDICT = "mask", "image", "verdict"
"""Names of the parts of the labelling interface."""

GIVEN, PREDICTED = "given mask", "prediction"
"""Names that Label Studio lists as versions of a model. It offers the last one for correction."""


class LabelStudio(ImageFormat):
    """Tasks in the order of the ranking, and the labelling interface for them.

    Parameters
    ----------
    target, selection
        See :class:`~gpgc_dask.results.export.base.ExportFormat`.
    document_root : str, optional
        Folder that Label Studio serves files from. Default: the folder that contains the folder of
        photos.
    image_prefix : str, optional
        URL below which Label Studio finds the photos, instead of ``document_root``.
    """

    suffix = ".json"
    options = ("document_root", "image_prefix")

    def __init__(
        self,
        target: Path,
        selection: Selection,
        *,
        document_root: str | None = None,
        image_prefix: str | None = None,
    ) -> None:
        super().__init__(target, selection)
        self.url = _image_urls(self.source["images"], document_root, image_prefix)

    def entry(self, image: Image) -> str:
        """The task of an image, as JSON."""
        rank, quality = image.record["rank"], image.record["quality"]
        known = "unknown" if quality is None else f"{quality:.2f}"
        known += format_interval(image.record["quality_low"], image.record["quality_high"])
        place = f"{rank} of {len(self.selection.review)}, worst first: quality {known}"
        data = {
            "image": self.url(image),
            "name": image.name,
            "summary": ", ".join([place, *image.tags]),
        }
        for name, value in image.attributes.items():
            data[name] = ", ".join(value) if isinstance(value, list) else value
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
                    "id": f"{image.record['rank']}-{number}",
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
        """The tasks, and the labelling interface."""
        tasks = "[\n" + ",\n".join(entries) + "\n]\n"
        return {
            self.target: tasks.encode(),
            self.target.with_suffix(".config.xml"): self._interface(),
        }

    def _interface(self) -> bytes:
        view = Xml.Element("View")
        Xml.SubElement(view, "Header", value="$summary")
        Xml.SubElement(view, "Image", name=PICTURE, value="$image", zoom="true")
        brush = Xml.SubElement(view, "BrushLabels", name=BRUSH, toName=PICTURE)
        for label in self.labels.values():
            Xml.SubElement(brush, "Label", value=label)
        verdict = Xml.SubElement(
            view, "Choices", name=VERDICT, toName=PICTURE, choice="single", showInline="true"
        )
        for choice in VERDICTS:
            Xml.SubElement(verdict, "Choice", value=choice)
        Xml.indent(view)
        return Xml.tostring(view, encoding="utf-8") + b"\n"


def _image_urls(
    folder: str, document_root: str | None, prefix: str | None
) -> Callable[[Image], str]:
    """A function that returns the URL of an image: below ``prefix``, or a file that is served."""
    if prefix is not None:
        check_no_secret(prefix)
        return lambda image: f"{prefix.rstrip('/')}/{quote(image.name)}"
    root = Path(folder).parent if document_root is None else Path(document_root)
    root = root.expanduser().absolute()

    def local(image: Image) -> str:
        path = Path(image.path)
        if not path.is_relative_to(root):
            raise InputError(
                f"{path} is not in the document root {root}: name a folder that contains all "
                "photos (--document-root), or the URL where they are (--image-prefix)"
            )
        return f"/data/local-files/?d={quote(path.relative_to(root).as_posix())}"

    return local
