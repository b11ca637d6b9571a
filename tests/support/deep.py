"""Photos of more than 8 bits, as cameras, microscopes and satellites write them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import tifffile

COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
"""{bands: colour type of PNG}."""

UP = 2


def to_depth(photo: np.ndarray, bits: int) -> np.ndarray:
    """Scale a photo of 8 bits to the range of ``bits`` bits, uint16."""
    return np.rint(photo * ((2**bits - 1) / 255)).astype(np.uint16)


def write_png(path: Path, values: np.ndarray) -> None:
    """Write (h, w) or (h, w, bands) uint16 values as a PNG of 16 bits, each row as a difference."""
    values = values.reshape(*values.shape[:2], -1)
    rows = values.astype(">u2").view(np.uint8).reshape(len(values), -1)
    up = np.diff(rows.astype(np.int16), axis=0, prepend=np.int16(0)).astype(np.uint8)
    content = b"".join(bytes([UP]) + row.tobytes() for row in up)
    height, width, bands = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[bands], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(content)), (b"IEND", b""))
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )
    )


def write_deep(path: Path, values: np.ndarray, **options: object) -> None:
    """Write values as a PNG or a TIFF, by the path's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        write_png(path, values)
        return
    colour = {"photometric": "rgb" if values.ndim == 3 else "minisblack"}
    tifffile.imwrite(path, values, **colour | options)
