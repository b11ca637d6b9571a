"""What a mask looks like to a model that never saw it: numbers from which its quality is estimated.

A mask is compared with the probabilities P of the classes of each superpixel. As these do not
depend on the mask, any mask of the image can be described, also one that was never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import ndimage

from gpgc_dask.core.arrays import Array, Index, Labels, Mask
from gpgc_dask.data.maps import Codes, Segments, count_classes
from gpgc_dask.data.schema import VOID

__all__ = ["Prediction", "describe", "mask_iou"]

CONTAMINATION_STEPS = 25
CONTAMINATION_PRIOR = (0.1, 52.0, 50.0)
"""EM steps, and a weak Beta prior, for the share of a mask that P does not explain."""

RINGS = (0.03, 0.08)
"""Width of rings along the outline of an object, as shares of the image's longest side."""

RING_STEP = 2
"""Rings are measured on every second pixel in each direction: that is accurate enough."""

LARGE_CLASS = 0.02
"""Share of the pixels from which on a class has descriptors of its own."""


@dataclass(frozen=True)
class Prediction:
    """What a model that never saw an image predicts for it.

    Attributes
    ----------
    segments : (h, w) array of uint16
        Superpixel of each pixel, 0 … n − 1.
    values : (n,) or (n, classes) array
        Decision values.
    shares : (n, classes) array
        Probabilities P of the classes.
    frequency : (classes,) array
        Shares of the classes in the whole dataset.
    """

    segments: Segments
    values: Array
    shares: Array
    frequency: Array

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return self.shares.shape[1]

    @cached_property
    def logs(self) -> Array:
        """(n, classes) ln P."""
        return np.log(self.shares)

    @cached_property
    def entropy(self) -> Array:
        """(n,) entropy of P."""
        return np.asarray(-(self.shares * self.logs).sum(1))

    @cached_property
    def margins(self) -> Array:
        """(n, classes) P of the class minus the largest other P."""
        ordered = np.sort(self.shares, axis=1)
        best, second = ordered[:, -1:], ordered[:, -2:-1]
        return self.shares - np.where(self.shares == best, second, best)

    @cached_property
    def edges(self) -> tuple[Index, Index]:
        """Pairs of adjacent pixels in different superpixels, as superpixels on both sides."""
        return _pairs(self.segments, *_changes(self.segments))

    @cached_property
    def variation(self) -> float:
        """Total variation of P over the image."""
        first, second = self.edges
        return float(np.abs(self.shares[first] - self.shares[second]).sum() / 2)

    @cached_property
    def sparse_object(self) -> Array:
        """P of the second class, on the pixels that rings are measured on."""
        return self.shares[:, 1][self.segments[::RING_STEP, ::RING_STEP]]

    def counts(self, mask: Codes) -> Array:
        """(n, classes) pixels of each class of a mask in each superpixel."""
        n, n_classes = self.shares.shape
        return count_classes(mask, self.segments, n, n_classes).astype(float)


def mask_iou(mask: Codes, truth: Codes, n_classes: int) -> float:
    """IoU of two masks over the pixels that are void in neither.

    Returns
    -------
    float
        IoU of the second of two classes, or its mean over the classes that occur in one of the
        masks; 1 if there are none.
    """
    if n_classes == 2:
        first, second = (mask == 1) & (truth != VOID), (truth == 1) & (mask != VOID)
        return _ratio(np.count_nonzero(first & second), np.count_nonzero(first | second), 1.0)
    known = (mask != VOID) & (truth != VOID)
    cells = mask[known].astype(np.intp) * n_classes + truth[known]
    table = np.bincount(cells, minlength=n_classes**2).reshape(n_classes, n_classes)
    both, union = np.diagonal(table), table.sum(0) + table.sum(1) - np.diagonal(table)
    occurs = union > 0
    return float(np.mean(both[occurs] / union[occurs])) if occurs.any() else 1.0


def describe(prediction: Prediction, mask: Codes) -> Array:
    """Describe a mask by numbers that distinguish good masks from bad ones.

    Parameters
    ----------
    prediction : Prediction
        Of the same image.
    mask : (h, w) array of uint8
        Class codes, at the size of the superpixel map; 255 is void.

    Returns
    -------
    (d,) array
        The same number d for all images with the same number of classes.
    """
    counts = prediction.counts(mask)
    columns = [
        *_agreement(prediction, counts),
        *_surprise(prediction, counts),
        *_contamination(prediction.shares, counts),
        *_outline(prediction, counts, mask),
    ]
    if prediction.n_classes == 2:
        columns += [
            *_object(prediction.shares[:, 1], counts),
            *_rings(prediction, mask == 1),
            *_shape(mask == 1),
        ]
    else:
        columns += _classes(prediction.shares, counts)
    return np.array(columns)


