"""Checkpoints: a fit that was killed resumes where it was.

A checkpoint is one file, without pickle. It is replaced as a whole after every read of the data,
and removed when the fit is done. It holds the solver's state and the moments (k×k numbers), so that
resuming takes no read. Its first line is a checksum of all that follows.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Array, fill_upper
from gpgc_dask.core.errors import InputError
from gpgc_dask.gp.evidence import Moments
from gpgc_dask.gp.solvers import History, Hyperparameters, Point, SolverState
from gpgc_dask.storage.location import Location

__all__ = ["Checkpoint", "SavedFit", "digest", "parse_checkpoint"]

MAGIC = b"gpgc_dask checkpoint 3 "

UNREADABLE = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError),
    *(ArithmeticError, MemoryError, RuntimeError, zlib.error, zipfile.BadZipFile),
)
"""Errors from reading a file that is not a checkpoint, or only a part of one."""


def digest(*arrays: Any) -> str:
    """A short hash of the types, shapes and values of arrays."""
    hashed = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array)
        hashed.update(f"{values.dtype}{values.shape}".encode())
        hashed.update(values.tobytes())
    return hashed.hexdigest()[:16]


@dataclass(frozen=True)
class SavedFit:
    """Where a fit was stopped; by default, a fit that has not started.

    Attributes
    ----------
    params : Hyperparameters or None
        Hyperparameters. None: the fit starts from the beginning.
    entries : list of dict
        Entries of the history.
    reads : float
        Reads of the data so far.
    moments : Moments or None
        Moments at these hyperparameters. None: they must be read.
    solver_state : SolverState or None
        What the solver remembers. None: the solver starts here.
    arithmetic : str or None
        Name of the arithmetic of the products. None: any.
    """

    params: Hyperparameters | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)
    reads: float = 0.0
    moments: Moments | None = None
    solver_state: SolverState | None = None
    arithmetic: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The file of a checkpoint.

    Attributes
    ----------
    url : str or path
        A local path or an fsspec URL.
    identity : dict
        Everything that identifies the fit, by name.
    """

    url: str | PathLike[str]
    identity: dict[str, Any]

    @property
    def _place(self) -> tuple[Location, str]:
        return Location.of(self.url).parent()

    def save(self, point: Point, state: SolverState, history: History) -> None:
        """Replace the file, as a whole or not at all; warn if it cannot be written."""
        params, moments = point.params, point.moments
        meta = {
            "identity": self.identity,
            "entries": history.entries,
            "reads": history.reads,
            "arithmetic": history.arithmetic,
            "solver_state": state.to_json(),
        }
        arrays = {
            "log_noise": params.log_noise,
            "log_scales": params.log_scales,
            "redundancy": np.array(params.redundancy),
            "gram": _pack(moments.gram),
            "cross": moments.cross,
            "yy": np.array(moments.yy),
            "meta": np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
        }
        if state.expectation.mean is not None:
            arrays["mean"] = state.expectation.mean
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        content = buffer.getvalue()
        head = MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n"
        location, name = self._place
        try:
            location.write(name, head + content)
        except OSError as error:
            # The fit is worth more than its checkpoint.
            warnings.warn(
                f"the state of the fit could not be saved ({error}): the fit continues, and can "
                "only be resumed from the state saved before",
                stacklevel=2,
            )

    def load(self) -> SavedFit | None:
        """Load the saved fit.

        Returns
        -------
        SavedFit or None
            None if there is no file.

        Raises
        ------
        InputError
            If the file cannot be read, or belongs to another fit.
        """
        location, name = self._place
        if not location.exists(name):
            return None
        try:
            identity, saved = parse_checkpoint(location.read(name))
        except UNREADABLE as error:
            raise InputError(
                f"checkpoint {fspath(self.url)} cannot be read ({error}): remove it to start again"
            ) from error
        differing = [part for part in self.identity if identity.get(part) != self.identity[part]]
        if differing:
            differences = ", ".join(
                f"{part} ({identity.get(part)} there, {self.identity[part]} here)"
                for part in differing
            )
            raise InputError(
                f"checkpoint {fspath(self.url)} belongs to another fit; "
                f"what differs: {differences}. Remove it to start again, or name another checkpoint"
            )
        return saved

    def remove(self) -> None:
        """Remove the file, if there is one."""
        location, name = self._place
        location.remove(name)


def parse_checkpoint(content: bytes) -> tuple[dict[str, Any], SavedFit]:
    """(identity, saved fit) from the content of a file; raise an error of UNREADABLE otherwise."""
    if not content.startswith(MAGIC):
        raise InputError("it is not a checkpoint of this version")
    head, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != head.removeprefix(MAGIC):
        raise InputError("its checksum does not fit: it is corrupted")
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        meta = json.loads(bytes(stored["meta"]))
        params = Hyperparameters(
            stored["log_noise"], stored["log_scales"], float(stored["redundancy"])
        )
        moments = Moments(_unpack(stored["gram"]), stored["cross"], float(stored["yy"]))
        mean = stored.get("mean")
    saved = SavedFit(
        params=params,
        entries=meta["entries"],
        reads=float(meta["reads"]),
        moments=moments,
        solver_state=SolverState.from_json(meta["solver_state"], mean),
        arithmetic=meta["arithmetic"],
    )
    return meta["identity"], saved


def _pack(symmetric: Array) -> Array:
    """(k(k+1)/2,) lower triangle, row by row."""
    return np.concatenate([row[: number + 1] for number, row in enumerate(symmetric)])


def _unpack(packed: Array) -> Array:
    """The inverse of :func:`_pack`."""
    k = int((np.sqrt(8 * packed.size + 1) - 1) / 2)
    matrix = np.empty((k, k))
    start = 0
    for number in range(k):
        matrix[number, : number + 1] = packed[start : start + number + 1]
        start += number + 1
    return fill_upper(matrix)
