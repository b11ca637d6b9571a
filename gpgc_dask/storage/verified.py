"""Stored arrays that are read correctly or not at all.

Zarr takes a missing chunk for one that was never written and returns its fill value, and its error
for a wrong checksum names neither the array nor the place. Here a store knows of which arrays every
chunk was written, and errors name the array, the chunk, the rows and the images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import zarr
from zarr.buffer import default_buffer_prototype
from zarr.codecs import Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore, WrapperStore

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.storage.integrity import check_inside
from gpgc_dask.storage.location import Location

__all__ = ["MAX_CHUNK_BYTES", "VerifiedArray", "checksum_options", "open_verified"]

MAX_CHUNK_BYTES = 1 << 30
"""Decoded bytes of a chunk at most, whatever its description or its compressed bytes claim."""

ZSTD_MAGIC = bytes.fromhex("28b52ffd")
"""The first bytes of every zstd frame."""

DECODING_ERRORS = (ValueError, RuntimeError, TypeError, IndexError)
"""Errors of decoding bytes that are not what was written.

All other errors come from the machine or the network, and what is stored may be intact.
"""


def checksum_options(*, compressed: bool) -> dict[str, Any]:
    """Options of ``create_array``: a checksum on every chunk, and every chunk written.

    The checksum is of the stored bytes, so that it is checked before anything is decompressed.
    """
    codecs = [ZstdCodec(), Crc32cCodec()] if compressed else [Crc32cCodec()]
    return {"compressors": codecs, "config": {"write_empty_chunks": True}}


class VerifiedStore(WrapperStore[Any]):
    """A store for reading that rejects chunks that are missing, or too large decompressed.

    Parameters
    ----------
    store : zarr.abc.store.Store
        The store to read from.
    complete : frozenset of str
        Names of the arrays of which every chunk was written.
    compressed : frozenset of str
        Names of the arrays that are compressed, by zstd.
    metadata : mapping of str to bytes
        {key: JSON} of metadata that was read and verified before, and is not read again.
    """

    def __init__(
        self,
        store: Any,
        complete: frozenset[str],
        compressed: frozenset[str],
        metadata: Mapping[str, bytes],
    ) -> None:
        super().__init__(store)
        self.complete, self.compressed, self.metadata = complete, compressed, metadata

    def __str__(self) -> str:
        return str(self._store)

    def _with_store(self, store: Any) -> VerifiedStore:
        return type(self)(store, self.complete, self.compressed, self.metadata)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the bytes of a key; raise a CorruptedError for an unusable chunk."""
        if key in self.metadata and byte_range is None:
            return (prototype or default_buffer_prototype()).buffer.from_bytes(self.metadata[key])
        if isinstance(self._store, LocalStore):
            check_inside(str(self._store.root), key)
        content = await self._store.get(key, prototype, byte_range)
        name, is_chunk, _ = key.partition("/c")
        if is_chunk and content is None and name in self.complete:
            raise CorruptedError("it is missing")
        if is_chunk and content is not None and name in self.compressed:
            _check_decoded_size(content.as_numpy_array()[:18].tobytes())
        return content


def open_verified(
    location: Location,
    metadata: Mapping[str, Any],
    *,
    complete: Iterable[str],
    compressed: Iterable[str],
    attributes: Mapping[str, Any] | None = None,
) -> zarr.Group:
    """Open a group for reading whose arrays have the given metadata, {name: JSON}.

    If the attributes of the group are given, they are not read again.
    """
    content = {f"{name}/zarr.json": json.dumps(each).encode() for name, each in metadata.items()}
    if attributes is not None:
        group = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
        content["zarr.json"] = json.dumps(group).encode()
    inner = location.store(read_only=True)
    store = VerifiedStore(inner, frozenset(complete), frozenset(compressed), content)
    return zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)


def _check_decoded_size(head: bytes) -> None:
    """Raise a CorruptedError if a zstd frame is too large decompressed, or does not state its size.

    ``head`` holds its header: at most 18 bytes.
    """
    size = _decoded_size(head)
    if size is None or size > MAX_CHUNK_BYTES:
        claim = "an unknown number of" if size is None else f"{size:,}"
        raise CorruptedError(
            f"it would decompress to {claim} bytes, and {MAX_CHUNK_BYTES:,} are allowed"
        )


