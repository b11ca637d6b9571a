"""DICOM images and slices of NIfTI volumes, by pydicom and nibabel."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gpgc_dask.core.errors import GpgcError, MissingDependencyError, UnusableFileError
from gpgc_dask.core.slices import slice_name, split_slice

__all__ = ["SliceHeader", "list_slices", "open_slice", "read_slice", "read_slice_header"]

MAX_VALUES = 178_956_970
"""Values of a slice; the limit of Pillow for photos."""

MAX_RATIO = 1032
"""Deflate compresses at most by this factor."""

UNKNOWN = ("InvalidDicomError", "ImageFileError")
"""Errors of pydicom and nibabel over a file of another kind."""

MAX_LABEL = 65535

SAME_SIZE = 1.01
"""Voxels whose sides differ by less are cubes."""

UP, LEFT_RIGHT, FRONT_BACK = 2, 0, 1
"""Axes of a NIfTI volume after it has been turned to right, anterior, superior."""


@dataclass(frozen=True)
class SliceHeader:
    """What is known of an image without decoding it.

    Attributes
    ----------
    dtype : numpy.dtype
        Type of the values.
    height, width : int
        Size in pixels.
    bands : int
        Number of values per pixel.
    slices : int
        Number of images in the file.
    """

    dtype: np.dtype[Any]
    height: int
    width: int
    bands: int = 1
    slices: int = 1


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn whatever the readers raise over a corrupted file into an UnusableFileError."""
    try:
        yield
    except GpgcError:
        raise
    except OSError as error:
        if error.errno is None:
            raise UnusableFileError(f"corrupted or truncated: {_line(error)}") from None
        raise UnusableFileError(f"cannot be opened: {error.strerror}") from None
    except Exception as error:  # files may have any content, and these readers trust them
        name = type(error).__name__
        if name in UNKNOWN:
            raise UnusableFileError("no DICOM or NIfTI file, or corrupted from the start") from None
        raise UnusableFileError(f"corrupted: {name}: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _import(name: str) -> Any:
    """A package, without its warnings of odd headers."""
    logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module=rf"{name}\.")
    try:
        return import_module(name)
    except ImportError:
        raise MissingDependencyError(
            'DICOM and NIfTI files need pydicom and nibabel: pip install "gpgc_dask[medical]"'
        ) from None


def list_slices(file: str) -> list[str]:
    """Names of the images in a file, which are its name and numbers; of single DICOM its name.

    A file that cannot be read is one image, whose error is reported where it is decoded.
    """
    nifti = _is_nifti(file)
    try:
        number = _header(file, _stamp(file)).slices
    except UnusableFileError:
        return [slice_name(file, 1) if nifti else file]
    if number == 1 and not nifti:
        return [file]
    return [slice_name(file, place) for place in range(1, number + 1)]


def read_slice_header(path: str | PathLike[str]) -> SliceHeader:
    """Read type and size of an image from the header of its file."""
    file, _ = split_slice(path)
    return _header(file, _stamp(file))


def read_slice(path: str | PathLike[str]) -> tuple[NDArray[Any], bool]:
    """Read an image.

    Parameters
    ----------
    path : path
        A DICOM file, or ``FILE/NUMBER``, see :func:`~gpgc_dask.core.slices.slice_name`.

    Returns
    -------
    values : (h, w, bands) array
        Values in the unit of the file, such as Hounsfield units: integers, or floats.
    inverted : bool
        Whether 0 is white.
    """
    file, number = split_slice(path)
    header = read_slice_header(path)
    if not 1 <= (number or 1) <= header.slices or (number is None and _is_nifti(file)):
        raise UnusableFileError(f"has {header.slices} slices: name one of them as {file}/0001")
    with _reading(file):
        if _is_nifti(file):
            values, inverted = _nifti_values(file, number or 1), False
        else:
            values, inverted = _dicom_values(file, number or 1)
        return values.reshape(header.height, header.width, -1), inverted


def open_slice(path: str | PathLike[str]) -> Any:
    """An image of labels as one of Pillow, which is decoded when its pixels are needed."""
    return _LabelImage(os.fspath(path))


