"""Predicted masks against true ones, pixel by pixel, and one set of predictions against another."""

from __future__ import annotations

import csv
import io
import os
import threading
import time
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import rankdata, wilcoxon

from gpgc_dask.arrays import Array
from gpgc_dask.imaging.errors import InputError
from gpgc_dask.imaging.files import find_images
from gpgc_dask.imaging.masks import STRIP_PIXELS, Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation, hush, open_image
from gpgc_dask.imaging.work import Listener, Progress
from gpgc_dask.metrics import average_class_accuracy, class_hits

__all__ = ["LEVEL", "Evaluation", "ImageScore", "Scores", "evaluate"]

LEVEL = 1e-3
"""Differences with a smaller p are called significant, as in the paper."""

MOST_THREADS = 4

LARGE_PIXELS = 1 << 24
"""Masks of more pixels than this are compared one pair at a time, for the memory they take."""

MOST_NAMED = 5
"""Files that an error names."""


@dataclass(frozen=True)
class ImageScore:
    """``average_class_accuracy``: over the classes of its true mask; None where that is all void.

    ``image``: path of the true mask within its folder, with forward slashes.
    """

    image: str
    average_class_accuracy: float | None


@dataclass(frozen=True)
class Scores:
    """How right a folder of predictions is. Shares are of pixels, 0 … 1, pooled over all images.

    Attributes
    ----------
    average_class_accuracy : share of each class's pixels predicted right, averaged over the
        classes that occur
    foreground_accuracy, background_accuracy : background is the class of value 0, or the first
        where none has it; foreground the average over all others. None where no pixel is such
    class_accuracy : {class: share}, None for a class that does not occur
    images : number of true masks;  ignored : number of predictions without one
    """

    average_class_accuracy: float
    foreground_accuracy: float | None
    background_accuracy: float | None
    class_accuracy: dict[str, float | None]
    images: int
    ignored: int
    per_image: list[ImageScore]


@dataclass(frozen=True)
class Evaluation(Scores):
    """Scores of predictions; with a second set, ``against``, also which of the two is better.

    The rest is about the images' own average class accuracies, and None without a second set.

    Attributes
    ----------
    wilcoxon_p : two-sided, of the Wilcoxon signed-rank test; 1 where no image differs
    significant : p < 0.001, the paper's level
    better : which has the larger sum of ranks, the way the test points; None if they are equal
    images_better, images_worse : number of images on which the predictions are, against the others
    too_few : so few images differ that p could not be below 0.001 if all differed one way
    """

    against: Scores | None = None
    wilcoxon_p: float | None = None
    significant: bool | None = None
    better: Literal["predicted", "against"] | None = None
    images_better: int | None = None
    images_worse: int | None = None
    too_few: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; without a second set, without what is said of it."""
        told = asdict(self)
        if self.against is not None:
            return told
        return {key: value for key, value in told.items() if key in Scores.__dataclass_fields__}

    def to_csv(self) -> str:
        """A line an image: image, average_class_accuracy and, with a second set, against.

        Images that are all void have no value.
        """
        columns = ["image", "average_class_accuracy"]
        rows = [[one.image, one.average_class_accuracy] for one in self.per_image]
        if self.against is not None:
            columns.append("against")
            for row, other in zip(rows, self.against.per_image, strict=True):
                row.append(other.average_class_accuracy)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        return text.getvalue()


def evaluate(
    predicted: str | PathLike[str],
    true: str | PathLike[str],
    *,
    against: str | PathLike[str] | None = None,
    foreground: Sequence[int] = (),
    classes: Mapping[int, str] | None = None,
    void: Sequence[int] = (),
    threshold: float | None = None,
    mask_suffix: str = "",
    progress: Listener | None = None,
) -> Evaluation:
    """Compare a folder of predicted masks with a folder of true ones, pixel by pixel.

    Masks of the same name, whatever the ending, in the same subfolder belong together. Every true
    mask needs a prediction; void pixels of true masks do not count.

    Parameters
    ----------
    predicted, true : folders
    against : a second folder of predictions for the same true masks, to test the first against
    foreground, classes, void, threshold : how true masks are read, see
        :class:`~gpgc_dask.imaging.masks.MaskFormat`. Predictions are read as they are written:
        values of ``classes`` if given, else 0 for background and one other value for foreground
    mask_suffix : what true masks' names have after those of the predictions; other files of the
        folder are passed over
    progress : called with a :class:`~gpgc_dask.imaging.work.Progress` image by image
    """
    named = tuple((classes or {}).items())
    fmt = MaskFormat(tuple(foreground), named, tuple(void), threshold)
    if len(set(fmt.names)) < len(fmt.names):
        raise ValueError(f"classes need names of their own, got {', '.join(fmt.names)}")
    rivals = [predicted] if against is None else [predicted, against]
    found = _Found.of(true, rivals, mask_suffix)
    with warnings.catch_warnings():
        hush()
        counts = _counted(found.items, fmt, progress)
    totals = np.array([one[0] for one in counts])
    if not totals.any():
        raise ValueError(f"all pixels of the true masks in {true} are void: nothing to compare")
    names = [_printable(item.name) for item in found.items]
    scores = [
        _scores(np.array([one[1][rival] for one in counts]), totals, fmt, names, found.extra[rival])
        for rival in range(len(rivals))
    ]
    result = Evaluation(**vars(scores[0]))
    return result if against is None else replace(result, **_compared(*scores))


@dataclass(frozen=True)
class _Item:
    """A true mask, its name within its folder, and each rival's prediction of it."""

    name: str
    true: str
    predicted: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """All true masks in the order of their names; how many predictions each rival has beside."""

    items: list[_Item]
    extra: list[int]

    @classmethod
    def of(
        cls, true: str | PathLike[str], rivals: Sequence[str | PathLike[str]], suffix: str
    ) -> _Found:
        folders = [Path(folder).expanduser() for folder in (true, *rivals)]
        _check_folders(folders)
        root, *sides = folders
        drawn = {
            stem.removesuffix(suffix): names
            for stem, names in _by_stem(root, sides).items()
            if stem.endswith(suffix)
        }
        if not drawn:
            ending = f" whose names end in {suffix}" if suffix else ""
            raise FileNotFoundError(f"there are no masks{ending} in {root}: nothing to compare")
        guesses = [_by_stem(side, [f for f in folders if f != side]) for side in sides]
        for side, guess in zip(sides, guesses, strict=True):
            _check_complete(drawn, guess, root, side)
        _check_single(drawn.values(), root)
        items = []
        for stem, (name,) in drawn.items():
            chosen = zip(sides, guesses, strict=True)
            paths = tuple(str(side / guess[stem][0]) for side, guess in chosen)
            items.append(_Item(name, str(root / name), paths))
        extra = [sum(len(guess[stem]) for stem in guess.keys() - drawn) for guess in guesses]
        return cls(sorted(items, key=lambda item: item.name), extra)


