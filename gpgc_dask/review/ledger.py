"""The verdicts of a dataset as a review sees them: which one counts for each image, and news."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

from gpgc_dask.data.verdicts import Correction, Verdict, VerdictLog
from gpgc_dask.storage.location import MAX_CONCURRENT, Location

__all__ = ["Entry", "Ledger"]


UNKNOWN = -1
"""Number of an image that the dataset does not have."""


@dataclass(frozen=True)
class Entry:
    """A verdict without its mask.

    Attributes
    ----------
    image : int
        Number of the image.
    kind, by, at, id : str
        See :class:`~gpgc_dask.data.verdicts.Verdict`.
    key : str
        Name of its file: the order of the names is that of the times.
    """

    image: int
    kind: str
    by: str
    at: str
    id: str
    key: str

    def to_json(self) -> dict[str, Any]:
        """The entry as plain values for the page."""
        return {name: value for name, value in asdict(self).items() if name != "key"}


class Ledger:
    """The verdicts of a dataset, without their masks, which would fill the memory.

    Parameters
    ----------
    location : Location
        The dataset.
    names : sequence of str
        Names of its images. Verdicts on other images are ignored.
    """

    def __init__(self, location: Location, names: Sequence[str]) -> None:
        self.location = location
        self.names = list(names)
        self._place = {name: number for number, name in enumerate(names)}
        self._lock = Lock()
        self._keys: set[str] = set()
        self._ids: set[str] = set()
        self._latest: dict[int, Entry] = {}
        self._events: list[Entry] = []
        self._last = datetime.min.replace(tzinfo=UTC)
        self.refresh()

    def refresh(self) -> None:
        """Read the verdicts that other programs have written meanwhile."""
        log = VerdictLog(self.location)
        with self._lock:
            known = set(self._keys)
        new = [key for key in log.keys() if key not in known]  # noqa: SIM118
        with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
            for entry in pool.map(lambda key: self._entry(log.read_one(key)), new):
                self._add(entry)

    def append(self, verdict: Verdict) -> Entry:
        """Store a verdict; it is on disk when this returns, and counts from then on.

        Its time is at least that of every verdict before, whatever the clocks are.
        """
        with self._lock:
            now = datetime.now(UTC)
            self._last = now = max(now, self._last + timedelta(microseconds=1))
        stamped = replace(verdict, at=now.isoformat(timespec="microseconds"))
        VerdictLog(self.location).append(stamped)
        entry = self._entry(stamped)
        self._add(entry)
        return entry

    def has(self, verdict_id: str) -> bool:
        """Whether a verdict of this id is stored."""
        with self._lock:
            return verdict_id in self._ids

    def current(self) -> dict[int, Entry]:
        """{image: the verdict that counts} of the images that have one."""
        with self._lock:
            return {n: one for n, one in self._latest.items() if one.kind != "withdrawn"}

    def since(self, count: int) -> list[Entry]:
        """News: what has been added after the first ``count`` entries."""
        with self._lock:
            return self._events[max(count, 0) :]

    def count(self) -> int:
        """Number of entries so far."""
        with self._lock:
            return len(self._events)

    def correction(self, entry: Entry | None) -> Correction | None:
        """The corrected mask of an entry, read from its file; None if it has none."""
        if entry is None or entry.kind != "corrected":
            return None
        return VerdictLog(self.location).read_one(entry.key).correction

    def _entry(self, verdict: Verdict) -> Entry:
        image = self._place.get(verdict.image, UNKNOWN)
        return Entry(image, verdict.kind, verdict.by, verdict.at, verdict.id, verdict.key)

    def _add(self, entry: Entry) -> None:
        with self._lock:
            self._last = max(self._last, datetime.fromisoformat(entry.at))
            if entry.key in self._keys:
                return
            self._keys.add(entry.key)
            self._ids.add(entry.id)
            if entry.image == UNKNOWN:
                return
            before = self._latest.get(entry.image)
            if before is None or before.key < entry.key:
                self._latest[entry.image] = entry
            self._events.append(entry)