def _decoded_size(head: bytes) -> int | None:
    """Size that the header of a zstd frame states, None if it states none; see RFC 8878, 3.1.1.1.

    numcodecs, which decompresses the chunks, has no function that reads the size alone.
    """
    if len(head) < 6 or head[:4] != ZSTD_MAGIC:
        raise CorruptedError("it is not compressed by zstd")
    code, single, dictionary = head[4] >> 6, head[4] >> 5 & 1, head[4] & 3
    if code == 0 and not single:
        return None
    start = 5 + (not single) + (0, 1, 2, 4)[dictionary]
    field = head[start : start + (1 << code)]
    if len(field) < 1 << code:
        raise CorruptedError("it is not compressed by zstd")
    return int.from_bytes(field, "little") + (256 if code == 1 else 0)


class VerifiedArray:
    """An array of a group for NumPy or Dask, chunked along its first dimension.

    Parameters
    ----------
    group : zarr.Group
        Group as :func:`open_verified` opens it.
    name : str
        Name of the array.
    place : str
        Path or URL of the group, for messages.
    way_out : str
        What to do about a chunk that cannot be read, for messages.
    describe : callable, optional
        ``describe(group, dimension, first entry, last entry)`` returns a description of these
        entries. It is called where the reading is done, and only if there is an error.
    check : callable, optional
        Called after each read; raises an error if what was read may be of another state of the
        group. It is sent to workers.
    """

    def __init__(
        self,
        group: zarr.Group,
        name: str,
        place: str,
        way_out: str,
        describe: Callable[[zarr.Group, str, int, int], str] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.group, self.name, self.place, self.way_out = group, name, place, way_out
        self.describe, self.check = describe, check
        self.array: Any = group[name]
        self.shape: tuple[int, ...] = self.array.shape
        self.ndim = len(self.shape)
        self.dtype = self.array.dtype
        self.chunks: tuple[int, ...] = self.array.chunks

    def __getitem__(self, index: Any) -> Labels:
        """Return the entries; raise a CorruptedError that names the first unreadable chunk."""
        try:
            values = np.asarray(self.array[index])
        except DECODING_ERRORS as error:
            if self.check is not None:
                self.check()
            message = self._error_message(index, error)
            if message is not None:
                raise CorruptedError(message) from error
            values = np.asarray(self.array[index])
        if self.check is not None:
            self.check()
        return values

    def _error_message(self, index: Any, error: Exception) -> str | None:
        """Which of the requested chunks cannot be read, and what is in them.

        None if all of them can be read now: the bytes were corrupted on their way, not in the
        store.
        """
        first = index[0] if isinstance(index, tuple) and index else index
        if not self.ndim or not isinstance(first, slice):
            first = slice(None)
        start, stop, _ = first.indices(self.shape[0] if self.ndim else 1)
        size = self.chunks[0] if self.ndim else 1
        bad = [
            number
            for number in range(start // size, -(-max(stop, start + 1) // size))
            if not self._is_readable(number * size, (number + 1) * size)
        ]
        if not bad:
            return None
        low, high = bad[0] * size, (bad[0] + 1) * size
        others = f", and {len(bad) - 1} more chunk(s)" if len(bad) > 1 else ""
        key = f"{self.name}/c" + f"/{bad[0]}" * (self.ndim > 0) + "/0" * (self.ndim - 1)
        reason = str(error).partition(". ")[0]
        return (
            f"{self.place} is corrupted: chunk {bad[0]} of {self.name} cannot be read ({key}: "
            f"{reason}){self._contents(low, high)}{others}; {self.way_out}"
        )

    def _is_readable(self, low: int, high: int) -> bool:
        try:
            self.array[low:high] if self.ndim else self.array[...]
        except DECODING_ERRORS:
            return False
        return True

    def _contents(self, low: int, high: int) -> str:
        if self.describe is None or not self.ndim:
            return ""
        dimension = self.array.metadata.dimension_names[0]
        try:
            return ": " + self.describe(self.group, dimension, low, min(high, self.shape[0]))
        except Exception:  # the names of rows and images may be corrupted too
            return f": entries {low} … {min(high, self.shape[0]) - 1}"
