"""What has changed between a dataset and the files that it is made of."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.core.slices import stored_file
from gpgc_dask.data.dataset import text_values
from gpgc_dask.imaging.image_info import ImageInfo, PhotoInfo
from gpgc_dask.imaging.mask_sources import (
    MASK_SOURCES,
    Item,
    MaskSource,
    file_digest,
    open_source,
)
from gpgc_dask.imaging.objects import PhotoObject
from gpgc_dask.imaging.photo_format import stored_format
from gpgc_dask.imaging.scene_masks import cut_source
from gpgc_dask.pipelines.ingest.staging import ImageRecord, StagedImage
from gpgc_dask.storage.location import MAX_CONCURRENT

__all__ = [
    "Changes",
    "StoredImages",
    "files_digest",
    "find_changes",
    "find_info",
    "open_stored_source",
]


class StoredImages:
    """The images of a dataset, as their ingest has staged them.

    Attributes
    ----------
    numbers : dict of str to int
        {name of the image: its number}.
    starts : (images + 1,) array of int
        First row of each image, and the number of all rows.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset = dataset
        self.names = text_values(dataset["image_name"]).tolist()
        self.photos = text_values(dataset["photo_name"]).tolist()
        self.photo_stamps = text_values(dataset["photo_stamp"]).tolist()
        self.photo_digests = text_values(dataset["photo_digest"]).tolist()
        self.mask_stamps = text_values(dataset["mask_stamp"]).tolist()
        self.mask_paths = text_values(dataset["mask_path"]).tolist()
        self.masks = str(dataset.attrs["source"]["masks"])
        self.images = str(dataset.attrs["source"]["images"])
        self.numbers = {name: number for number, name in enumerate(self.names)}
        counts = np.bincount(dataset["image"].values, minlength=len(self.names))
        self.starts: Index = np.concatenate([[0], np.cumsum(counts)])
        columns = text_values(dataset["feature_group"])
        first = sorted(np.unique(columns, return_index=True)[1])
        self.layers = {str(columns[n]): int((columns == columns[n]).sum()) for n in first}

    def load(self) -> list[StagedImage]:
        """All images with their labels and objects; features and maps stay in the dataset."""
        columns = {name: self.dataset[name].values for name in ("label", "weight", "pixels")}
        sizes = {
            name: self.dataset[name].values.tolist()
            for name in ("height", "width", "segment_height", "segment_width")
        }
        paths = text_values(self.dataset["image_path"]).tolist()
        flags = text_values(self.dataset["flags"]).tolist()
        objects = self._objects()
        images = []
        for number, name in enumerate(self.names):
            rows = slice(int(self.starts[number]), int(self.starts[number + 1]))
            record = ImageRecord(
                name=name,
                identity="",
                image_path=paths[number],
                mask_path=self.mask_paths[number],
                **{size: values[number] for size, values in sizes.items()},
                superpixels=rows.stop - rows.start,
                flags=flags[number],
                layers=self.layers,
                photo_stamp=self.photo_stamps[number],
                photo_digest=self.photo_digests[number],
                mask_stamp=self.mask_stamps[number],
            )
            own = {column: values[rows] for column, values in columns.items()}
            images.append(
                StagedImage(record, "", rows.start, number, objects=objects[number], **own)
            )
        return images

    def _objects(self) -> list[list[PhotoObject]]:
        """Annotated objects of each image."""
        names = ("image", "id", "class", "crowd", "area", "box", "region")
        columns = [self.dataset[f"object_{name}"].values.tolist() for name in names]
        objects: list[list[PhotoObject]] = [[] for _ in self.names]
        for image, own, code, crowd, area, box, region in zip(*columns, strict=True):
            one = PhotoObject(str(own), code, bool(crowd), area, tuple(box), str(region))
            objects[image].append(one)
        return objects

    def info(self) -> dict[str, PhotoInfo]:
        """Photo, group, annotator and date of each image, by its name."""
        columns = ("photo_name", "group", "annotator", "annotated")
        texts: list[list[str]] = [text_values(self.dataset[name]).tolist() for name in columns]
        return {
            name: PhotoInfo(*own)
            for name, own in zip(self.names, zip(*texts, strict=True), strict=True)
        }


def open_stored_source(
    attributes: Mapping[str, Any],
    images: str | os.PathLike[str],
    masks: str | os.PathLike[str],
    answers: str | os.PathLike[str],
) -> MaskSource:
    """Open photos and masks with the options of a dataset.

    Raises
    ------
    InputError
        If the masks have other classes than the dataset.
    """
    stored = attributes["source"]
    options = MASK_SOURCES[stored["format"]].restore_options(stored)
    if answers:
        options = replace(options, answers=os.fspath(answers))
    source = open_source(images, masks, options)
    cut_source(source, stored_format(attributes))
    names, values = list(source.mask_format.names), list(source.mask_format.values)
    if [names, values] != [list(attributes["classes"]), list(attributes["class_values"])]:
        raise InputError(
            f"{masks} has the classes {', '.join(names)}, and the dataset "
            f"{', '.join(attributes['classes'])}: create it again (gpgc ingest --overwrite)"
        )
    return source


