"""Replacing the state of a dataset by another one, completely or not at all.

The new state is prepared in a folder within the dataset: a Zarr group with new metadata, and those
chunks that differ. It takes effect in this order:

1. A *commit record* is written. Before it nothing of the dataset has changed; from now on the
   replacement can only be finished, and every step can be repeated.
2. Chunks that the present state does not have are moved to their places. Nothing refers to them.
3. The group's ``zarr.json`` is removed: no reader opens the dataset now, and readers that have
   opened it before notice it (:class:`SameState`).
4. The other files are moved to their places, and chunks that are no longer needed are removed.
5. The new ``zarr.json`` is moved to its place: the dataset is in its new state.
6. The folder is removed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import zarr

from gpgc_dask.core.errors import ChangedError
from gpgc_dask.data.schema import UNFINISHED_FOLDER, UPDATE_FOLDER, VARIABLES
from gpgc_dask.storage.integrity import DIGESTS, read_attributes
from gpgc_dask.storage.location import MAX_CONCURRENT, UNFINISHED_SUFFIX, Location

__all__ = [
    "SameState",
    "commit_replacement",
    "finish_replacement",
    "is_committed",
    "state_digest",
]

COMMIT = f"{UPDATE_FOLDER}/commit"

ROOT = "zarr.json"

RECHECK = 1.0
"""Seconds after which a reader of a URL looks again whether the dataset was updated."""

_verified: dict[tuple[str, str], float] = {}
"""{(URL, digest): when this process has last seen the dataset in this state}."""


def state_digest(attributes: Mapping[str, Any]) -> str:
    """Digest of a dataset's state: another one after each update."""
    content = json.dumps(attributes.get(DIGESTS), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class SameState:
    """Checks, after something was read, that a dataset has the state in which it was opened.

    Before the first changed chunk is written, the group's metadata is removed, and it is written
    after the last one. If it is the same after a chunk was read, the chunk is of that state.

    Attributes
    ----------
    location : Location
        The dataset.
    digest : str
        Its :func:`state_digest` when it was opened.
    """

    location: Location
    digest: str

    def __call__(self) -> None:
        """Raise a ChangedError if the dataset has another state, or is being changed.

        At a URL, where it takes a request, at most once in RECHECK seconds: who has read many
        chunks calls :meth:`verify` at the end.
        """
        if (
            self.location.is_local
            or time.monotonic() - _verified.get((self.location.url, self.digest), -RECHECK)
            > RECHECK
        ):
            self.verify()

    def verify(self) -> None:
        """As a call, in any case."""
        start = time.monotonic()
        self._verify()
        _verified[self.location.url, self.digest] = start

    def _verify(self) -> None:
        attributes = read_attributes(self.location)
        if attributes is not None and state_digest(attributes) == self.digest:
            return
        if attributes is not None:
            raise ChangedError(
                f"{self.location} has been updated since it was opened: open it again"
            )
        if not {UPDATE_FOLDER, UNFINISHED_FOLDER}.isdisjoint(self.location.names()):
            raise ChangedError(
                f"{self.location} is being updated or created again: open it again when that is "
                "finished"
            )


def is_committed(location: Location) -> bool:
    """Whether a replacement of the dataset has begun to take effect, and is not finished."""
    return location.exists(COMMIT)


def commit_replacement(location: Location, folder: str, about: Mapping[str, Any]) -> None:
    """Make a prepared state the next one of a dataset; :func:`finish_replacement` must follow.

    Parameters
    ----------
    location : Location
        The dataset.
    folder : str
        Name of a folder in UPDATE_FOLDER with the new state.
    about : mapping
        Stored in the record, for the caller of :func:`finish_replacement`.
    """
    place = Location(f"{location.url}/{UPDATE_FOLDER}/{folder}", location.options)
    present = {key for name in VARIABLES for key in _files(location, name)}
    prepared = {key for name in VARIABLES for key in _files(place, name)}
    needed = set(_needed(place.group()))
    record = {
        "folder": folder,
        "replaced": sorted(present & prepared),
        "removed": sorted(present - needed),
        "about": dict(about),
    }
    location.write(COMMIT, json.dumps(record).encode())


def _files(location: Location, name: str) -> Iterable[str]:
    return (f"{name}/{key}" for key in location.files(name))


def _needed(group: zarr.Group) -> Iterable[str]:
    """Keys of the metadata and of all chunks of a dataset's arrays."""
    for name in VARIABLES:
        array: Any = group[name]
        yield f"{name}/zarr.json"
        for number in range(-(-array.shape[0] // array.chunks[0])):
            yield f"{name}/c/{number}" + "/0" * (array.ndim - 1)


def finish_replacement(location: Location, check: Callable[[], None]) -> dict[str, Any]:
    """Finish a replacement that was committed, however far it has come.

    Parameters
    ----------
    location : Location
        The dataset.
    check : callable
        Called between the steps; raises an error if another process has taken over.

    Returns
    -------
    dict
        What the caller of :func:`commit_replacement` has stored.
    """
    record = json.loads(location.read(COMMIT))
    folder = f"{UPDATE_FOLDER}/{record['folder']}"
    prepared = {key for key in location.files(folder) if not key.endswith(UNFINISHED_SUFFIX)}
    replaced = prepared & set(record["replaced"])
    _move(location, folder, prepared - replaced - {ROOT}, check)
    if ROOT in prepared:  # otherwise the dataset is in its new state already
        check()
        location.remove(ROOT)
        _move(location, folder, replaced, check)
        _run(location.remove, record["removed"], check)
        _move(location, folder, {ROOT}, check)
    check()
    location.remove(COMMIT)
    return dict(record["about"])


def _move(location: Location, folder: str, keys: Iterable[str], check: Callable[[], None]) -> None:
    _run(lambda key: location.move(f"{folder}/{key}", key), sorted(keys), check)


def _run(action: Callable[[str], None], keys: list[str], check: Callable[[], None]) -> None:
    """Call ``action`` for all keys, several at a time."""
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        for start in range(0, len(keys), MAX_CONCURRENT):
            check()
            list(pool.map(action, keys[start : start + MAX_CONCURRENT]))
