"""Stored arrays that are read or complained of, never read wrongly.

Zarr takes a chunk that is not there for one that was never written and gives its fill value; it
says of a wrong checksum neither in which array nor where. Here a store knows of which arrays every
chunk was written, and an array tells a chunk that cannot be read by name, rows and images.
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

__all__ = ["MAX_CHUNK_BYTES", "GuardedArray", "checksummed", "open_guarded"]

MAX_CHUNK_BYTES = 1 << 30
"""Decoded bytes of a chunk at most, whatever its description or its compressed bytes say."""

SPOILT = (ValueError, RuntimeError, TypeError, IndexError)
"""What decoding raises over bytes that are not what was written.

All else is of the machine or the network, and what is stored may be sound.
"""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def checksummed(*, compressed: bool) -> dict[str, Any]:
    """Options of ``create_array``: a checksum on every chunk, and every chunk written.

    The checksum is of the bytes as stored, so that it is looked at before anything is unpacked.
    """
    codecs = [ZstdCodec(), Crc32cCodec()] if compressed else [Crc32cCodec()]
    return {"compressors": codecs, "config": {"write_empty_chunks": True}}


class GuardedStore(WrapperStore[Any]):
    """A store to read from, which complains of chunks that are missing, or too large unpacked.

    whole : names of the arrays of which every chunk was written
    compressed : names of those that are compressed, by zstd
    known : {key: JSON} of descriptions that were read, and found right, before: not asked for again
    """

    def __init__(
        self,
        store: Any,
        whole: frozenset[str],
        compressed: frozenset[str],
        known: Mapping[str, bytes],
    ) -> None:
        super().__init__(store)
        self.whole, self.compressed, self.known = whole, compressed, known

    def __str__(self) -> str:
        return str(self._store)

    def _with_store(self, store: Any) -> GuardedStore:
        return type(self)(store, self.whole, self.compressed, self.known)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        if key in self.known and byte_range is None:
            return (prototype or default_buffer_prototype()).buffer.from_bytes(self.known[key])
        if isinstance(self._store, LocalStore):
            check_inside(str(self._store.root), key)
        found = await self._store.get(key, prototype, byte_range)
        name, is_chunk, _ = key.partition("/c")
        if is_chunk and found is None and name in self.whole:
            raise CorruptedError("it is missing")
        if is_chunk and found is not None and name in self.compressed:
            _check_unpacked_size(found.as_numpy_array()[:18].tobytes())
        return found


def open_guarded(
    location: Location,
    described: Mapping[str, Any],
    *,
    whole: Iterable[str],
    compressed: Iterable[str],
) -> zarr.Group:
    """The group at a location, to read from, whose arrays are as ``described``: {name: JSON}."""
    known = {f"{name}/zarr.json": json.dumps(told).encode() for name, told in described.items()}
    inner = location.store(read_only=True)
    store = GuardedStore(inner, frozenset(whole), frozenset(compressed), known)
    return zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)


def _check_unpacked_size(head: bytes) -> None:
    """Complain of a zstd frame that would unpack to too much, or does not say to how much.

    Its header (RFC 8878, 3.1.1.1): magic number, descriptor, window, dictionary, size.
    """
    if not head.startswith(ZSTD_MAGIC) or len(head) < 5:
        raise CorruptedError("it is not compressed as it should be")
    single, dictionary = head[4] >> 5 & 1, (0, 1, 2, 4)[head[4] & 3]
    length = (single, 2, 4, 8)[head[4] >> 6]
    place = 5 + (1 - single) + dictionary
    size = int.from_bytes(head[place : place + length], "little") + (256 if length == 2 else 0)
    if not length or size > MAX_CHUNK_BYTES:
        told = f"{size:,} bytes" if length else "it does not say how much"
        raise CorruptedError(f"it would unpack to {told}, and {MAX_CHUNK_BYTES:,} are allowed")


class GuardedArray:
    """An array of a group as dask or NumPy reads it, cut into chunks along its first dimension.

    place : where the group is, for messages
    way_out : what to do about a chunk that cannot be read
    describe : (group, dimension of the array, first entry, last entry) -> what lies there; looked
        for when there is something to complain of, where the reading is done
    """

    def __init__(
        self,
        group: zarr.Group,
        name: str,
        place: str,
        way_out: str,
        describe: Callable[[zarr.Group, str, int, int], str] | None = None,
    ) -> None:
        self.group, self.name, self.place, self.way_out = group, name, place, way_out
        self.describe = describe
        self.array: Any = group[name]
        self.shape: tuple[int, ...] = self.array.shape
        self.ndim = len(self.shape)
        self.dtype = self.array.dtype
        self.chunks: tuple[int, ...] = self.array.chunks

    def __getitem__(self, index: Any) -> Labels:
        try:
            return np.asarray(self.array[index])
        except SPOILT as error:
            told = self._told(index, error)
            if told is not None:
                raise CorruptedError(told) from error
        return np.asarray(self.array[index])

    def _told(self, index: Any, error: Exception) -> str | None:
        """Which of the chunks asked for cannot be read, and what is in them.

        None where all can be read now: what came was spoilt on its way, and not in the store.
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
            f"{self.place} is damaged: chunk {bad[0]} of {self.name} cannot be read ({key}: "
            f"{reason}){self._contents(low, high)}{others}; {self.way_out}"
        )

    def _is_readable(self, low: int, high: int) -> bool:
        try:
            self.array[low:high] if self.ndim else self.array[...]
        except SPOILT:
            return False
        return True

    def _contents(self, low: int, high: int) -> str:
        if self.describe is None or not self.ndim:
            return ""
        dimension = self.array.metadata.dimension_names[0]
        try:
            return ": " + self.describe(self.group, dimension, low, min(high, self.shape[0]))
        except Exception:  # what would tell may be damaged too
            return f": entries {low} … {min(high, self.shape[0]) - 1}"
