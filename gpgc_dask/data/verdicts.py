"""Verdicts: what people have decided about the masks of a dataset, as an append-only log.

Every verdict is one file in the folder ``verdicts`` of the dataset, written completely or not at
all, and never changed. Several people can therefore write at the same time, on a local disk or an
object store, and a verdict that is sent twice is stored once. The latest one on an image counts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
import zlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, get_args

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.maps import Codes
from gpgc_dask.data.schema import VERDICTS_FOLDER
from gpgc_dask.storage.location import MAX_CONCURRENT, Location

__all__ = ["Correction", "Verdict", "VerdictKind", "VerdictLog", "latest"]

VerdictKind = Literal["confirmed", "rejected", "corrected", "withdrawn"]

VERSION = 1
MAX_FILE_BYTES = 64 << 20
MAX_PIXELS = 1 << 28
MAX_TEXT = 2000
"""Limits of a verdict: bytes of its file, pixels of its mask, characters of a text."""

ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Correction:
    """A corrected mask, and the labels that follow from it.

    Attributes
    ----------
    mask : (H, W) array of uint8
        Class codes, 0 … classes − 1, at the photo's own size, upright; 255 is void.
    working : (h, w) array of uint8
        The same at working size.
    label : (n,) array of uint8
        Class of each superpixel.
    weight : (n,) array of float32
        Training weight of each superpixel; 0 if it is mostly void.
    flags : str
        What to know about the mask, joined by ``;``.
    """

    mask: Codes
    working: Codes
    label: Codes
    weight: Features
    flags: str = ""


@dataclass(frozen=True)
class Verdict:
    """What a person has decided about the mask of an image.

    Attributes
    ----------
    image : str
        Name of the image.
    kind : {"confirmed", "rejected", "corrected", "withdrawn"}
        "withdrawn": earlier verdicts on the image do not count any more.
    by : str
        Who decided; empty if unknown.
    at : str
        When, as an ISO time in UTC.
    note : str
        Anything else.
    correction : Correction or None
        The corrected mask of a "corrected" verdict.
    id : str
        32 hexadecimal digits. A verdict that is written again under the same id and time is stored
        once.
    """

    image: str
    kind: VerdictKind
    by: str = ""
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))
    note: str = ""
    correction: Correction | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if self.kind not in get_args(VerdictKind):
            known = ", ".join(get_args(VerdictKind))
            raise InputError(f"a verdict is one of {known}, got {self.kind!r}")
        if (self.kind == "corrected") != (self.correction is not None):
            raise InputError(
                f"the verdict on {self.image} is {self.kind}: a corrected mask belongs to the "
                "verdict corrected, and to no other"
            )
        if not ID.fullmatch(self.id):
            raise InputError(f"the id of a verdict is 32 hexadecimal digits, got {self.id!r}")
        if len(self.by) > MAX_TEXT or len(self.note) > MAX_TEXT:
            raise InputError(f"a name or note in a verdict has more than {MAX_TEXT} characters")
        object.__setattr__(self, "at", _utc(self.at))

    @property
    def key(self) -> str:
        """Name of its file: the order of the names is that of the times."""
        time = datetime.fromisoformat(self.at)
        return f"{VERDICTS_FOLDER}/{time:%Y%m%dT%H%M%S%f}-{self.id}.json"


def _utc(text: str) -> str:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise InputError(
            f"the time of a verdict is {text!r}: give it as 2026-11-18 or 2026-11-18T12:00:00+00:00"
        ) from None
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time.isoformat(timespec="microseconds")


class VerdictLog:
    """The verdicts of a dataset.

    Parameters
    ----------
    location : Location
        The dataset.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self._known: dict[str, Verdict] = {}

    def append(self, verdict: Verdict) -> None:
        """Store a verdict; it is there, complete, when this returns."""
        self.location.write(verdict.key, _to_bytes(verdict))
        self._known[verdict.key] = verdict

    def read(self) -> list[Verdict]:
        """All verdicts, the oldest first. Files that were read before are not read again."""
        keys = self.keys()
        missing = [key for key in keys if key not in self._known]
        with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
            self._known.update(zip(missing, pool.map(self.read_one, missing), strict=True))
        return [self._known[key] for key in keys]

    def keys(self) -> list[str]:
        """Names of the files, in the order of their times."""
        names = self.location.names(VERDICTS_FOLDER)
        return [f"{VERDICTS_FOLDER}/{name}" for name in names if name.endswith(".json")]

    def read_one(self, key: str) -> Verdict:
        """Read one verdict by the name of its file; it is not kept in memory."""
        content = self.location.read(key)
        try:
            verdict = _from_bytes(content)
        except (KeyError, TypeError, ValueError, zlib.error) as error:
            raise CorruptedError(
                f"{self.location}/{key} is corrupted ({error}): restore this file from a copy, or "
                "remove it to forget this verdict"
            ) from error
        if verdict.key != key:
            raise CorruptedError(f"{self.location}/{key} is corrupted: it is that of {verdict.key}")
        return verdict


