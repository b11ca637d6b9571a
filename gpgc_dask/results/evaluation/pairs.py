"""Pairs of a true mask and its predictions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from gpgc_dask.core.errors import InputError, MissingFileError, NotAFolderError
from gpgc_dask.imaging.files import (
    by_stem,
    find_images,
    has_suffix,
    printable,
    rename_stem,
)

__all__ = ["MaskItem", "MaskPairs"]

MAX_NAMES = 5
"""Number of files that an error names."""


@dataclass(frozen=True)
class MaskItem:
    """A true mask and its predictions.

    Attributes
    ----------
    name : str
        Name of the true mask within its folder.
    true : str
        Path of the true mask.
    predicted : tuple of str
        Path of the prediction in each folder of predictions.
    """

    name: str
    true: str
    predicted: tuple[str, ...]


@dataclass(frozen=True)
class MaskPairs:
    """All true masks with their predictions.

    Attributes
    ----------
    items : list of MaskItem
        In the order of the names.
    extra : list of int
        Number of predictions without a true mask in each folder of predictions.
    """

    items: list[MaskItem]
    extra: list[int]

    @classmethod
    def find(
        cls,
        true: str | PathLike[str],
        rivals: Sequence[str | PathLike[str]],
        suffix: str,
        photo_suffix: str = "",
    ) -> MaskPairs:
        """Find the masks.

        Parameters
        ----------
        true : path
            Folder of true masks.
        rivals : sequence of path
            Folders of predictions.
        suffix : str
            Text that the names of true masks have after those of the predictions.
        photo_suffix : str
            Text that the names of predictions have after those of the true masks.

        Returns
        -------
        MaskPairs
        """
        root, *sides = _separate_folders((true, *rivals))
        drawn = _masks(root, sides, suffix, photo_suffix)
        guesses = [_stems(side, [root, *(f for f in sides if f != side)]) for side in sides]
        for side, guess in zip(sides, guesses, strict=True):
            _check_complete(drawn, guess, root, side)
        return cls._of(drawn, guesses, root, sides)

    @classmethod
    def common(
        cls,
        first: str | PathLike[str],
        second: str | PathLike[str],
        suffix: str,
        photo_suffix: str = "",
    ) -> MaskPairs:
        """Find the masks that are in both of two folders.

        Parameters
        ----------
        first, second : path
            Folders of masks.
        suffix : str
            Text that the names of the first masks have after those of the second.
        photo_suffix : str
            Text that the names of the second masks have after those of the first.

        Returns
        -------
        MaskPairs
            Its ``extra`` has the number of masks that are in one folder only, of both.
        """
        root, side = _separate_folders((first, second))
        drawn, others = _masks(root, [side], suffix, photo_suffix), _stems(side, [root])
        shared = drawn.keys() & others
        if not shared:
            raise MissingFileError(
                f"no mask in {root} has the name of a mask in {side}: there is nothing to compare "
                "(do names differ? --mask-suffix _mask)"
            )
        alone = sum(len(drawn[stem]) for stem in drawn.keys() - shared)
        pairs = cls._of({stem: drawn[stem] for stem in shared}, [others], root, [side])
        return cls(pairs.items, [alone, *pairs.extra])

    @classmethod
    def _of(
        cls,
        drawn: dict[str, list[str]],
        guesses: list[dict[str, list[str]]],
        root: Path,
        sides: list[Path],
    ) -> MaskPairs:
        _check_single(drawn.values(), root)
        for side, guess in zip(sides, guesses, strict=True):
            _check_single((names for stem, names in guess.items() if stem in drawn), side)
        items = []
        for stem, (name,) in drawn.items():
            chosen = zip(sides, guesses, strict=True)
            paths = tuple(str(side / guess[stem][0]) for side, guess in chosen)
            items.append(MaskItem(name, str(root / name), paths))
        extra = [sum(len(guess[stem]) for stem in guess.keys() - drawn) for guess in guesses]
        return cls(sorted(items, key=lambda item: item.name), extra)


def _masks(root: Path, others: list[Path], suffix: str, photo_suffix: str) -> dict[str, list[str]]:
    """{name of the prediction: names} of the masks in a folder, which may not be empty."""
    found = {
        rename_stem(stem, names[0], suffix, photo_suffix): names
        for stem, names in _stems(root, others).items()
        if has_suffix(stem, names[0], suffix)
    }
    if not found:
        ending = f" whose names end in {suffix}" if suffix else ""
        raise MissingFileError(f"there are no masks{ending} in {root}: there is nothing to compare")
    return found


def _separate_folders(paths: Iterable[str | PathLike[str]]) -> list[Path]:
    folders = [Path(path).expanduser() for path in paths]
    for number, folder in enumerate(folders):
        if not folder.is_dir():
            raise NotAFolderError(f"{folder} is not a folder: name the folder of the masks")
        for other in folders[:number]:
            if folder.samefile(other):
                raise InputError(
                    f"{other} and {folder} are the same folder: true masks and each set of "
                    "predictions must be in separate folders"
                )
    return folders


def _stems(folder: Path, others: Iterable[Path]) -> dict[str, list[str]]:
    """{name without ending: names} of the masks in a folder.

    Masks in the other folders are left out: predictions may be in a subfolder of the true masks.
    """
    names = set.intersection(*(set(find_images(folder, leave_out=other)) for other in others))
    return by_stem(sorted(names))


def _check_complete(
    drawn: dict[str, list[str]], guess: dict[str, list[str]], root: Path, side: Path
) -> None:
    """Raise an error if predictions in ``side`` are missing, or there are two of the same name."""
    missing = sorted(drawn.keys() - guess)
    if missing:
        other_names = (
            " (do names differ? --mask-suffix _mask)" if len(missing) == len(drawn) else ""
        )
        raise MissingFileError(
            f"{len(missing)} of {len(drawn)} true masks have no prediction: "
            f"{side} lacks {_listed(f'{stem}.*' for stem in missing)}{other_names}. "
            f"Predict these images too, or remove their masks from {root}"
        )


def _check_single(groups: Iterable[list[str]], folder: Path) -> None:
    doubled = [names for names in groups if len(names) > 1]
    if doubled:
        raise InputError(
            f"several masks in {folder} have the same name: "
            f"{_listed(' and '.join(names) for names in doubled)}. Rename or remove one of them"
        )


def _listed(names: Iterable[str]) -> str:
    known = [printable(name) for name in names]
    rest = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return ", ".join(known[:MAX_NAMES]) + rest
