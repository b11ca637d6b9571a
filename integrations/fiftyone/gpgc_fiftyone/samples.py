"""Samples of FiftyOne as the folders of photos and masks that gpgc_dask reads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fiftyone as fo
import numpy as np
from PIL import Image

from gpgc_dask import MaskOptions
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.photos import read_orientation

VOID = 255
BACKGROUND, FOREGROUND = "background", "foreground"
OBJECTS = {fo.Detections: "detections", fo.Polylines: "polylines"}


@dataclass(frozen=True)
class Classes:
    """The classes of a label field.

    Attributes
    ----------
    names : list of str
        Name of each class code; code 0 is the background.
    codes : dict or None
        {value of a mask, or label of an object: code}; other values are void. None: every value
        but 0 is the foreground.
    """

    names: list[str]
    codes: Mapping[Any, int] | None

    @property
    def mask_options(self) -> MaskOptions:
        """How masks that :func:`write_folders` writes are read."""
        return MaskOptions(format="masks", classes=dict(enumerate(self.names)), void=[VOID])


def find_classes(view: Any, field: str, expected: Sequence[str] | None = None) -> Classes:
    """Find the classes of a field of segmentations, detections with masks, or polylines.

    Parameters
    ----------
    view : fiftyone view or dataset
    field : str
        Name of the field.
    expected : sequence of str, optional
        Classes of a model. Two classes need not have its names.
    """
    kind = _label_type(view, field)
    if kind is fo.Segmentation:
        targets = view.mask_targets.get(field) or view.default_mask_targets
        if not targets:
            found = Classes([BACKGROUND, FOREGROUND], None)
        else:
            if not all(isinstance(value, int) for value in targets):
                raise InputError(f"{field} has masks of colours: masks of numbers can be judged")
            named = {0: BACKGROUND} | dict(targets)
            values = sorted(named)
            found = Classes([named[value] for value in values], _numbered(values))
    else:
        labels = sorted(view.distinct(f"{field}.{OBJECTS[kind]}.label"))
        found = Classes([BACKGROUND, *labels], _numbered([BACKGROUND, *labels]))
    return found if expected is None else _as_in_model(found, list(expected), field)


def _numbered(values: Sequence[Any]) -> dict[Any, int]:
    return {value: code for code, value in enumerate(values)}


def _as_in_model(found: Classes, expected: list[str], field: str) -> Classes:
    """The classes with the codes of a model."""
    if len(found.names) == len(expected) == 2:
        return Classes(expected, found.codes)
    unknown = [name for name in found.names if name not in expected]
    if unknown or found.codes is None:
        raise InputError(
            f"{field} has the classes {', '.join(found.names)}, and the model "
            f"{', '.join(expected)}: they must have the same names (mask_targets)"
        )
    own = {value: expected.index(found.names[code]) for value, code in found.codes.items()}
    return Classes(expected, own)


def _label_type(view: Any, field: str) -> Any:
    if view.media_type != "image":
        raise InputError(f"masks of images can be judged, not of media type {view.media_type}")
    found = view.get_field(field)
    kind = getattr(found, "document_type", None)
    if kind is not fo.Segmentation and kind not in OBJECTS:
        raise InputError(
            f"{field} is not a field of segmentations, detections with masks, or polylines"
        )
    return kind


def label_fields(view: Any) -> list[str]:
    """Names of the fields whose masks can be judged."""
    schema = view.get_field_schema()
    kinds = {name: getattr(field, "document_type", None) for name, field in schema.items()}
    return [name for name, kind in kinds.items() if kind is fo.Segmentation or kind in OBJECTS]


def write_folders(
    view: Any, field: str, classes: Classes, folder: Path
) -> tuple[Path, Path, dict[str, str]]:
    """Write ``photos``, as links, and ``masks`` below a folder.

    Returns
    -------
    photos, masks : Path
    ids : dict
        {name of an image: id of its sample}. Samples without a label are left out.
    """
    photos, masks, ids = folder / "photos", folder / "masks", dict[str, str]()
    for place in (photos, masks):
        place.mkdir(parents=True)
    for sample in view.select_fields(field).iter_samples():
        label = sample[field]
        if label is None:
            continue
        name = sample.id + Path(sample.filepath).suffix.lower()
        os.symlink(sample.filepath, photos / name)
        size = read_orientation(sample.filepath)
        codes = _codes(label, classes, (size.width, size.height))
        Image.fromarray(codes).save(masks / f"{sample.id}.png")
        ids[name] = sample.id
    if not ids:
        raise InputError(f"no sample has a label in the field {field}")
    return photos, masks, ids


def _codes(label: Any, classes: Classes, size: tuple[int, int]) -> np.ndarray:
    """(height, width) class codes of a label, in the (width, height) of the photo."""
    if isinstance(label, fo.Segmentation):
        mask = label.get_mask()
        if mask is None or mask.ndim != 2:
            raise InputError("a segmentation has no mask, or one of colours")
        if classes.codes is None:
            codes = (mask != 0).astype(np.uint8)
        else:
            codes = np.full(mask.shape, VOID, np.uint8)
            for value, code in classes.codes.items():
                codes[mask == value] = code
    else:
        painted = {code: name for name, code in (classes.codes or {}).items() if code}
        codes = label.to_segmentation(frame_size=size, mask_targets=painted).mask
        codes = codes.astype(np.uint8)
    if codes.shape[::-1] != size:  # FiftyOne stretches masks over photos
        codes = np.asarray(Image.fromarray(codes).resize(size, Image.Resampling.NEAREST))
    return codes
