"""Staging: finished images of an unfinished ingest, kept in parts until the dataset is assembled.

A part holds some images in four objects: ``features``, ``segments``, ``mask`` and, written last,
``rows`` (labels, areas and the record of each image). An image is finished when ``rows`` has its
record.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Features, Labels
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.schema import MAPS, UNFINISHED_FOLDER
from gpgc_dask.imaging.features import PhotoFeatures, PhotoLabels
from gpgc_dask.imaging.mask_sources import Item
from gpgc_dask.imaging.objects import PhotoObject
from gpgc_dask.storage.location import MAX_CONCURRENT, Location

__all__ = [
    "ARRAYS",
    "ImageRecord",
    "StagedImage",
    "check_layers",
    "complete_parts",
    "read_array",
    "read_index",
    "remove_arrays",
    "remove_parts",
    "write_part",
]

FOLDER = f"{UNFINISHED_FOLDER}/parts"

ARRAYS = ("features", *MAPS)
"""Arrays that a part holds until they are in the dataset."""

CHECKSUM_BYTES = 4


@dataclass(frozen=True)
class ImageRecord:
    """Names, sizes and flags of a finished image.

    Attributes
    ----------
    identity : str
        Changes when the image, its mask or the settings change.
    layers : dict
        {feature group: number of columns}.
    photo_stamp, mask_stamp : str
        The parts of the identity that change with the photo and with the mask.
    photo_digest : str
        Digest of the photo's file.
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
    photo_stamp: str
    photo_digest: str
    mask_stamp: str

    @classmethod
    def of(
        cls, item: Item, photo_digest: str, described: PhotoFeatures, labelled: PhotoLabels
    ) -> ImageRecord:
        height, width = described.segments.shape
        return cls(
            name=item.pair.name,
            identity=item.identity,
            image_path=item.pair.image,
            mask_path=item.pair.mask,
            height=described.orientation.height,
            width=described.orientation.width,
            segment_height=height,
            segment_width=width,
            superpixels=described.n,
            flags=";".join(labelled.flags),
            layers=described.layers,
            photo_stamp=item.photo_stamp,
            photo_digest=photo_digest,
            mask_stamp=item.mask_stamp,
        )


@dataclass(frozen=True)
class StagedImage:
    """A finished image, its labels, and where its features and maps begin in a part."""

    record: ImageRecord
    part: str
    row: int
    pixel: int
    label: Labels
    weight: Labels
    pixels: Labels
    objects: Sequence[PhotoObject] = ()


def write_part(
    location: Location, images: list[tuple[ImageRecord, PhotoFeatures, PhotoLabels]]
) -> None:
    """Write some finished images as one part, all or none of them."""
    check_layers([image for image, _, _ in images])
    known = [asdict(image) for image, _, _ in images]
    name = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:24]
    arrays = {
        "features": [described.features for _, described, _ in images],
        "segments": [described.segments.ravel() for _, described, _ in images],
        "mask": [labelled.mask.ravel() for _, _, labelled in images],
    }
    for kind in ARRAYS:
        location.write(f"{FOLDER}/{name}.{kind}", _to_npy(np.concatenate(arrays[kind])))
    rows = io.BytesIO()
    np.savez(
        rows,
        images=_to_bytes(known),
        label=np.concatenate([labelled.label for _, _, labelled in images]),
        weight=np.concatenate([labelled.weight for _, _, labelled in images]),
        pixels=np.concatenate([labelled.pixels for _, _, labelled in images]),
        objects=_to_bytes(
            [[astuple(one) for one in labelled.objects] for _, _, labelled in images]
        ),
    )
    location.write(f"{FOLDER}/{name}.rows", rows.getbuffer())


def _to_bytes(content: Any) -> Labels:
    """JSON as an array of bytes."""
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)


def check_layers(images: Sequence[ImageRecord]) -> None:
    """Raise an InputError if the backbone gives images different numbers of features."""
    first = images[0]
    for image in images:
        if image.layers != first.layers:
            raise InputError(
                f"the backbone gives {first.layers['appearance']} features for {first.name} but "
                f"{image.layers['appearance']} for {image.name}: it must give every image the same "
                "number of channels"
            )


def read_index(location: Location) -> Iterable[StagedImage]:
    """Read all finished images, part by part."""
    names = [name for name in location.names(FOLDER) if name.endswith(".rows")]
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        for name, content in zip(
            names, pool.map(lambda name: location.read(f"{FOLDER}/{name}"), names), strict=True
        ):
            try:
                staged = list(_parse_part(name.removesuffix(".rows"), content))
            except Exception as error:  # zipfile, zlib, NumPy and json all have their own
                raise _corrupted_error(location, name) from error
            yield from staged


def _parse_part(part: str, content: bytes) -> Iterable[StagedImage]:
    # A .npz file is a zip archive, which has checksums of its own.
    with np.load(io.BytesIO(content), allow_pickle=False) as rows:
        stored: dict[str, Any] = {name: rows[name] for name in rows.files}
    row = pixel = 0
    objects = json.loads(bytes(stored["objects"]))
    for values, own_objects in zip(json.loads(bytes(stored["images"])), objects, strict=True):
        image = ImageRecord(**values)
        own = slice(row, row + image.superpixels)
        yield StagedImage(
            image,
            part,
            row,
            pixel,
            stored["label"][own],
            stored["weight"][own],
            stored["pixels"][own],
            [PhotoObject(*one) for one in own_objects],
        )
        row = own.stop
        pixel += image.segment_height * image.segment_width


def complete_parts(location: Location) -> set[str]:
    """Names of the parts whose arrays all exist."""
    names = set(location.names(FOLDER))
    parts = {name.removesuffix(".features") for name in names if name.endswith(".features")}
    return {part for part in parts if names.issuperset(f"{part}.{kind}" for kind in ARRAYS)}


def remove_arrays(location: Location, part: str, kind: str) -> None:
    """Remove one of the :data:`ARRAYS` of a part, which is in the dataset now."""
    location.remove(f"{FOLDER}/{part}.{kind}")


def remove_parts(location: Location, parts: Iterable[str]) -> None:
    """Remove parts completely: their images have to be staged again."""
    for part in parts:
        for kind in ("rows", *ARRAYS):
            location.remove(f"{FOLDER}/{part}.{kind}")


def _to_npy(array: Features) -> memoryview:
    """The array as a .npy file, and a checksum after it."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    content.write(zlib.crc32(content.getbuffer()).to_bytes(CHECKSUM_BYTES, "little"))
    return content.getbuffer()


def read_array(location: Location, part: str, kind: str) -> Labels:
    """Read one of the :data:`ARRAYS` of a part's images.

    Returns
    -------
    (rows, k) array of features, or (pixels,) array
        Maps are flat, one after the other.
    """
    name = f"{part}.{kind}"
    content = memoryview(location.read(f"{FOLDER}/{name}"))
    body, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    if zlib.crc32(body) != int.from_bytes(checksum, "little") or not body:
        raise _corrupted_error(location, name)
    return np.asarray(np.load(io.BytesIO(body), allow_pickle=False))


def _corrupted_error(location: Location, name: str) -> CorruptedError:
    part = f"{location}/{FOLDER}/{name.partition('.')[0]}.*"
    return CorruptedError(
        f"{name} of unfinished work is corrupted: remove {part} and continue (an ingest with "
        "resume=True (--resume)), which processes those images again"
    )
