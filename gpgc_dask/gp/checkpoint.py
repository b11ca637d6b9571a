"""A fit that was killed goes on where it was: the solver's state in one file, no pickle.

The file is replaced whole after every read of the data and removed when the fit is done. It holds
the moments, k×k, too, so that going on costs no read: the next step is the one that the kill
prevented. Its first line is a checksum of all that follows.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, fill_upper
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.solvers import Course, History, State
from gpgc_dask.gp.solvers.problem import Point
from gpgc_dask.storage.location import Location

__all__ = ["Checkpoint", "Saved", "digest"]

MAGIC = b"gpgc_dask checkpoint 2 "

DAMAGED = (ValueError, KeyError, IndexError, TypeError, EOFError, zipfile.BadZipFile)
"""What reading a file that is no checkpoint, or half of one, may raise."""


def digest(*arrays: Any) -> str:
    """A short hash of arrays' types, shapes and values."""
    hashed = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        hashed.update(f"{values.dtype}{values.shape}".encode())
        hashed.update(values.tobytes())
    return hashed.hexdigest()[:16]


@dataclass(frozen=True)
class Saved:
    """Where a fit stood: its state (None: nowhere yet), its history, and the reads it took.

    moments : at that state, None where they must be read again
    course : the solver's memory, None where it begins there
    arithmetic : of the products, None where any will do
    """

    state: State | None
    entries: list[dict[str, Any]]
    reads: float
    moments: Moments | None = None
    course: Course | None = None
    arithmetic: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The file at ``url``, a local path or an fsspec URL.

    ``identity`` says which fit it belongs to, part by part.
    """

    url: str | PathLike[str]
    identity: dict[str, Any]

    @property
    def _place(self) -> tuple[Location, str]:
        return Location.of(self.url).parent()

    def save(self, point: Point, course: Course, history: History) -> None:
        """Replace the file by where the fit is now, whole or not at all."""
        state, moments = point.state, point.moments
        meta = {
            "identity": self.identity,
            "entries": history.entries,
            "reads": history.reads,
            "arithmetic": history.arithmetic,
            "course": course.plain(),
        }
        arrays = {
            "log_noise": state.log_noise,
            "log_scales": state.log_scales,
            "redundancy": np.array(state.redundancy),
            "gram": _packed(moments.gram),
            "cross": moments.cross,
            "yy": np.array(moments.yy),
            "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
        }
        if course.promise.mean is not None:
            arrays["mean"] = course.promise.mean
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        content = buffer.getvalue()
        head = MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n"
        location, name = self._place
        try:
            location.write(name, head + content)
        except OSError as error:
            # A night's fit is worth more than its checkpoint.
            warnings.warn(
                f"the state of the fit could not be kept ({error}): the fit goes on, and could "
                "only be resumed from what was kept before",
                stacklevel=2,
            )

    def load(self) -> Saved | None:
        """The saved state, None where there is none; a ValueError where it is another fit's."""
        location, name = self._place
        if not location.exists(name):
            return None
        try:
            identity, saved = _parsed(location.read(name))
        except DAMAGED as error:
            raise InputError(
                f"checkpoint {fspath(self.url)} cannot be read ({error}): remove it to start afresh"
            ) from error
        differing = [part for part in self.identity if identity.get(part) != self.identity[part]]
        if differing:
            told = ", ".join(
                f"{part} ({identity.get(part)} there, {self.identity[part]} here)"
                for part in differing
            )
            raise InputError(
                f"checkpoint {fspath(self.url)} belongs to another fit; what differs: {told}. "
                "Remove it to start afresh, or name another checkpoint"
            )
        return saved

    def remove(self) -> None:
        """The fit is done: nothing is left to resume."""
        location, name = self._place
        location.remove(name)


def _parsed(content: bytes) -> tuple[dict[str, Any], Saved]:
    """(identity, what was saved) of a file's content."""
    if not content.startswith(MAGIC):
        raise InputError("it is no checkpoint of this version")
    head, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != head.removeprefix(MAGIC):
        raise InputError("its checksum does not fit: it is corrupted")
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        meta = json.loads(bytes(stored["meta"]))
        state = State(stored["log_noise"], stored["log_scales"], float(stored["redundancy"]))
        moments = Moments(_unpacked(stored["gram"]), stored["cross"], float(stored["yy"]))
        mean = stored.get("mean")
    course = Course.of(meta["course"], mean)
    saved = Saved(state, meta["entries"], float(meta["reads"]), moments, course, meta["arithmetic"])
    return meta["identity"], saved


def _packed(symmetric: Array) -> Array:
    """(k(k+1)/2,) the lower triangle, row by row."""
    return np.concatenate([row[: number + 1] for number, row in enumerate(symmetric)])


def _unpacked(packed: Array) -> Array:
    """The inverse of :func:`_packed`."""
    k = int((np.sqrt(8 * packed.size + 1) - 1) / 2)
    matrix = np.empty((k, k))
    start = 0
    for number in range(k):
        matrix[number, : number + 1] = packed[start : start + number + 1]
        start += number + 1
    return fill_upper(matrix)
