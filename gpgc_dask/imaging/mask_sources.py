"""What an ingest has to do: each image, its mask, and an identity that changes when they do."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.imaging.coco import CocoMask, coco_format, read_coco
from gpgc_dask.imaging.files import Pair, pair_masks, printable
from gpgc_dask.imaging.masks import MaskFormat

__all__ = ["Item", "Source"]


@dataclass(frozen=True)
class Item:
    """One image to do: where it is, what its identity is, and its mask where that is no file."""

    pair: Pair
    identity: str
    coco: CocoMask | None = None


@dataclass(frozen=True)
class Source:
    """All there is to do, in the order of the names, and what cannot be done."""

    items: list[Item]
    problems: list[Problem]
    format: MaskFormat
    told: dict[str, Any]

    @classmethod
    def from_masks(
        cls,
        images: str | PathLike[str],
        masks: str | PathLike[str],
        fmt: MaskFormat | None = None,
        suffix: str = "",
    ) -> Source:
        """A folder of images and a folder of masks."""
        found = pair_masks(images, masks, suffix)
        items = [Item(pair, f"{_stamp(pair.image)} {_stamp(pair.mask)}") for pair in found.pairs]
        told = {"images": _absolute(images), "masks": _absolute(masks)}
        return cls._checked(items, found.problems, fmt or MaskFormat(), told)

    @classmethod
    def from_coco(
        cls,
        images: str | PathLike[str],
        coco: str | PathLike[str],
        categories: Sequence[str],
        *,
        with_empty: bool = False,
    ) -> Source:
        """A folder of images and a COCO file of instances."""
        found, masks = read_coco(images, coco, categories, with_empty=with_empty)
        items = []
        for pair in found.pairs:
            mask = masks[pair.name]
            drawn = hashlib.sha256(mask.to_json().encode()).hexdigest()[:16]
            items.append(Item(pair, f"{_stamp(pair.image)} {drawn}", mask))
        told = {
            "images": _absolute(images),
            "coco": _absolute(coco),
            "categories": list(categories),
        }
        return cls._checked(items, found.problems, coco_format(categories), told)

    @classmethod
    def _checked(
        cls, items: list[Item], problems: list[Problem], fmt: MaskFormat, told: dict[str, Any]
    ) -> Source:
        if not items and not problems:
            raise InputError(f"there are no images in {told['images']}")
        odd = [item.pair.name for item in items if not _is_text(item.pair.image + item.pair.mask)]
        named = [Problem(name, "its name is not valid Unicode: rename it") for name in odd]
        usable = [item for item in items if item.pair.name not in odd]
        shown = [Problem(printable(p.name), printable(p.reason)) for p in problems + named]
        return cls(usable, sorted(shown, key=lambda p: p.name), fmt, told)

    def digest(self) -> str:
        """Changes when an image or mask does, or comes or goes."""
        known = [[item.pair.name, item.identity] for item in self.items]
        known += [[problem.name] for problem in self.problems]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _absolute(path: str | PathLike[str]) -> str:
    return os.path.abspath(Path(path).expanduser())


def _stamp(path: str) -> str:
    """Changes when the file does."""
    try:
        status = Path(path).stat()
    except OSError:
        return "-"
    return f"{status.st_size}:{status.st_mtime_ns}"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
