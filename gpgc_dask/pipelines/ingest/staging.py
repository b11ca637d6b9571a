"""Finished images of an ingest under way, some to a part, until the dataset is put together.

A part is three objects named after its images: ``features``, ``segments`` and, written last,
``rows`` (labels, areas and what is known of each image). Only what ``rows`` names is finished.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features, Labels
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.schema import UNFINISHED_FOLDER
from gpgc_dask.imaging.features import Described, Labelled
from gpgc_dask.imaging.files import Pair
from gpgc_dask.storage.location import MAX_CONCURRENT, Location

__all__ = ["FinishedImage", "Kept", "read_features", "read_index", "read_segments", "write_part"]

FOLDER = f"{UNFINISHED_FOLDER}/parts"

CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class FinishedImage:
    """What is known of an image that is done, but for its numbers.

    identity : changes when the image or its mask do
    layers : columns of each feature group
    """

    name: str
    identity: str
    image_path: str
    mask_path: str
    height: int
    width: int
    segment_height: int
    segment_width: int
    superpixels: int
    flags: str
    layers: dict[str, int]

    @classmethod
    def of(
        cls, pair: Pair, identity: str, described: Described, labelled: Labelled
    ) -> FinishedImage:
        height, width = described.segments.shape
        return cls(
            name=pair.name,
            identity=identity,
            image_path=pair.image,
            mask_path=pair.mask,
            height=described.orientation.height,
            width=described.orientation.width,
            segment_height=height,
            segment_width=width,
            superpixels=described.n,
            flags=";".join(labelled.flags),
            layers=described.layers,
        )


@dataclass(frozen=True)
class Kept:
    """A finished image, its labels, and where in a part its features and segments begin."""

    image: FinishedImage
    part: str
    row: int
    pixel: int
    label: Labels
    weight: Labels
    pixels: Labels


def write_part(location: Location, images: list[tuple[FinishedImage, Described, Labelled]]) -> None:
    """Keep some finished images, all or none of them."""
    check_layers([image for image, _, _ in images])
    known = [asdict(image) for image, _, _ in images]
    name = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:24]
    features = np.concatenate([described.features for _, described, _ in images])
    segments = np.concatenate([described.segments.ravel() for _, described, _ in images])
    location.write(f"{FOLDER}/{name}.features", _npy(features))
    location.write(f"{FOLDER}/{name}.segments", _npy(segments))
    rows = io.BytesIO()
    np.savez(
        rows,
        images=np.frombuffer(json.dumps(known).encode(), dtype=np.uint8),
        label=np.concatenate([labelled.label for _, _, labelled in images]),
        weight=np.concatenate([labelled.weight for _, _, labelled in images]),
        pixels=np.concatenate([labelled.pixels for _, _, labelled in images]),
    )
    location.write(f"{FOLDER}/{name}.rows", rows.getbuffer())


def check_layers(images: Sequence[FinishedImage]) -> None:
    """Complain of a backbone that gives images different numbers of features."""
    first = images[0]
    for image in images:
        if image.layers != first.layers:
            raise InputError(
                f"the backbone gives {first.layers['appearance']} features for {first.name} but "
                f"{image.layers['appearance']} for {image.name}: it must give every image the same "
                "number of channels"
            )


def read_index(location: Location) -> Iterable[Kept]:
    """All finished images, part by part."""
    names = [name for name in location.names(FOLDER) if name.endswith(".rows")]
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        for name, content in zip(
            names, pool.map(lambda name: location.read(f"{FOLDER}/{name}"), names), strict=True
        ):
            try:
                found = list(_kept(name.removesuffix(".rows"), content))
            except Exception as error:  # zipfile, zlib, NumPy and json all have their own
                raise _damaged(location, name) from error
            yield from found


def _kept(part: str, content: bytes) -> Iterable[Kept]:
    # A .npz file is a zip archive, which has checksums of its own.
    with np.load(io.BytesIO(content), allow_pickle=False) as rows:
        stored: dict[str, Any] = {name: rows[name] for name in rows.files}
    row = pixel = 0
    for known in json.loads(bytes(stored["images"])):
        image = FinishedImage(**known)
        own = slice(row, row + image.superpixels)
        yield Kept(
            image,
            part,
            row,
            pixel,
            *(stored[name][own] for name in ("label", "weight", "pixels")),
        )
        row = own.stop
        pixel += image.segment_height * image.segment_width


def read_features(location: Location, part: str) -> Features:
    """(rows, k) features of a part's images, one after the other."""
    return _array(location, f"{part}.features")


def read_segments(location: Location, part: str) -> Features:
    """Superpixel maps of a part's images, flat, one after the other."""
    return _array(location, f"{part}.segments")


def has_arrays(location: Location) -> set[str]:
    """Parts whose features and segments are both still there."""
    names = location.names(FOLDER)
    features = {name.removesuffix(".features") for name in names if name.endswith(".features")}
    return {name for name in features if f"{name}.segments" in set(names)}


def remove_arrays(location: Location, part: str, kind: str) -> None:
    """Remove the ``features`` or ``segments`` of a part: they are in the dataset now."""
    location.remove(f"{FOLDER}/{part}.{kind}")


def forget(location: Location, parts: Iterable[str]) -> None:
    """Remove parts altogether: their images have to be done again."""
    for part in parts:
        for kind in ("rows", "features", "segments"):
            location.remove(f"{FOLDER}/{part}.{kind}")


def _npy(array: Features) -> memoryview:
    """The array as a .npy file, and a checksum after it."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    content.write(zlib.crc32(content.getbuffer()).to_bytes(CHECKSUM_BYTES, "little"))
    return content.getbuffer()


def _array(location: Location, name: str) -> Features:
    content = memoryview(location.read(f"{FOLDER}/{name}"))
    body, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    if zlib.crc32(body) != int.from_bytes(checksum, "little") or not body:
        raise _damaged(location, name)
    return np.asarray(np.load(io.BytesIO(body), allow_pickle=False))


def _damaged(location: Location, name: str) -> CorruptedError:
    part = f"{location}/{FOLDER}/{name.partition('.')[0]}.*"
    return CorruptedError(
        f"{name} of an unfinished ingest is corrupted: remove {part} and go on with resume=True "
        "(--resume), which does those images again"
    )