def latest(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    """{image: the verdict that counts}, of verdicts in the order of their times."""
    current = {verdict.image: verdict for verdict in verdicts}
    return {name: one for name, one in current.items() if one.kind != "withdrawn"}


# -- files ---------------------------------------------------------------------------------------


def _to_bytes(verdict: Verdict) -> bytes:
    content: dict[str, Any] = {
        "format": "gpgc_dask verdict",
        "version": VERSION,
        "id": verdict.id,
        "image": verdict.image,
        "verdict": verdict.kind,
        "by": verdict.by,
        "at": verdict.at,
        "note": verdict.note,
    }
    if verdict.correction is not None:
        own = verdict.correction
        content["correction"] = {
            "mask": _pack(own.mask),
            "working": _pack(own.working),
            "label": _pack(own.label),
            "weight": _pack((own.weight > 0).astype(np.uint8)),
            "flags": own.flags,
        }
    return json.dumps(content | {"digest": _digest(content)}, ensure_ascii=False).encode()


def _from_bytes(content: bytes) -> Verdict:
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it has {len(content):,} bytes")
    stored = json.loads(content)
    digest = stored.pop("digest", None)
    if digest != _digest(stored):
        raise ValueError("its digest is another one")
    if stored["format"] != "gpgc_dask verdict" or stored["version"] != VERSION:
        raise ValueError(f"it has version {stored['version']}, and {VERSION} is read")
    correction = None
    if "correction" in stored:
        own = stored["correction"]
        mask, working, label, weight = (
            _unpack(own[name]) for name in ("mask", "working", "label", "weight")
        )
        correction = Correction(mask, working, label, weight.astype(np.float32), str(own["flags"]))
    return Verdict(
        image=str(stored["image"]),
        kind=stored["verdict"],
        by=str(stored["by"]),
        at=stored["at"],
        note=str(stored["note"]),
        correction=correction,
        id=stored["id"],
    )


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _pack(values: Codes) -> dict[str, Any]:
    data = zlib.compress(np.ascontiguousarray(values, dtype=np.uint8).tobytes())
    return {"shape": list(values.shape), "data": base64.b64encode(data).decode()}


def _unpack(stored: Mapping[str, Any]) -> Codes:
    shape = tuple(int(size) for size in stored["shape"])
    size = int(np.prod(shape, dtype=np.int64))
    if min(shape) < 0 or not 0 <= size <= MAX_PIXELS:
        raise ValueError(f"an array has the shape {shape}")
    # One byte more than expected is enough to see that there is more: no file fills the memory.
    data = zlib.decompressobj().decompress(base64.b64decode(stored["data"]), size + 1)
    if len(data) != size:
        raise ValueError(f"an array of shape {shape} has another number of bytes")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)