def _ratio(part: Any, whole: Any, empty: float = 0.0) -> float:
    return float(part / whole) if whole > 0 else empty


def _overlap(counts: Array, shares: Array) -> tuple[Array, Array]:
    """Σ a Y P and Σ a (Y + P − Y P) of each class, from pixels a Y of each superpixel."""
    both = counts * shares
    expected = counts.sum(1, keepdims=True) * shares
    return both.sum(0), (counts + expected - both).sum(0)


def _iou(both: Array, union: Array) -> float:
    """IoU of the second of two classes, or its mean over the classes that occur."""
    if both.size == 2:
        return _ratio(both[1], union[1], 1.0)
    occurs = union > 0
    return float(np.mean(both[occurs] / union[occurs])) if occurs.any() else 1.0


def _agreement(prediction: Prediction, counts: Array) -> list[float]:
    """Hard and soft IoU with several weights of the classes, and what a mask drawn from P has."""
    shares, values = prediction.shares, prediction.values
    area = counts.sum(1)
    total = area.sum()
    best = (values > 0).astype(np.intp) if values.ndim == 1 else values.argmax(1)
    likely = shares.argmax(1)
    unit = np.eye(prediction.n_classes)
    both, union = _overlap(counts, shares)
    own_both, own_union = _overlap(area[:, None] * shares, shares)
    rare = 1.0 / np.maximum(prediction.frequency, 1e-3)
    given, expected = counts.sum(0), area @ shares
    hits = counts[np.arange(likely.size), likely].sum()
    columns = [
        _iou(*_overlap(counts, unit[best])),
        _iou(*_overlap(counts, unit[likely])),
        _ratio(hits, total),
        _ratio(np.abs(given - expected).sum(), total),
        float((given > 0).sum()),
        float((expected > 0.01 * total).sum()),
    ]
    for weight in (np.ones_like(rare), np.sqrt(rare), rare):
        columns.append(_ratio(both @ weight, union @ weight))
        columns.append(_ratio(own_both @ weight, own_union @ weight))
    return columns


def _surprise(prediction: Prediction, counts: Array) -> list[float]:
    """Log-likelihood, entropy, margins, and contradictions of the mask to a sure prediction."""
    shares, margins, logs = prediction.shares, prediction.margins, prediction.logs
    area = counts.sum(1)
    total = area.sum()
    likelihood = (counts * logs).sum()
    difficulty = area @ prediction.entropy
    worst_margin = counts * np.exp((1.0 - margins) / 0.3)
    worst = counts * np.exp((1.0 - shares) / 0.1)
    sure = (shares.max(1, keepdims=True) > 0.8) & (shares < shares.max(1, keepdims=True))
    values = prediction.values
    columns = values if values.ndim == 2 else np.stack([-values, values], axis=1)
    square = (columns**2).sum(1, keepdims=True) + columns.shape[1]
    square = square - 2.0 * (2.0 * columns - columns.sum(1, keepdims=True))
    rare = counts / np.maximum(prediction.frequency, 1e-3)
    return [
        _ratio(likelihood, total),
        _ratio(likelihood + difficulty, total),
        _ratio(difficulty, total),
        _ratio((worst_margin * margins).sum(), worst_margin.sum()),
        _ratio((counts * margins).sum(), total),
        _ratio((worst * shares).sum(), worst.sum()),
        _ratio((counts * (shares < 0.2)).sum(), total),
        _ratio((counts * sure).sum(), total),
        _ratio((rare * square).sum(), rare.sum()),
    ]


def _contamination(shares: Array, counts: Array) -> list[float]:
    """Share η of the mask that P does not explain, and the log-likelihood that it gains.

    η maximises Σ a ln((1 − η) P(y) + η/K).
    """
    total = counts.sum()
    if total == 0:
        return [0.0, 0.0]
    background = 1.0 / shares.shape[1]
    alpha, strength, rows = CONTAMINATION_PRIOR
    eta = 0.1
    for _ in range(CONTAMINATION_STEPS):
        noise = eta * background
        wrong = float(np.vdot(counts, noise / (noise + (1.0 - eta) * shares))) / total
        eta = (wrong * rows + alpha) / strength
    mixed = np.log(eta * background + (1.0 - eta) * shares)
    return [eta, float((counts * (mixed - np.log(shares))).sum() / total)]


