"""Errors of masks, for ``ranking.py``: in pixels, at the photo's own size, random by a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from experiments import true_box
from scipy import ndimage

from gpgc_dask.experiments.ranking_quality import mask_iou

SHIFT, GROWTH = 0.1, 0.05
"""Shifts and dilations, as shares of the side of the photo."""

MIN_SHARE = 0.01
"""Classes with a smaller share of the pixels are neither dropped nor swapped."""

ELSEWHERE = 0.1
"""Largest IoU of an object in a wrong place with the true one, if it can be placed so."""

CATEGORIES = 4
"""Number of COCO categories: those that occur in the most images."""

STREET_VOID = 11

Corruption = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def choose_kinds(n: int, share: float, kinds: Sequence[str], rng: np.random.Generator) -> list[str]:
    """n kinds of error in random order, "" for most of them, the others in equal numbers."""
    order = rng.permutation(list(kinds)).tolist()
    chosen = [order[number % len(order)] for number in range(round(share * n))]
    return rng.permutation(chosen + [""] * (n - len(chosen))).tolist()


def corrupt(
    mask: np.ndarray, kind: str, kinds: Mapping[str, Corruption], rng: np.random.Generator
) -> tuple[np.ndarray, str]:
    """Corrupt a mask; if this kind of error would not change it, by another kind."""
    for name in (kind, *(other for other in kinds if other != kind)):
        result = kinds[name](mask, rng)
        if np.any(result != mask):
            return result, name
    raise ValueError(f"no error of {', '.join(kinds)} changes the mask")


def move(mask: np.ndarray, down: int, across: int, *, edge: bool = False) -> np.ndarray:
    """Move a mask in pixels; the border is filled with 0, or with what is at the edge."""
    mode = "nearest" if edge else "constant"
    return ndimage.shift(mask, (down, across), order=0, mode=mode, cval=0, prefilter=False)


def shift(mask: np.ndarray, rng: np.random.Generator, *, edge: bool = False) -> np.ndarray:
    """Move a mask in a random direction, by SHIFT of the side."""
    angle = rng.uniform(0, 2 * np.pi)
    step = np.rint(SHIFT * np.array(mask.shape) * (np.sin(angle), np.cos(angle))).astype(int)
    return move(mask, *step.tolist(), edge=edge)


def dilate(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    near = ndimage.distance_transform_edt(mask == 0) <= GROWTH * max(mask.shape)
    return (near & mask.any()).astype(mask.dtype)


def fill_box(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    result = np.zeros_like(mask)
    if mask.any():
        left, top, width, height = true_box(mask)
        result[top : top + height, left : left + width] = 1
    return result


def remove(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.zeros_like(mask)


def misplace(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move the object to a random place in the photo that hardly overlaps the true one."""
    if not mask.any():
        return mask
    left, top, width, height = true_box(mask)
    cut = mask[top : top + height, left : left + width]
    best, best_iou = mask, 1.0
    for _ in range(100):
        y = int(rng.integers(mask.shape[0] - height + 1))
        x = int(rng.integers(mask.shape[1] - width + 1))
        moved = np.zeros_like(mask)
        moved[y : y + height, x : x + width] = cut
        iou = mask_iou(moved, mask, 2)
        if iou < best_iou:
            best, best_iou = moved, iou
        if iou < ELSEWHERE:
            break
    return best


MEDICAL: dict[str, Corruption] = {
    "shift": shift,
    "dilate": dilate,
    "box": fill_box,
    "empty": remove,
    "wrong place": misplace,
}


def large_classes(mask: np.ndarray) -> tuple[int, list[int]]:
    """The most common class, and the others that have MIN_SHARE of the pixels."""
    counts = Counter(mask[mask != STREET_VOID].tolist())
    (first, _), *others = counts.most_common()
    return first, sorted(value for value, n in others if n >= MIN_SHARE * mask.size)


def drop(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    first, others = large_classes(mask)
    return np.where(mask == rng.choice(others), first, mask) if others else mask


def swap(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    first, others = large_classes(mask)
    if not others:
        return mask
    one, two = rng.choice([first, *others], 2, replace=False)
    return np.where(mask == one, two, np.where(mask == two, one, mask))


def shift_scene(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move all classes together; the void pixels remain those that they were."""
    moved = shift(mask, rng, edge=True)
    return np.where((mask == STREET_VOID) | (moved == STREET_VOID), mask, moved)


STREET: dict[str, Corruption] = {"drop": drop, "swap": swap, "shift": shift_scene}


# -- annotations ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Region:
    """An annotation: its pixels (height, width), its class, and its area in the file."""

    inside: np.ndarray
    code: int
    area: float


def paint_regions(regions: Sequence[Region], size: tuple[int, int]) -> np.ndarray:
    """Class of each pixel; small regions are painted over large ones."""
    result = np.zeros(size, dtype=np.uint8)
    for region in sorted(regions, key=lambda each: -each.area):
        result[region.inside] = region.code
    return result


def corrupt_region(region: Region, kind: str, rng: np.random.Generator) -> list[Region]:
    """The regions that replace a corrupted one."""
    if kind == "deleted":
        return []
    if kind == "shifted":
        inside = shift(region.inside.astype(np.uint8), rng) > 0
        return [Region(inside, region.code, region.area)]
    others = [code for code in range(1, CATEGORIES + 1) if code != region.code]
    return [Region(region.inside, int(rng.choice(others)), region.area)]


COCO = ("shifted", "wrong category", "deleted")


def corrupt_regions(
    regions: list[Region], truth: np.ndarray, kind: str, rng: np.random.Generator
) -> np.ndarray:
    """The mask with one corrupted region; large ones are more likely to be chosen."""
    areas = np.array([max(region.area, 1.0) for region in regions])
    for number in rng.choice(areas.size, areas.size, replace=False, p=areas / areas.sum()):
        rest = [*regions[:number], *regions[number + 1 :]]
        given = paint_regions(rest + corrupt_region(regions[number], kind, rng), truth.shape)
        if np.any(given != truth):
            return given
    raise ValueError(f"no region can be {kind} so that the mask changes")
