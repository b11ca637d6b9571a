"""The categories that a user takes from a file of annotations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from shlex import quote

from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.files import printable

__all__ = ["ALL", "choose_categories"]

ALL = "all"
"""Stands for all categories."""

SHOWN = 20
"""Number of names in messages."""


def choose_categories(
    chosen: Sequence[str],
    known: Sequence[str],
    used: Collection[str],
    source: tuple[str, str, str],
) -> list[str]:
    """The chosen categories; "all" are those that have annotations, in the order of the source.

    Parameters
    ----------
    chosen : sequence of str
        As the user names them.
    known : sequence of str
        All categories of the source, in its order.
    used : collection of str
        Those that have annotations with an outline.
    source : tuple of str
        Folder of photos, file or folder of annotations and its format, for messages.

    Raises
    ------
    InputError
        If one is unknown, has no annotation, or none is chosen.
    """
    images, path, name = source
    listed = _listed(known)
    if list(chosen) == [ALL] and ALL not in known:
        chosen = [category for category in known if category in used]
        if not chosen:
            raise InputError(f"{path} has no annotation with a segmentation")
    if not chosen:
        example = quote(next((category for category in known if category in used), ALL))
        raise InputError(
            f"name the categories of {path} to take, as in: gpgc ingest {quote(images)} "
            f"{quote(path)} --format {name} --category {printable(example)} -o DATA.zarr (or "
            f"--category all); it has {listed}"
        )
    unknown = [category for category in chosen if category not in known]
    if unknown:
        raise InputError(f"{path} has no category {', '.join(unknown)}; it has {listed}")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"a category is named twice: {', '.join(chosen)}; name each once")
    vanished = [category for category in chosen if category not in used]
    if vanished:
        raise InputError(
            f"{path} has no annotation of {', '.join(vanished)}: there is nothing to learn it "
            "from; omit it, or choose another category"
        )
    return list(chosen)


def _listed(names: Sequence[str]) -> str:
    ordered = sorted(printable(name) for name in names)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return (", ".join(ordered[:SHOWN]) + more) or "none"