class _LabelImage(Image.Image):
    """An image of which the header is known; it becomes an ordinary one when it is loaded."""

    def __init__(self, path: str) -> None:
        super().__init__()
        header = read_slice_header(path)
        self._path = path
        self._size = (header.width, header.height)
        self._mode = "labels"  # what Pillow calls it is known when it is loaded
        self.format = "NIfTI" if _is_nifti(split_slice(path)[0]) else "DICOM"

    def load(self) -> Any:
        picture = _to_picture(read_slice(self._path)[0])
        self.__class__ = picture.__class__  # as StubImageFile of Pillow does
        self.__dict__ = picture.__dict__
        return self.load()


def _to_picture(values: NDArray[Any]) -> Any:
    """Labels, (h, w, bands), as an image of Pillow."""
    if values.shape[2] == 3 and values.dtype == np.uint8:
        return Image.fromarray(values)
    if values.shape[2] != 1:
        raise UnusableFileError(f"mask has {values.shape[2]} values per pixel: labels are one")
    labels = values[..., 0]
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
        return Image.fromarray(labels.astype(np.float32))
    if labels.min() < 0 or labels.max() > MAX_LABEL:
        raise UnusableFileError(
            f"mask holds values outside 0 … {MAX_LABEL}: store classes as 0, 1, 2 …"
        )
    return Image.fromarray(labels.astype(np.uint8 if labels.max() < 256 else np.uint16))


def _is_nifti(file: str) -> bool:
    return not file.lower().endswith(".dcm")


def _stamp(file: str) -> tuple[int, int]:
    with _reading(file):
        status = os.stat(file)
        return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1 << 16)
def _header(file: str, _changed: tuple[int, int]) -> SliceHeader:
    nifti = _is_nifti(file)
    package = _import("nibabel" if nifti else "pydicom")
    with _reading(file):
        header = _nifti_header(package, file) if nifti else _dicom_header(package, file)
        if header.dtype.kind not in "uif":
            raise UnusableFileError(f"holds values of type {header.dtype}, which are no numbers")
        if min(header.height, header.width, header.bands, header.slices) < 1:
            raise UnusableFileError("holds no image")
        if header.slices > os.stat(file).st_size:
            raise UnusableFileError(f"corrupted: it is too small for {header.slices:,} frames")
        if header.height * header.width * header.bands > MAX_VALUES:
            raise UnusableFileError(f"slices of {header.width}×{header.height} are too large")
        return header


def _scale(values: NDArray[Any], slope: float, intercept: float) -> NDArray[Any]:
    """Stored values in the unit of the file."""
    dtype = _scaled_type(values.dtype, slope, intercept)
    if dtype == values.dtype:
        return values
    return (values * np.float64(slope) + np.float64(intercept)).astype(dtype)


def _scaled_type(dtype: np.dtype[Any], slope: float, intercept: float) -> np.dtype[Any]:
    """Type of values in the unit of the file: Hounsfield units stay integers."""
    if slope == 1 and intercept == 0:
        return dtype
    whole = slope == 1 and intercept.is_integer() and dtype.kind in "iu" and dtype.itemsize < 4
    return np.dtype("i4" if whole else "f8")


# -- DICOM -----------------------------------------------------------------------------------------


def _dicom_header(pydicom: Any, file: str) -> SliceHeader:
    own = pydicom.dcmread(file, stop_before_pixels=True)
    if "Rows" not in own or "Columns" not in own:
        raise UnusableFileError("a DICOM file without an image")
    size = next(size for size in (1, 2, 4, 8) if int(own.BitsAllocated) <= 8 * size)
    stored = np.dtype(f"{'i' if own.get('PixelRepresentation', 0) else 'u'}{size}")
    return SliceHeader(
        _scaled_type(stored, *_rescaling(own)),
        int(own.Rows),
        int(own.Columns),
        3 if int(own.SamplesPerPixel) > 1 or own.PhotometricInterpretation.startswith("P") else 1,
        int(own.get("NumberOfFrames", 1) or 1),
    )