@dataclass(frozen=True)
class Changes:
    """The images of an updated dataset, by what has to be done.

    Attributes
    ----------
    described : list of Item
        Photos that are new, or have another content: all is computed.
    labelled : list of (Item, int)
        Masks that may have changed, and new masks of photos that the dataset knows: with the number
        of an image that has the features.
    kept : list of Item
        Images whose photo and mask are the same.
    vanished : dict of str to str
        {name: reason} of images of the dataset without a photo or a mask.
    replaced : frozenset of str
        Names of images of the dataset whose photo has another content.
    problems : list of Problem
        Files that cannot be used and are no images of the dataset.
    """

    described: list[Item]
    labelled: list[tuple[Item, int]]
    kept: list[Item]
    vanished: dict[str, str]
    replaced: frozenset[str]
    problems: list[Problem]


def find_changes(source: MaskSource, stored: StoredImages) -> Changes:
    """Compare files with the images of a dataset. Reads photos whose time has changed."""
    same = _same_photos(source.items, stored)
    described, labelled, kept = [], [], []
    for item in source.items:
        name = item.pair.name
        if name not in same:
            described.append(item)
        elif name in stored.numbers and item.mask_stamp == stored.mask_stamps[same[name]]:
            kept.append(item)
        else:
            labelled.append((item, same[name]))
    vanished, problems = _find_vanished(source, stored)
    replaced = {item.pair.name for item in described} & stored.numbers.keys()
    return Changes(described, labelled, kept, vanished, frozenset(replaced), problems)


def _same_photos(items: Sequence[Item], stored: StoredImages) -> dict[str, int]:
    """{name of an image: an image of the dataset of the same photo, unchanged}."""
    of_photo: dict[str, int] = {}
    for number, photo in enumerate(stored.photos):
        of_photo.setdefault(photo, number)
    same: dict[str, int] = {}
    touched: list[tuple[Item, int]] = []
    for item in items:
        name = item.pair.name
        photo = item.info.photo if item.info is not None else name
        if name not in stored.numbers and photo not in of_photo:
            continue
        number = stored.numbers[name] if name in stored.numbers else of_photo[photo]
        if item.photo_stamp == stored.photo_stamps[number]:
            same[name] = number
        elif _size(item.photo_stamp) == _size(stored.photo_stamps[number]):
            touched.append((item, number))
    paths = list(dict.fromkeys(stored_file(item.pair.image) for item, _ in touched))
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        digests = dict(zip(paths, pool.map(_digest, paths), strict=True))
    for item, number in touched:
        if digests[stored_file(item.pair.image)] == stored.photo_digests[number]:
            same[item.pair.name] = number
    return same


def _size(stamp: str) -> str:
    return stamp.partition(":")[0]


def _digest(path: str) -> str | None:
    """Digest of a file; None if it cannot be read, which is reported where it is decoded."""
    try:
        return file_digest(path)
    except OSError:
        return None


def _find_vanished(
    source: MaskSource, stored: StoredImages
) -> tuple[dict[str, str], list[Problem]]:
    """Images of the dataset that the source no longer has; problems of other files."""
    present = {item.pair.name for item in source.items}
    gone = [name for name in stored.names if name not in present]
    reasons = {problem.name: problem.reason for problem in source.problems}
    vanished, explained = {}, set()
    for name in gone:
        number = stored.numbers[name]
        mask = os.path.relpath(stored.mask_paths[number], stored.masks)
        own = [alias for alias in (name, stored.photos[number], mask) if alias in reasons]
        vanished[name] = reasons[own[0]] if own else "its photo or its mask is gone"
        explained.update(own)
    return vanished, [problem for problem in source.problems if problem.name not in explained]


def find_info(
    source: MaskSource, stored: StoredImages, rules: ImageInfo, kept: Iterable[str]
) -> dict[str, PhotoInfo]:
    """Group, annotator and date of each image; of ``kept`` ones without files as they were."""
    earlier = stored.info()
    names = list(kept)
    others = {*names, *(earlier[name].photo for name in names)}
    return {name: earlier[name] for name in names} | source.find_info(rules, others)


def files_digest(source: MaskSource, info: Mapping[str, PhotoInfo], kept: Sequence[str]) -> str:
    """Digest as that of an ingest of the same files; another one if there are ``kept`` images."""
    own = {name: about for name, about in info.items() if name not in set(kept)}
    digest = source.digest(own)
    if not kept:
        return digest
    return hashlib.sha256(json.dumps([digest, sorted(kept)]).encode()).hexdigest()
