"""A COCO file that was edited in another tool."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.imaging.mask_sources.coco import annotation_size, decode_segmentation
from gpgc_dask.imaging.mask_sources.coco_content import (
    check_annotations,
    load_coco,
    segmentation_problem,
)
from gpgc_dask.imaging.mask_sources.documents import read_head
from gpgc_dask.results.verdicts.base import (
    DrawnMask,
    Entry,
    ImportFormat,
    count_text,
    some_names,
)

__all__ = ["CocoAnnotations"]


class CocoAnnotations(ImportFormat):
    """Annotations in the categories of the dataset, drawn as at ingest: large ones first.

    Annotations that are still marked ``"proposed": true``, as ``gpgc export --to coco`` writes them
    and no person has accepted them, are not drawn. COCO files do not show which images a person has
    finished.
    """

    title = "COCO file"

    @classmethod
    def recognises(cls, source: Path) -> bool:
        """A JSON object; which one is checked when it is read."""
        return read_head(source).lstrip().startswith("{")

    def entries(self) -> list[Entry]:
        """One entry per image of the file."""
        content = load_coco(self.source)
        check_annotations(content, self.source)
        drawn, proposed = self._by_image(content["annotations"])
        codes, unknown = self._codes(content)
        entries, empty = [], []
        for image in content["images"]:
            name = self.find_image(image["file_name"])
            if name is None:
                continue
            own = drawn[image["id"]]
            reason = self._problem(own, unknown, image)
            if reason:
                self.problems.append(Problem(name, reason))
                continue
            regions = [one for one in own if one["category_id"] in codes]
            if not regions:
                empty.append(name)
            entries.append(Entry(name, self._mask(image, regions, codes), place=str(image["id"])))
        self._note(proposed, empty)
        return entries

    def _by_image(self, annotations: list[Any]) -> tuple[dict[Any, list[Any]], int]:
        """({image id: annotations to draw, large ones first}, number of those left as proposed)."""
        drawn: dict[Any, list[Any]] = defaultdict(list)
        proposed = 0
        for one in sorted(annotations, key=annotation_size, reverse=True):
            if _is_proposed(one):
                proposed += 1
            elif one.get("segmentation"):
                drawn[one["image_id"]].append(one)
        return drawn, proposed

    def _codes(self, content: dict[str, Any]) -> tuple[dict[Any, int], dict[Any, str]]:
        """({category id: class code}, {category id: why it cannot be used}).

        A dataset that was made from a COCO file need not have all of its categories: the others do
        not count, as at ingest.
        """
        codes, unknown = {}, {}
        for category in content["categories"]:
            try:
                codes[category["id"]] = self.target.code(category["name"])
            except InputError as error:
                unknown[category["id"]] = str(error)
        if self.target.source_format == "coco":
            used = Counter(one["category_id"] for one in content["annotations"])
            ignored = sum(count for number, count in used.items() if number in unknown)
            if ignored:
                self.notes.append(
                    f"{count_text(ignored, 'annotation')} of other categories than those of the "
                    "dataset do not count"
                )
            unknown = {}
        return codes, unknown

    def _problem(
        self, annotations: list[Any], unknown: dict[Any, str], image: dict[str, Any]
    ) -> str | None:
        for one in annotations:
            if one["category_id"] in unknown:
                return unknown[one["category_id"]]
            size = (int(image["height"]), int(image["width"]))
            problem = segmentation_problem(one["segmentation"], *size)
            if problem:
                return f"annotation {one.get('id')} has {problem}"
        return None

    def _mask(
        self, image: dict[str, Any], annotations: list[Any], codes: dict[Any, int]
    ) -> DrawnMask:
        size = (int(image["height"]), int(image["width"]))
        regions = tuple(
            (codes[one["category_id"]], partial(_draw, one["segmentation"], *size))
            for one in annotations
        )
        return DrawnMask(size, regions, self.target.empty)

    def _note(self, proposed: int, empty: list[str]) -> None:
        if proposed:
            self.notes.append(
                f"{count_text(proposed, 'annotation')} still marked as proposed do not count: "
                'remove "proposed" from those that are right'
            )
        if empty:
            self.notes.append(
                f"{count_text(len(empty), 'image')} without an annotation count as empty masks: "
                f"{some_names(empty)}"
            )


def _is_proposed(annotation: dict[str, Any]) -> bool:
    attributes = annotation.get("attributes")
    marked = attributes.get("proposed") if isinstance(attributes, dict) else None
    return (annotation.get("proposed") or marked) in (True, 1, "true", "True")


def _draw(segmentation: Any, height: int, width: int) -> Mask | slice:
    """Pixels of a region; an empty slice if it has no area."""
    inside = decode_segmentation(segmentation, height, width)
    return slice(0) if inside is None else inside
