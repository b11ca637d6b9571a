"""CVAT: annotations ("CVAT for images 1.1"), the labels of the task, and its photos in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from gpgc_dask.results.export.images import Image, regions
from gpgc_dask.results.export.runs import boxed_runs

__all__ = ["Cvat"]

REVIEW = "review"
"""Label of the tag that holds what is known of an image."""

FACTS = ("rank", "agreement", "confidence", "noise_variance", "flags")


class Cvat:
    """An ``<image>`` each, numbered in the order of the ranking."""

    def __init__(self, target: Path, labels: dict[int, str]) -> None:
        self.target, self.labels = target, labels

    def entry(self, image: Image) -> tuple[str, Xml.Element]:
        """(path of the photo, what is said of it)."""
        height, width = image.given.shape
        told = Xml.Element("image", name=image.name, width=str(width), height=str(height))
        for label, inside in regions(image.given, self.labels):
            lengths, (left, top, width, height) = boxed_runs(inside)
            Xml.SubElement(
                told,
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
        tag = Xml.SubElement(told, "tag", label=REVIEW, source="file")
        facts = image.facts | {"flags": ", ".join(image.tags)}
        for name in FACTS:
            value = facts[name]
            Xml.SubElement(tag, "attribute", name=name).text = "" if value is None else str(value)
        return image.path, told

    def files(self, entries: list[tuple[str, Xml.Element]]) -> dict[Path, bytes]:
        """The annotations; beside them the labels, and the photos' paths one a line."""
        root = Xml.Element("annotations")
        Xml.SubElement(root, "version").text = "1.1"
        root.append(self._meta(len(entries)))
        for number, (_, told) in enumerate(entries):
            told.set("id", str(number))
            root.append(told)
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
        """The labels as CVAT's constructor takes them in its "raw" form."""
        text = {"mutable": False, "input_type": "text", "default_value": "", "values": [""]}
        drawn = [{"name": name, "type": "mask", "attributes": []} for name in self.labels.values()]
        facts = [{"name": name, **text} for name in FACTS]
        return [*drawn, {"name": REVIEW, "type": "tag", "attributes": facts}]


def _add(element: Xml.Element, **texts: object) -> None:
    """Elements of these names within another."""
    for name, text in texts.items():
        Xml.SubElement(element, name).text = str(text)