def _dicom_values(file: str, number: int) -> tuple[NDArray[Any], bool]:
    pydicom, pixels = _import("pydicom"), _import("pydicom.pixels")
    own = pydicom.dcmread(file, stop_before_pixels=True)
    values = pixels.pixel_array(file, index=number - 1)
    colours = str(own.PhotometricInterpretation)
    if colours == "PALETTE COLOR":
        return pixels.apply_color_lut(values, own), False
    if "ModalityLUTSequence" in own:
        values = pixels.apply_modality_lut(values, own)
    else:
        values = _scale(values, *_rescaling(own))
    return values, colours == "MONOCHROME1"


def _rescaling(own: Any) -> tuple[float, float]:
    """Slope and intercept."""
    return float(own.get("RescaleSlope", 1) or 1), float(own.get("RescaleIntercept", 0) or 0)


# -- NIfTI -----------------------------------------------------------------------------------------


def _nifti_header(nibabel: Any, file: str) -> SliceHeader:
    image = nibabel.load(file)
    shape = _oriented_shape(nibabel, image)
    dtype = np.dtype(image.get_data_dtype())
    stored = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if stored > os.stat(file).st_size * (MAX_RATIO if file.lower().endswith(".gz") else 1):
        raise UnusableFileError(f"truncated: it is smaller than its {stored:,} bytes of values")
    width, height, slices, bands = shape
    scaled = _scaled_type(dtype, float(image.dataobj.slope), float(image.dataobj.inter))
    return SliceHeader(scaled, height, width, bands, slices)


def _turn(nibabel: Any, image: Any) -> tuple[Any, tuple[int, int, int]]:
    """Orientation of a volume, and its axes: along columns, rows and slices of the images.

    Slices are across the longest side of the voxels, in which scanners take them, or else axial.
    """
    orientation = nibabel.orientations.io_orientation(image.affine)
    if np.isnan(orientation).any():
        raise UnusableFileError("has no orientation: its affine matrix is singular")
    sides = np.linalg.norm(image.affine[:3, :3], axis=0)
    turned = np.empty(3)
    turned[orientation[:, 0].astype(int)] = sides
    across = UP if turned.max() < SAME_SIZE * turned[UP] else int(turned.argmax())
    columns = FRONT_BACK if across == LEFT_RIGHT else LEFT_RIGHT
    return orientation, (columns, 3 - across - columns, across)


def _as_volume(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Shape with three axes of space and one of values per voxel."""
    full = (*shape, 1, 1, 1)[: max(len(shape), 4)]
    if len(full) > 4 and max(full[4:]) > 1 and full[3] == 1 and len(full) == 5:
        full = (*full[:3], full[4])  # vectors
    if len(shape) < 2 or any(n > 1 for n in full[4:]):
        raise UnusableFileError(f"has the shape {shape}: slices of 3 axes, or of 4, are read")
    return full[0], full[1], full[2], full[3]


def _oriented_shape(nibabel: Any, image: Any) -> tuple[int, int, int, int]:
    """Number of columns, rows, slices and bands."""
    orientation, axes = _turn(nibabel, image)
    shape = _as_volume(tuple(int(n) for n in image.shape))
    turned = np.empty(3, dtype=int)
    turned[orientation[:, 0].astype(int)] = shape[:3]
    columns, rows, slices = (int(turned[axis]) for axis in axes)
    return columns, rows, slices, shape[3]


@lru_cache(maxsize=2)
def _load_volume(file: str, _changed: tuple[int, int]) -> tuple[NDArray[Any], float, float]:
    """(columns, rows, slices, bands) stored values, slope and intercept: slices follow each other.

    Two volumes are kept: that of the photos and that of their masks.
    """
    nibabel = _import("nibabel")
    image = nibabel.load(file)
    orientation, axes = _turn(nibabel, image)
    stored = image.dataobj.get_unscaled().reshape(_as_volume(image.shape))
    volume = nibabel.orientations.apply_orientation(stored, orientation)
    volume = np.moveaxis(volume, axes, (0, 1, 2))
    return volume, float(image.dataobj.slope), float(image.dataobj.inter)


def _nifti_values(file: str, number: int) -> NDArray[Any]:
    """A slice with anterior or superior at the top, and the right of the patient on the left."""
    volume, slope, intercept = _load_volume(file, _stamp(file))
    return _scale(np.array(volume[::-1, ::-1, number - 1].swapaxes(0, 1)), slope, intercept)
