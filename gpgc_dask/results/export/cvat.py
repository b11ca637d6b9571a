"""CVAT: annotations ("CVAT for images 1.1"), the labels of the task, and its photos in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from gpgc_dask.results.columns import column_names
from gpgc_dask.results.export.images import VERDICTS, Image, ImageFormat, regions
from gpgc_dask.results.export.runs import boxed_runs

__all__ = ["Cvat"]

REVIEW = "review"
"""Label of the tag that holds the columns of the ranking as attributes."""


class Cvat(ImageFormat):
    """One ``<image>`` per image, numbered in the order of the ranking.

    The target is in the format *CVAT for images 1.1*. The labels of the task and the paths of the
    photos are written next to it.
    """

    suffix = ".xml"
    accepts_dataset = False

    def entry(self, image: Image) -> tuple[str, Xml.Element]:
        """(path of the photo, its ``<image>`` element)."""
        height, width = image.given.shape
        element = Xml.Element("image", name=image.name, width=str(width), height=str(height))
        for label, inside in regions(image.given, self.labels):
            lengths, (left, top, width, height) = boxed_runs(inside)
            Xml.SubElement(
                element,
                "mask",
                label=label,
                source="file",
                occluded="0",
                rle=", ".join(map(str, lengths)),
                left=str(left),
                top=str(top),
                width=str(width),
                height=str(height),
                z_order="0",
            )
        tag = Xml.SubElement(element, "tag", label=REVIEW, source="file")
        for name, value in image.attributes.items():
            text = ", ".join(value) if isinstance(value, list) else value
            Xml.SubElement(tag, "attribute", name=name).text = "" if text is None else str(text)
        return image.path, element

    def files(self, entries: list[tuple[str, Xml.Element]]) -> dict[Path, bytes]:
        """The annotations, the labels, and the paths of the photos, one per line."""
        root = Xml.Element("annotations")
        Xml.SubElement(root, "version").text = "1.1"
        root.append(self._meta(len(entries)))
        for number, (_, element) in enumerate(entries):
            element.set("id", str(number))
            root.append(element)
        Xml.indent(root)
        photos = "".join(f"{path}\n" for path, _ in entries)
        return {
            self.target: Xml.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n",
            self.target.with_suffix(".labels.json"): json.dumps(self._labels(), indent=2).encode(),
            self.target.with_suffix(".photos.txt"): photos.encode(),
        }

    def _meta(self, n: int) -> Xml.Element:
        meta = Xml.Element("meta")
        task = Xml.SubElement(meta, "task")
        _add(task, name=self.target.stem, size=n, mode="annotation")
        labels = Xml.SubElement(task, "labels")
        for described in self._labels():
            label = Xml.SubElement(labels, "label")
            _add(label, name=described["name"], type=described["type"])
            attributes = Xml.SubElement(label, "attributes")
            for attribute in described["attributes"]:
                _add(Xml.SubElement(attributes, "attribute"), **attribute | {"values": ""})
        return meta

    def _labels(self) -> list[dict[str, Any]]:
        """The labels in the "raw" form of CVAT's label constructor."""
        text = {"mutable": False, "input_type": "text", "default_value": "", "values": [""]}
        drawn = [{"name": name, "type": "mask", "attributes": []} for name in self.labels.values()]
        attributes = [{"name": name, **text} for name in column_names("exports")]
        review = {"name": REVIEW, "type": "tag", "attributes": attributes}
        verdicts = [{"name": name, "type": "tag", "attributes": []} for name in VERDICTS]
        return [*drawn, review, *verdicts]


def _add(element: Xml.Element, **texts: object) -> None:
    """Add elements of these names and texts to another."""
    for name, text in texts.items():
        Xml.SubElement(element, name).text = str(text)
