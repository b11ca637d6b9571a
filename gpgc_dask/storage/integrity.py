"""Digests of the metadata of stored arrays, by which corruption is noticed.

Chunks have checksums (Zarr's crc32c). The JSON that describes how to read them has none, so writers
of datasets and models store a digest of each piece of it among the attributes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.storage.location import MAX_CONCURRENT, Location

__all__ = [
    "DIGESTS",
    "check_digests",
    "check_inside",
    "digests",
    "read_attributes",
    "read_metadata",
]

DIGESTS = "metadata_digests"
"""Attribute with the digests: {"attributes": {name: digest}, "arrays": {name: digest}}."""

METADATA_BYTES = 64 << 20
"""Size limit of the metadata of an array or a group."""

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Errors of reading a file that does not exist or is a folder."""


def digests(attributes: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Compute digests of a group's attributes, and of the metadata of its arrays."""
    return {
        "attributes": {name: _digest(value) for name, value in attributes.items()},
        "arrays": {name: _digest(each) for name, each in arrays.items()},
    }


def check_digests(
    location: Location, attributes: Mapping[str, Any], way_out: str
) -> dict[str, Any]:
    """Check that attributes and metadata of arrays are as they were written.

    Parameters
    ----------
    location : Location
        Place of the group.
    attributes : mapping
        Attributes of the group, as read now. Those that were added later are not checked.
    way_out : str
        What to do, for the error message.

    Returns
    -------
    dict
        {name: metadata} of the arrays.

    Raises
    ------
    CorruptedError
        If something is missing or has changed.
    """
    try:
        expected = attributes[DIGESTS]
        stored = {"attributes": attributes, "arrays": read_metadata(location, expected["arrays"])}
        missing = [name for kind in stored for name in expected[kind] if name not in stored[kind]]
        changed = [
            name
            for kind, values in stored.items()
            for name, digest in expected[kind].items()
            if name in values and _digest(values[name]) != digest
        ]
    except (KeyError, TypeError, AttributeError):
        missing, changed = [DIGESTS], []
    if missing or changed:
        reasons = [f"it lacks {', '.join(missing)}"] if missing else []
        reasons += [f"its zarr.json describes {', '.join(changed)} wrongly"] if changed else []
        raise CorruptedError(f"{location} is corrupted: {' and '.join(reasons)}; {way_out}")
    return dict(stored["arrays"])


def read_attributes(location: Location) -> dict[str, Any] | None:
    """Attributes of the Zarr group at a location; None if no such group can be read."""
    try:
        metadata = _read_json(location, "zarr.json")
        is_group = metadata["zarr_format"] == 3 and metadata["node_type"] == "group"
        attributes = metadata["attributes"]
        return attributes if is_group and isinstance(attributes, dict) else None
    except (CorruptedError, KeyError, TypeError, *ABSENT):
        return None


def read_metadata(location: Location, names: Iterable[str]) -> dict[str, Any]:
    """{name: metadata} of arrays of a group, as stored; missing arrays are left out.

    It is read as plain JSON, because Zarr would act on metadata that is not verified yet.
    """

    def read(name: str) -> tuple[str, Any]:
        try:
            return name, _read_json(location, f"{name}/zarr.json")
        except ABSENT:
            return name, None

    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        return {name: each for name, each in pool.map(read, names) if each is not None}


def _read_json(location: Location, key: str) -> Any:
    if location.is_local:
        check_inside(location.url, key)
    content = location.read(key)
    try:
        if len(content) > METADATA_BYTES:
            raise InputError(f"{len(content):,} bytes long")
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptedError(
            f"{location} is corrupted: its {key} cannot be read ({error}); restore that file from "
            "a copy, or write everything again"
        ) from None


def check_inside(root: str, key: str) -> None:
    """Raise a CorruptedError if a file of a local group is a link, or is behind one."""
    if os.path.realpath(os.path.join(root, key)) != os.path.join(os.path.realpath(root), key):
        raise CorruptedError(
            f"links out of {root} are not followed: {key} is a link, or is behind one; put the "
            "file itself in its place"
        )


def _digest(value: Any) -> str:
    """Digest of a value, the same for all ways to write the same JSON."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
