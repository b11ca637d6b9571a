"""One image of a review: its photo, its masks and its superpixels, encoded for the page."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np

from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.data.dataset import text_values
from gpgc_dask.data.maps import Codes, Segments, map_chunks
from gpgc_dask.data.verdicts import Correction
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.imaging.painting import paint, rows_of
from gpgc_dask.imaging.photo_format import stored_format
from gpgc_dask.imaging.photos import read_orientation, silence_pillow
from gpgc_dask.imaging.superpixels import sample_codes
from gpgc_dask.results.pictures import (
    encode_jpeg,
    open_masks,
    read_drawn_mask,
    read_or_grey,
    scaled_size,
)
from gpgc_dask.review.basis import Basis
from gpgc_dask.review.masks import apply_edits, decode_runs

__all__ = ["SIDE", "Photos"]

SIDE = 1024
"""Longest side of a picture in pixels; larger photos are scaled down to it."""

QUALITY = 85
"""Quality of the JPEGs."""

FAST = 1
"""Level of zlib: labels are few and in large areas, and the page is on the same machine."""


class Photos:
    """Photos, masks and predictions of a basis. Its methods can be called in any thread.

    Parameters
    ----------
    basis : Basis
    """

    def __init__(self, basis: Basis) -> None:
        silence_pillow()
        dataset = basis.dataset
        self.basis = basis
        self._image = dataset["image"].values
        self._paths = text_values(dataset["image_path"]).tolist()
        sizes = (dataset[name].values.tolist() for name in ("height", "width"))
        self._sizes = list(zip(*sizes, strict=True))
        self._format = stored_format(dataset.attrs)
        self._masks = open_masks(dataset)

    def encode(self, photo: int, correction: Correction | None) -> bytes:
        """Everything that the page shows of an image, in one file.

        Parameters
        ----------
        photo : int
            Number of the image.
        correction : Correction or None
            The corrected mask, if there is one.

        Returns
        -------
        bytes
            The length of a description in 4 bytes (big-endian), the description (JSON), and the
            parts that it lists in ``parts`` with their lengths: ``photo`` (JPEG), and as zlib
            streams ``given`` and ``predicted`` (uint8, ``height`` × ``width``) and ``segments``
            (uint16, little-endian, ``segment_height`` × ``segment_width``).
        """
        h, w = self.display_size(photo)
        pixels, _, problem = read_or_grey(self._paths[photo], (h, w), SIDE, self._format)
        segments = self._segments(photo)
        given = sample_codes(self._read_given(photo, correction), h, w)
        predicted = paint(segments, self._predicted(photo), h, w)
        parts = {
            "photo": encode_jpeg(pixels, QUALITY),
            "given": _pack(given, "u1"),
            "predicted": _pack(predicted, "u1"),
            "segments": _pack(segments, "<u2"),
        }
        height, width = self._sizes[photo]
        description = {
            "width": w,
            "height": h,
            "photo_width": width,
            "photo_height": height,
            "segment_width": segments.shape[1],
            "segment_height": segments.shape[0],
            "problem": problem,
            "objects": self.basis.objects[photo],
            "parts": {name: len(part) for name, part in parts.items()},
        }
        text = json.dumps(description).encode()
        return b"".join([struct.pack(">I", len(text)), text, *parts.values()])

    def display_size(self, photo: int) -> tuple[int, int]:
        """Height and width of the picture."""
        height, width = self._sizes[photo]
        return scaled_size(height, width, SIDE)

    def correct(self, photo: int, mask: Any, current: Correction | None) -> Correction:
        """Make a corrected mask.

        Parameters
        ----------
        photo : int
            Number of the image.
        mask : "model" or list of int
            The mask that the model predicts without the image, or run lengths of the mask that was
            painted in the picture.
        current : Correction or None
            The corrected mask that was there before.
        """
        if mask == "model":
            codes = paint(self._segments(photo), self._predicted(photo), *self._sizes[photo])
        else:
            n_classes = len(self.basis.dataset.attrs["classes"])
            edited = decode_runs(mask, *self.display_size(photo), n_classes)
            codes = apply_edits(self._read_given(photo, current), edited)
        return make_correction(self.basis.dataset, photo, codes)

    def _read_given(self, photo: int, correction: Correction | None) -> Codes:
        """(H, W) class codes of the mask: the corrected one, its file, or what ingest has kept."""
        size = self._sizes[photo]
        if correction is not None and correction.mask.shape == size:
            return correction.mask
        try:
            orientation = read_orientation(self._paths[photo])
            drawn = read_drawn_mask(self._masks, photo, orientation)
        except UnusableFileError:
            drawn = None
        if drawn is not None and drawn.shape == size:
            return drawn
        (((_, kept),),) = map_chunks(self.basis.dataset, ["mask"], np.array([photo]))
        return sample_codes(kept, *size)

    def _segments(self, photo: int) -> Segments:
        (((_, segments),),) = map_chunks(self.basis.dataset, ["segments"], np.array([photo]))
        return segments

    def _predicted(self, photo: int) -> Codes:
        return self.basis.predicted[rows_of(self._image, photo)].astype(np.uint8)


def _pack(values: Any, dtype: str) -> bytes:
    return zlib.compress(np.ascontiguousarray(values, dtype=dtype).tobytes(), FAST)
