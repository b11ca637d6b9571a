"""How the files of masks are named: what to suggest if they are not named as their photos."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath

from gpgc_dask.core.errors import InputError
from gpgc_dask.core.slices import split_slice
from gpgc_dask.imaging.files import by_stem, find_images

__all__ = ["SEPARATORS", "check_layout", "split_layer"]

SEPARATORS = "_-. "
"""What may be between the name of a photo and that of a layer."""

SHOWN = 3
"""Suffixes that are suggested."""


def check_layout(images: str, masks: str) -> None:
    """Raise an InputError with the option to use if no mask has the name of its photo.

    Parameters
    ----------
    images, masks : str
        Folders of photos and masks.
    """
    photos = [*by_stem(_files(find_images(images, leave_out=masks)))]
    names = [*by_stem(_files(find_images(masks)))]
    if any((Path(masks) / stem).is_dir() for stem in photos):
        raise InputError(
            f"{masks} has a folder of masks for each photo, not a mask: --format layers if the "
            "files of a folder are the objects or classes of one mask, or --format answers if each "
            "of them is a mask that one person drew of the whole photo"
        )
    layers = {split[0] for name in names if (split := split_layer(name, set(photos))) is not None}
    ways = [_suffix_options(*pair) for pair in _suffixes(photos, names)][:SHOWN]
    if len(names) > len(photos) > 0 and len(layers) == len(photos):
        ways.append(
            "--format layers if several files are the objects or classes of one mask, or --answers "
            "FILE.csv if each of them is a mask that one person drew of the whole photo"
        )
    if ways:
        raise InputError(
            f"masks in {masks} are not named as their photos ({names[0]}, {photos[0]}): add "
            + ", or ".join(ways)
        )


def _files(names: Sequence[str]) -> dict[str, None]:
    """Files and volumes of the images."""
    return dict.fromkeys(split_slice(name)[0] for name in names)


def _suffix_options(photo: str, mask: str) -> str:
    texts = {"--photo-suffix": photo, "--mask-suffix": mask}
    return " ".join(f"{name} {text}" for name, text in texts.items() if text)


def _suffixes(photos: Sequence[str], masks: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(suffix of the photos, suffix of the masks) that pair every photo with a mask."""
    if not photos:
        return
    present, seen = set(masks), set()
    folder = PurePosixPath(photos[0]).parent
    for mask in masks:
        letters = zip(photos[0], mask, strict=False)
        shared = "".join(own for own, _ in takewhile(lambda pair: pair[0] == pair[1], letters))
        shared = shared.rstrip(SEPARATORS)
        if PurePosixPath(mask).parent != folder or not PurePosixPath(shared).name:
            continue
        pair = photos[0].removeprefix(shared), mask.removeprefix(shared)
        if pair in seen:
            continue
        seen.add(pair)
        if all(
            photo.endswith(pair[0]) and photo.removesuffix(pair[0]) + pair[1] in present
            for photo in photos
        ):
            yield pair


def split_layer(name: str, photos: Collection[str]) -> tuple[str, str] | None:
    """The photo and the layer that a file is named after.

    Parameters
    ----------
    name : str
        Path of the file without its ending: ``a/horse_rider``, ``a/horse/rider`` or
        ``rider/a/horse``.
    photos : collection of str
        Paths of the photos without their endings: ``a/horse``.

    Returns
    -------
    (str, str) or None
        The photo with the longest name, and what else the name has; None if there is no photo.
    """
    cuts = [place for place, sign in enumerate(name) if sign in SEPARATORS or sign == "/"]
    for place in reversed(cuts):
        if name[:place] in photos and "/" not in name[place + 1 :]:
            return name[:place], name[place + 1 :]
    layer, _, photo = name.partition("/")
    return (photo, layer) if photo in photos else None
