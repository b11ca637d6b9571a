"""Ways to corrupt a file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gpgc_dask import open_dataset
from gpgc_dask.data.dataset import VARIABLES
from gpgc_dask.storage.integrity import DIGESTS, digests, read_metadata
from gpgc_dask.storage.location import Location


def flip(path: Path, place: int = -20) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def four_zeros(path: Path) -> None:
    """The right checksum of nothing at all."""
    path.write_bytes(bytes(4))


def images_of_rows(data: Path, first: int, last: int) -> list[str]:
    found = open_dataset(data)
    return found["image_name"].values[np.unique(found["image"].values[first : last + 1])].tolist()


def rewrite(path: Path, change, *, digest: bool = False) -> None:
    """Change metadata; with ``digest`` also its digest, as an attacker would."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    if digest:
        root = (path.parent if path.parent.suffix else path.parent.parent) / "zarr.json"
        group = json.loads(root.read_text())
        known = {key: group["attributes"][key] for key in group["attributes"] if key != DIGESTS}
        group["attributes"][DIGESTS] = digests(
            known, read_metadata(Location.of(root.parent), VARIABLES)
        )
        root.write_text(json.dumps(group))