def _check_folders(folders: list[Path]) -> None:
    for number, folder in enumerate(folders):
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} is not a folder: name the folder that holds masks")
        for other in folders[:number]:
            if folder.samefile(other):
                raise ValueError(
                    f"{other} and {folder} are the same folder: predictions, true masks and what "
                    "to test against must be in folders of their own"
                )


def _by_stem(folder: Path, others: Iterable[Path]) -> dict[str, list[str]]:
    """{name without ending: names} of the masks in a folder, those in the other folders left out.

    Folders of predictions are at times made within that of the true masks.
    """
    names = set.intersection(*(set(find_images(folder, leave_out=other)) for other in others))
    stems: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        # One letter may be written in two ways; file systems differ in which they keep.
        stems[unicodedata.normalize("NFC", name[: -len(Path(name).suffix)])].append(name)
    return dict(stems)


def _check_complete(
    drawn: dict[str, list[str]], guess: dict[str, list[str]], root: Path, side: Path
) -> None:
    """Complain where the predictions in ``side`` lack some, or have two of the same."""
    missing = sorted(drawn.keys() - guess)
    if missing:
        other_names = (
            " (do names differ? --mask-suffix _mask)" if len(missing) == len(drawn) else ""
        )
        raise FileNotFoundError(
            f"{len(missing)} of {len(drawn)} true masks have no prediction: "
            f"{side} lacks {_listed(f'{stem}.*' for stem in missing)}{other_names}. "
            f"Predict these images too, or take their masks out of {root}"
        )
    _check_single((names for stem, names in guess.items() if stem in drawn), side)


def _check_single(found: Iterable[list[str]], folder: Path) -> None:
    doubled = [names for names in found if len(names) > 1]
    if doubled:
        raise ValueError(
            f"several masks in {folder} have one name: "
            f"{_listed(' and '.join(names) for names in doubled)}. Rename or remove one of them"
        )


def _listed(names: Iterable[str]) -> str:
    known = [_printable(name) for name in names]
    rest = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(known[:MOST_NAMED]) + rest


def _printable(name: str) -> str:
    """Names of files need not be valid Unicode."""
    return name.encode(errors="replace").decode()


Counts = tuple[Array, Array]
"""(classes,) pixels of each class in a true mask; (rivals, classes) those predicted right."""


