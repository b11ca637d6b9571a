"""Several answers per photo: each compared with the others, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.data.maps import MAPS, Codes, load_maps
from gpgc_dask.data.schema import VOID
from gpgc_dask.execution.compute import compute, lazy_calls
from gpgc_dask.quality.descriptors import mask_iou

__all__ = ["compare_answers", "reliability_weights", "vote"]

ANSWERS_PER_TASK = 64

MIN_WEIGHT = 0.01
"""Smallest weight of an answer, relative to the typical one: if all are bad, they still vote."""


def reliability_weights(noise: Array, quality: Array) -> Array:
    """Weights of answers in a vote.

    Parameters
    ----------
    noise : (J,) array
        Noise variance of each answer; NaN if it is unknown.
    quality : (J,) array
        Estimated quality of each answer; NaN if it is unknown.

    Returns
    -------
    (J,) array
        1/noise, relative to the typical noise, as independent measurements are combined. If the
        noise is unknown or the same for all, the square of the quality.
    """
    known = np.isfinite(noise)
    if known.any() and np.ptp(noise[known]) > 0:
        weight = float(np.median(noise[known])) / noise
    else:
        weight = quality**2
    return np.maximum(np.nan_to_num(weight, nan=0.0), MIN_WEIGHT)


def vote(masks: Sequence[Codes], weights: Array, n_classes: int) -> Codes:
    """The class with the most votes in each pixel.

    Parameters
    ----------
    masks : sequence of (h, w) arrays of uint8
        Class codes of the answers; void pixels do not vote.
    weights : (answers,) array
        Votes of each answer.
    n_classes : int
        Number of classes.

    Returns
    -------
    (h, w) array of uint8
        Class codes; void where no answer votes. Of equal votes the lower code wins.
    """
    votes = np.zeros((n_classes, *masks[0].shape))
    for mask, weight in zip(masks, weights, strict=True):
        for code in range(n_classes):
            votes[code] += weight * (mask == code)
    winner = votes.argmax(0).astype(np.uint8)
    return np.where(votes.any(0), winner, VOID).astype(np.uint8)


def compare_answers(
    dataset: xr.Dataset, photo: Index, weights: Array, classes: Index
) -> Array | None:
    """IoU (mean IoU) of each answer with the majority of the answers for its photo.

    Parameters
    ----------
    dataset : xarray.Dataset
        Masks are read from it, in parallel.
    photo : (J,) array of int
        Number of each answer's photo; answers of a photo are adjacent.
    weights : (J,) array
        Votes of each answer.
    classes : (K,) array of int
        Values of the classes in the masks.

    Returns
    -------
    (J, 2) array or None
        With the majority of the other answers, and of all of them; NaN for photos with a single
        answer. None if there are no others.
    """
    starts = np.flatnonzero(np.diff(photo, prepend=-1))
    sizes = np.diff(np.append(starts, photo.size))
    if not np.any(sizes > 1):
        return None
    parts = compute(
        *lazy_calls("compare", _compare, _tasks(dataset, starts, sizes, weights, classes))
    )
    return np.concatenate(parts)


def _tasks(
    dataset: xr.Dataset, starts: Index, sizes: Index, weights: Array, classes: Index
) -> Iterator[tuple[xr.Dataset, list[Array], Index]]:
    """Maps, weights of the answers of each photo, and classes, of some photos at a time."""
    maps = dataset[list(MAPS)]
    first = 0
    while first < starts.size:
        last = first + 1
        while last < starts.size and sizes[first : last + 1].sum() <= ANSWERS_PER_TASK:
            last += 1
        own = [
            weights[start : start + size]
            for start, size in zip(starts[first:last], sizes[first:last], strict=True)
        ]
        stop = starts[last - 1] + sizes[last - 1]
        yield maps.isel(photo=slice(int(starts[first]), int(stop))), own, classes
        first = last


def _compare(maps: xr.Dataset, weights: list[Array], classes: Index) -> Array:
    code = np.full(VOID + 1, VOID, dtype=np.uint8)
    code[classes] = np.arange(classes.size)
    masks = [code[mask] for _, mask in load_maps(maps)]
    found, first = [], 0
    for own in weights:
        answers = masks[first : first + own.size]
        first += own.size
        if own.size == 1:
            found.append((np.nan, np.nan))
            continue
        everyone = vote(answers, own, classes.size)
        for number, answer in enumerate(answers):
            others = np.delete(np.arange(own.size), number)
            majority = vote([answers[other] for other in others], own[others], classes.size)
            found.append(
                (
                    mask_iou(answer, majority, classes.size),
                    mask_iou(answer, everyone, classes.size),
                )
            )
    return np.array(found, dtype=np.float64)
