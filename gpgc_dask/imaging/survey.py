"""A look at the photos before the work: how deep they are, and which values they have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpgc_dask.core.errors import InputError, UnusableFileError
from gpgc_dask.imaging.deep import PERCENTILES, find_levels, sample_values
from gpgc_dask.imaging.image_files import silence_pillow
from gpgc_dask.imaging.photo_format import PhotoFormat
from gpgc_dask.imaging.photo_values import Header, read_header, read_values

__all__ = ["Survey", "survey_photos"]

MAX_HEADERS, MAX_PHOTOS = 256, 32
"""Numbers of photos whose headers are read, and whose values are, evenly spread."""

PLAIN_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".bmp", ".gif", ".webp")
"""Files of these names have 8 bits per value and up to three bands."""


@dataclass(frozen=True)
class Survey:
    """The outcome of a survey.

    Attributes
    ----------
    photo_format : PhotoFormat
        With the levels of the dataset, if they are needed.
    notes : list of str
        What is done with the photos that a user may not expect.
    """

    photo_format: PhotoFormat
    notes: list[str]


def survey_photos(paths: Sequence[str], photo_format: PhotoFormat) -> Survey:
    """Look at headers of photos and, of deep ones, at some values.

    Parameters
    ----------
    paths : sequence of str
        The photos. The result depends on their order.
    photo_format : PhotoFormat
        How they are to be read. Levels that it has are kept.

    Returns
    -------
    Survey
    """
    silence_pillow()
    if photo_format.bands or photo_format.page > 1:
        _check_choice(_read_headers(_spread(paths, MAX_PHOTOS)).values(), photo_format)
    others = [path for path in paths if not path.lower().endswith(PLAIN_SUFFIXES)]
    headers = _read_headers(_spread(others, MAX_HEADERS))
    notes = [*_band_notes(headers.values(), photo_format)]
    deep = [path for path, header in headers.items() if header.is_deep]
    if not deep:
        return Survey(photo_format, notes)
    sampled = 0
    if photo_format.stretch == "dataset" and photo_format.levels is None:
        chosen = _spread(deep, MAX_PHOTOS)
        sample = _read_sample(chosen, photo_format)
        if sample.size:
            sampled = len(chosen)
            photo_format = replace(photo_format, levels=find_levels(sample))
    return Survey(photo_format, [_depth_note(headers[deep[0]], photo_format, sampled), *notes])


def _spread(paths: Sequence[str], number: int) -> list[str]:
    """At most ``number`` paths, evenly spread."""
    places = np.unique(np.linspace(0, len(paths) - 1, min(number, len(paths))).astype(int))
    return [paths[place] for place in places]


def _read_headers(paths: Sequence[str]) -> dict[str, Header]:
    """Headers of the photos that can be read; workers report the others."""
    headers = {}
    for path in paths:
        try:
            headers[path] = read_header(path)
        except UnusableFileError:
            continue
    return headers


def _read_sample(paths: Sequence[str], photo_format: PhotoFormat) -> np.ndarray:
    """Values of some pixels of photos, of each as many; unusable photos are left out."""
    samples = [np.empty(0)]
    for path in paths:
        try:
            found = read_values(path, photo_format)
        except UnusableFileError:
            continue
        if found is not None:
            samples.append(sample_values(found[0]))
    return np.concatenate(samples)


def _check_choice(headers: Collection[Header], photo_format: PhotoFormat) -> None:
    """Raise an InputError if no photo has the bands or the page."""
    if not headers:
        return
    bands, wanted = max(header.bands for header in headers), max(photo_format.bands, default=0)
    if wanted > bands:
        raise InputError(f"photos have {bands} band(s): there is no band {wanted} (--bands)")
    pages = max(header.pages for header in headers)
    if photo_format.page > pages:
        raise InputError(
            f"photos have {pages} page(s): there is no page {photo_format.page} (--page)"
        )


def _band_notes(headers: Collection[Header], photo_format: PhotoFormat) -> Iterator[str]:
    """Which bands and pages are used, if there are more."""
    bands = max((header.bands for header in headers), default=0)
    pages = max((header.pages for header in headers), default=1)
    if bands not in (0, 1, 3) and not photo_format.bands:
        used = "1, 2 and 3 are used as red, green and blue" if bands > 3 else "1 is used"
        yield f"photos have up to {bands} bands: {used}; choose others with --bands"
    if pages > 1 and photo_format.page == 1:
        yield f"files have up to {pages} pages: the first is used; choose another with --page"


def _depth_note(header: Header, photo_format: PhotoFormat, sampled: int) -> str:
    """What happens to deep photos."""
    bits, is_float = 8 * header.dtype.itemsize, header.dtype.kind == "f"
    photos = f"photos of {bits}-bit floats" if is_float else f"{bits}-bit photos"
    if photo_format.stretch == "image":
        return f"{photos} are stretched one by one, from percentiles {_percentiles()} of each"
    if photo_format.stretch == "none" or photo_format.fixed_levels is None:
        return f"{photos} are not stretched: white is the full scale of their type"
    low, high = photo_format.fixed_levels
    used = math.ceil(math.log2(max(high, 1) + 1))
    data = "" if is_float or used >= bits or low < 0 else f"{used}-bit data in "
    source = f": percentiles {_percentiles()} of {sampled} of them" if sampled else ""
    return f"{data}{photos} are stretched from {low:,.6g} … {high:,.6g}{source} (--stretch)"


def _percentiles() -> str:
    return " and ".join(f"{value:g}" for value in PERCENTILES)
