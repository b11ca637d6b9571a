"""A fit that was killed goes on where it was: the solver's state in one small file, no pickle.

The file is replaced whole after every iteration and removed when the fit is done.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpgc_dask.solvers import State

__all__ = ["Checkpoint", "Saved", "digest"]


DAMAGED = (ValueError, KeyError, IndexError, TypeError, EOFError, OSError)
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
    """Where a fit stood: its state (None: nowhere yet), its history, and the reads it took."""

    state: State | None
    entries: list[dict[str, Any]]
    reads: float


@dataclass(frozen=True)
class Checkpoint:
    """The file at ``path``; ``identity`` says which fit it belongs to, part by part."""

    path: Path
    identity: dict[str, Any]

    def save(self, state: State, entries: list[dict[str, Any]]) -> None:
        """Replace the file by this state, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        meta = json.dumps({"identity": self.identity, "entries": entries}).encode()
        new = self.path.with_name(f"{self.path.name}.{uuid.uuid4().hex[:8]}.new")
        try:
            with new.open("wb") as file:
                np.savez(
                    file,
                    log_noise=state.log_noise,
                    log_scales=state.log_scales,
                    redundancy=np.array(state.redundancy),
                    meta=np.frombuffer(meta, dtype=np.uint8),
                )
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)

    def load(self) -> Saved | None:
        """The saved state, None where there is none; a ValueError where it is another fit's."""
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                meta = json.loads(bytes(stored["meta"]))
                state = State(
                    stored["log_noise"], stored["log_scales"], float(stored["redundancy"])
                )
            saved, entries = meta["identity"], meta["entries"]
            reads = float(entries[-1]["reads"])
        except (*DAMAGED, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint {self.path} cannot be read ({error}): remove it to start afresh"
            ) from error
        differing = [name for name in self.identity if saved.get(name) != self.identity[name]]
        if differing:
            told = ", ".join(
                f"{name} ({saved.get(name)} there, {self.identity[name]} here)"
                for name in differing
            )
            raise ValueError(
                f"checkpoint {self.path} belongs to another fit; what differs: {told}. "
                "Remove it to start afresh, or name another checkpoint"
            )
        return Saved(state, entries, reads)

    def remove(self) -> None:
        """The fit is done: nothing is left to resume."""
        self.path.unlink(missing_ok=True)
