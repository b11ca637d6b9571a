"""What is wrong with stored arrays, and how it is noticed: digests of what describes them.

Chunks carry checksums (Zarr's crc32c). The JSON that says how to read them has none, so whoever
writes a dataset or a model keeps a digest of each piece of it among the attributes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.storage.location import AT_A_TIME, Location

__all__ = [
    "DIGESTS",
    "check_digests",
    "check_inside",
    "digests",
    "read_attributes",
    "read_metadata",
]

DIGESTS = "metadata_digests"
"""The attribute that holds them: {"attributes": {name: digest}, "arrays": {name: digest}}."""

METADATA_BYTES = 64 << 20
"""What describes an array, or a group, is never larger."""


ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""What reading a file raises that is not there, or is something else."""


def digests(
    location: Location, attributes: Mapping[str, Any], names: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Digests of a group's attributes, and of the descriptions of its arrays of these names."""
    return {
        "attributes": {name: _digest(value) for name, value in attributes.items()},
        "arrays": {name: _digest(told) for name, told in read_metadata(location, names).items()},
    }


def check_digests(
    location: Location, attributes: Mapping[str, Any], way_out: str
) -> dict[str, Any]:
    """{name: description} of the arrays of a group, all as they were written, or a complaint.

    attributes : of the group, as found. What somebody has added since is not looked at.
    """
    try:
        known = attributes[DIGESTS]
        found = {"attributes": attributes, "arrays": read_metadata(location, known["arrays"])}
        missing = [name for kind in found for name in known[kind] if name not in found[kind]]
        changed = [
            name
            for kind, values in found.items()
            for name, digest in known[kind].items()
            if name in values and _digest(values[name]) != digest
        ]
    except (KeyError, TypeError, AttributeError):
        missing, changed = [DIGESTS], []
    if missing or changed:
        told = [f"it lacks {', '.join(missing)}"] if missing else []
        told += [f"its zarr.json describes {', '.join(changed)} wrongly"] if changed else []
        raise CorruptedError(f"{location} is damaged: {' and '.join(told)}; {way_out}")
    return dict(found["arrays"])


def read_attributes(location: Location) -> dict[str, Any] | None:
    """Attributes of the Zarr group at a location; None where no such group can be read."""
    try:
        found = _read_json(location, "zarr.json")
        is_group = found["zarr_format"] == 3 and found["node_type"] == "group"
        return found["attributes"] if is_group and isinstance(found["attributes"], dict) else None
    except (CorruptedError, KeyError, TypeError, *ABSENT):
        return None


def read_metadata(location: Location, names: Iterable[str]) -> dict[str, Any]:
    """{name: description} of arrays of a group, as stored; those that are not there are left out.

    Read as plain JSON: what is to be judged is not yet to be acted upon.
    """

    def read(name: str) -> tuple[str, Any]:
        try:
            return name, _read_json(location, f"{name}/zarr.json")
        except ABSENT:
            return name, None

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return {name: found for name, found in pool.map(read, names) if found is not None}


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
            f"{location} is damaged: its {key} cannot be read ({error}); restore that file from a "
            "copy, or make it anew"
        ) from None


def check_inside(root: str, key: str) -> None:
    """Complain where a file of a local group is a link, or lies behind one: to who knows what."""
    if os.path.realpath(os.path.join(root, key)) != os.path.join(os.path.realpath(root), key):
        raise CorruptedError(
            f"{root} is not followed out of its folder: {key} is, or lies behind, a link; put the "
            "file itself in its place"
        )


def _digest(value: Any) -> str:
    """The same for all ways to write the same JSON."""
    text = json.dumps(json.loads(json.dumps(value)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