class _Counter:
    """Counts the pixels of a true mask that its predictions get right."""

    def __init__(self, fmt: MaskFormat) -> None:
        self.n_classes = len(fmt.names)
        advice = "a prediction holds 0 and one other value, as gpgc predict writes it"
        if fmt.classes:
            known = ", ".join(map(str, fmt.values))
            advice = f"a prediction is of some class at every pixel, one of {known} (--classes)"
        self.true = _Reader("true mask", fmt)
        # Predictions have the classes' own values but never void.
        self.predicted = _Reader("prediction", MaskFormat(classes=fmt.classes), advice)
        self.large = threading.Lock()

    def __call__(self, item: _Item) -> Counts:
        size = self.true.size(item.true)
        for path in item.predicted:
            _check_size(path, self.predicted.size(path), item.true, size)
        with self.large if size[0] * size[1] > LARGE_PIXELS else nullcontext():
            truth = self.true.codes(item.true, size)
            found = [self._hits(truth, path) for path in item.predicted]
        return found[0][1], np.array([hits for hits, _ in found])

    def _hits(self, truth: Codes, path: str) -> Counts:
        """:func:`class_hits`, some rows at a time: it needs many bytes a pixel."""
        guess = self.predicted.codes(path, truth.shape)
        hits, totals = np.zeros(self.n_classes), np.zeros(self.n_classes)
        step = max(STRIP_PIXELS // truth.shape[1], 1)
        for top in range(0, len(truth), step):
            given, found = (codes[top : top + step].astype(np.intp) for codes in (truth, guess))
            more = class_hits(given, found, self.n_classes)
            hits, totals = hits + more[0], totals + more[1]
        return hits, totals


def _counted(items: list[_Item], fmt: MaskFormat, progress: Listener | None) -> list[Counts]:
    """The counts of each item, by threads of which each holds one pair of masks."""
    counts = []
    start = time.perf_counter()
    pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))
    try:
        for one in pool.map(_Counter(fmt), items):
            counts.append(one)
            if progress is not None:
                rate = len(counts) / max(time.perf_counter() - start, 1e-9)
                progress(Progress("images", len(counts), len(items), 0, rate))
    finally:
        pool.shutdown(cancel_futures=True)
    return counts


@dataclass(frozen=True)
class _Reader:
    """Reads masks of one kind; ``advice``: of its values, where no option has a say in them."""

    kind: str
    fmt: MaskFormat
    advice: str = ""

    def size(self, path: str) -> tuple[int, int]:
        """(height, width), from the header alone."""
        try:
            with open_image(path) as image:
                return image.height, image.width
        except InputError as error:
            raise self._error(path, str(error)) from None

    def codes(self, path: str, size: tuple[int, int]) -> Codes:
        try:
            return read_mask(path, self.fmt, Orientation(*size, size))
        except InputError as error:
            text, damaged = str(error), f"mask {path}: "
            if text.startswith(damaged):
                raise self._error(path, text.removeprefix(damaged)) from None
            reason = text.removeprefix("mask ")
            if self.advice:
                reason = f"{reason.partition(': ')[0]}: {self.advice}"
            raise self._error(path, reason) from None

    def _error(self, path: str, reason: str) -> InputError:
        return InputError(_printable(f"{self.kind} {path}: {reason}"))


def _check_size(predicted: str, found: tuple[int, int], true: str, size: tuple[int, int]) -> None:
    if found != size:
        raise InputError(
            _printable(
                f"prediction {predicted} is {found[1]}×{found[0]} pixels but its true mask {true} "
                f"{size[1]}×{size[0]}: scale or turn one of them"
            )
        )


def _scores(hits: Array, totals: Array, fmt: MaskFormat, names: list[str], ignored: int) -> Scores:
    """hits, totals : (images, classes) pixels predicted right, and all."""
    right, of = hits.sum(0), totals.sum(0)
    background = np.arange(of.size) == (fmt.background or 0)
    return Scores(
        average_class_accuracy=average_class_accuracy(right, of),
        foreground_accuracy=_average(right[~background], of[~background]),
        background_accuracy=_average(right[background], of[background]),
        class_accuracy={
            name: _average(right[[code]], of[[code]]) for code, name in enumerate(fmt.names)
        },
        images=len(names),
        ignored=ignored,
        per_image=[
            ImageScore(*one) for one in zip(names, map(_average, hits, totals), strict=True)
        ],
    )


def _average(hits: Array, totals: Array) -> float | None:
    return average_class_accuracy(hits, totals) if totals.any() else None


def _compared(ours: Scores, theirs: Scores) -> dict[str, Any]:
    """What an :class:`Evaluation` says of two sets of predictions."""
    pairs = [
        (mine.average_class_accuracy, other.average_class_accuracy)
        for mine, other in zip(ours.per_image, theirs.per_image, strict=True)
        if mine.average_class_accuracy is not None
    ]
    mine, other = np.array(pairs, dtype=np.float64).T
    gain = mine - other
    p = float(wilcoxon(mine, other).pvalue) if gain.any() else 1.0
    # No outcome has a smaller p than that in which all differences have one sign.
    least = float(wilcoxon(np.abs(gain)).pvalue) if gain.any() else 1.0
    uneven = gain[gain != 0]
    lean = float(rankdata(np.abs(uneven)) @ np.sign(uneven))
    return {
        "against": theirs,
        "wilcoxon_p": p,
        "significant": p < LEVEL,
        "better": None if lean == 0 else "predicted" if lean > 0 else "against",
        "images_better": int(np.sum(gain > 0)),
        "images_worse": int(np.sum(gain < 0)),
        "too_few": least >= LEVEL,
    }