def _changes(labels: Labels) -> tuple[Mask, Mask]:
    """Where pixels differ from the one below, and from the one to the right."""
    return labels[1:] != labels[:-1], labels[:, 1:] != labels[:, :-1]


def _pairs(segments: Segments, down: Mask, right: Mask) -> tuple[Index, Index]:
    """Superpixels on both sides of the marked pairs of adjacent pixels."""
    first = np.concatenate([segments[:-1][down], segments[:, :-1][right]])
    second = np.concatenate([segments[1:][down], segments[:, 1:][right]])
    return first, second


def _outline(prediction: Prediction, counts: Array, mask: Codes) -> list[float]:
    """Whether the outline follows superpixels, and whether P changes there."""
    area = counts.sum(1)
    total = area.sum()
    impure = (area - counts.max(1)).sum()
    down, right = _changes(mask)
    length = np.count_nonzero(down) + np.count_nonzero(right)
    if length == 0 or total == 0:
        return [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    first, second = _pairs(prediction.segments, down, right)
    shares = prediction.shares
    contrast = np.abs(shares[first] - shares[second]).sum() / 2
    return [
        impure / total,
        impure / length / np.sqrt(total / area.size),
        float(np.mean(first != second)),
        contrast / length,
        _ratio(contrast, prediction.variation),
        length / np.sqrt(total),
    ]


def _object(p: Array, counts: Array) -> list[float]:
    """Size of the object, and how well P orders pixels inside before those outside."""
    area, inside = counts.sum(1), counts[:, 1]
    outside = area - inside
    total, n_in, n_out = area.sum(), inside.sum(), outside.sum()
    expected = area @ p
    sizes = [_ratio(n_in, total), _ratio(expected, total), float(p.max())]
    sizes += [_ratio(inside @ (1 - p), n_in), _ratio(outside @ p, expected)]
    if n_in == 0 or n_out == 0:
        return [*sizes, 0.5, 0.0, 0.0]
    order = np.argsort(-p, kind="stable")
    hits, misses = np.cumsum(inside[order]), np.cumsum(outside[order])
    iou = hits / (n_in + misses)
    same_size = min(int(np.searchsorted(hits + misses, n_in)), order.size - 1)
    behind = n_out - misses + 0.5 * outside[order]
    return [*sizes, (inside[order] @ behind) / (n_in * n_out), iou.max(), iou[same_size]]


def _rings(prediction: Prediction, inside: Mask) -> list[float]:
    """Mean P in rings inside and outside the outline, in the core of the object and far away."""
    inside = inside[::RING_STEP, ::RING_STEP]
    p = prediction.sparse_object
    n_in = np.count_nonzero(inside)
    if n_in == 0 or n_in == inside.size:
        mean = float(p.mean())
        return [0.0] * (2 * len(RINGS)) + ([mean, 0.0] if n_in == 0 else [0.0, mean])
    depth = ndimage.distance_transform_cdt(inside)
    distance = ndimage.distance_transform_cdt(~inside)
    side = max(inside.shape)
    columns = []
    for width in RINGS:
        for ring in (depth, distance):
            near = (ring > 0) & (ring <= max(width * side, 1.0))
            columns.append(float(p[near].mean()))
    far, core = distance > RINGS[-1] * side, depth > RINGS[-1] * side
    columns.append(float(p[far].mean()) if far.any() else 0.0)
    columns.append(float(p[core].mean()) if core.any() else float(p[inside].mean()))
    return columns


def _shape(inside: Mask) -> list[float]:
    """Share of its box that the object covers, length of its outline, share at the border."""
    n_in = np.count_nonzero(inside)
    if n_in == 0:
        return [0.0, 0.0, 0.0]
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    box = (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
    length = sum(np.count_nonzero(part) for part in _changes(inside))
    sides = (inside[0], inside[-1], inside[:, 0], inside[:, -1])
    border = sum(np.count_nonzero(side) for side in sides)
    return [n_in / box, length / np.sqrt(n_in), _ratio(border, length)]


def _classes(shares: Array, counts: Array) -> list[float]:
    """The lowest mean P among the large classes of the mask, and what P itself expects of them."""
    area = counts.sum(1)
    given, expected = counts.sum(0), area @ shares
    large = given > LARGE_CLASS * area.sum()
    if not large.any():
        return [1.0, 1.0]
    own = (counts * shares).sum(0)[large] / given[large]
    usual = (area @ shares**2)[large] / np.maximum(expected[large], 1e-9)
    return [float(own.min()), float(usual.min())]
