"""Pictures and paths that would do harm."""

from __future__ import annotations

import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import zarr

from gpgc_dask import GP, load, open_dataset
from gpgc_dask.core.errors import CorruptedError, UnusableFileError
from gpgc_dask.imaging.masks import MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation, read_photo
from gpgc_dask.results.selection import write_folder

pytestmark = pytest.mark.newest


def png(width: int, height: int, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG that claims a size and holds next to nothing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def test_photos_and_masks_that_are_bombs(tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png(60_000, 60_000))
    with pytest.raises(UnusableFileError, match="too large to decode safely"):
        read_photo(path, 512)
    with pytest.raises(UnusableFileError, match="too large to decode safely"):
        read_mask(path, MaskFormat(), Orientation(60_000, 60_000, (60_000, 60_000)))
    note = b"note\0\0" + zlib.compress(bytes(200 << 20))
    path.write_bytes(png(60, 60, (b"zTXt", note)))
    with pytest.raises(UnusableFileError, match="corrupted"):
        read_photo(path, 512)


def set_text(data: Path, name: str, value: str, photo: int = 0) -> None:
    array = zarr.open_group(data, mode="r+")[name]
    values = array[...]
    values = np.array(values.tolist(), dtype=object)
    values[photo] = value
    array[...] = values


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("image_name", "../../photo_000.jpg", "leads out of its folder"),
        ("image_name", "/etc/passwd", "leads out of its folder"),
        ("image_path", "/etc/passwd", "is not 'photo_000.jpg' in the folder of images"),
        ("mask_path", "/etc/passwd", "is not in the folder of masks"),
        ("mask_path", "{masks}/../../secret.png", "is not in the folder of masks"),
    ],
)
def test_paths_that_lead_out_of_their_folders(data, sound, name, value, told):
    set_text(data, name, value.format(masks=sound.parent / "masks"))
    with pytest.raises(CorruptedError, match=told):
        open_dataset(data)


@pytest.mark.parametrize("key", ["features/c/0/0", "label/zarr.json", "label/c"])
def test_links_in_a_dataset_are_not_followed(data, sound, key):
    if (data / key).is_dir():
        shutil.rmtree(data / key)
    else:
        (data / key).unlink()
    (data / key).symlink_to(sound / key)
    with pytest.raises(CorruptedError, match=r"links out of .* are not followed"):
        GP(redundancy=1.0).fit(open_dataset(data))


def test_a_dataset_behind_a_link_is_followed(data, tmp_path):
    (tmp_path / "link.zarr").symlink_to(data)
    assert GP(redundancy=1.0).fit(open_dataset(tmp_path / "link.zarr")).converged_


@pytest.mark.parametrize("column", ["image", "image_path", "mask_path"])
@pytest.mark.parametrize("copy", [True, False])
def test_a_folder_is_made_of_a_models_own_images_alone(fitted, tmp_path, column, copy):
    model = load(fitted)
    table = model.review_.copy()
    table.loc[1, column] = "../../etc/passwd" if column == "image" else "/etc/passwd"
    with pytest.raises(ValueError, match=r"out of its folder|is not"):
        write_folder(table, model.dataset_["source"], tmp_path / "out", copy=copy)
    assert not (tmp_path / "out").exists()
