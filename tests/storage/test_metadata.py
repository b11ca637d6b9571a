"""Metadata that is corrupted or false, and values out of range."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import Crc32cCodec

from gpgc_dask import GP, GPGC, load, open_dataset
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.storage import verified
from gpgc_dask.storage.integrity import DIGESTS
from tests.support.corruption import rewrite

pytestmark = pytest.mark.newest


def test_changed_descriptions_are_named(data):
    rewrite(data / "weight/zarr.json", lambda told: told.update(fill_value=1.0))
    with pytest.raises(CorruptedError, match=r"its zarr\.json describes weight wrongly"):
        open_dataset(data)


def test_changed_attributes_are_named(data):
    rewrite(data / "zarr.json", lambda told: told["attributes"]["classes"].reverse())
    with pytest.raises(CorruptedError, match=r"its zarr\.json describes classes wrongly"):
        open_dataset(data)


def test_lost_digests_are_missed(data):
    rewrite(data / "zarr.json", lambda told: told["attributes"].pop(DIGESTS))
    with pytest.raises(CorruptedError, match=f"it lacks {DIGESTS}"):
        open_dataset(data)


def test_a_root_that_cannot_be_read(data):
    (data / "zarr.json").write_bytes(b"\xff{")
    with pytest.raises(CorruptedError, match=r"its zarr\.json cannot be read"):
        open_dataset(data)


def test_one_may_add_to_a_dataset(data):
    group = zarr.open_group(data, mode="r+")
    group.attrs["note"] = "mine"
    group.create_array("mine", shape=(12,), dtype="float32", dimension_names=["photo"])
    found = open_dataset(data)
    assert found["mine"].values.tolist() == [0.0] * 12
    assert found.attrs["note"] == "mine"
    assert GP(redundancy=1.0).fit(found).converged_


LIES = {
    "a chunk of a terabyte": (
        "label",
        lambda told: told["chunk_grid"]["configuration"].update(chunk_shape=[1 << 40]),
        "too large, or too many",
    ),
    "more chunks than anybody can count": (
        "label",
        lambda told: (
            told.update(shape=[1 << 50]),
            told["chunk_grid"]["configuration"].update(chunk_shape=[1]),
        ),
        "too large, or too many",
    ),
    "rows that others have not": (
        "features",
        lambda told: told["shape"].__setitem__(0, 300),
        "where others have 300",
    ),
    "a codec of somebody else's": (
        "label",
        lambda told: told["codecs"].insert(1, {"name": "numcodecs.lzma", "configuration": {}}),
        "which are not ours",
    ),
    "no checksum": ("label", lambda told: told["codecs"].pop(), "which are not ours"),
    "a storage transformer": (
        "label",
        lambda told: told.update(storage_transformers=[{"name": "x"}]),
        "which are not ours",
    ),
    "another type": (
        "image",
        lambda told: told.update(data_type="int64"),
        "has type int64 and not int32",
    ),
    "no list of sizes": ("image", lambda told: told.update(shape=None), "not what Zarr writes"),
}


@pytest.mark.parametrize("lie", LIES)
def test_descriptions_that_cannot_be_true(data, lie):
    name, change, told = LIES[lie]
    rewrite(data / name / "zarr.json", change, digest=True)
    with pytest.raises(CorruptedError, match=told):
        open_dataset(data)


def put_chunk(path: Path, content: bytes) -> None:
    """With a right checksum, as Zarr makes it."""
    packed = np.frombuffer(content, dtype=np.uint8)
    made = path.parent.parent.parent.parent / "checksummed.zarr"
    zarr.create_array(made, data=packed, chunks=packed.shape, compressors=Crc32cCodec())
    shutil.copy(made / "c/0", path)


def zeros_packed(size: int, *, tells: bool = True) -> bytes:
    """A zstd frame of ``size`` zeros, a multiple of 128 KiB: 4 bytes for each of those."""
    block = 1 << 17
    count = size // block
    head = b"\xe0" + struct.pack("<Q", size) if tells else b"\x00\x38"
    headers = [(block << 3 | 1 << 1 | (number == count - 1)) for number in range(count)]
    return b"\x28\xb5\x2f\xfd" + head + b"".join(
        header.to_bytes(3, "little") + b"\0" for header in headers
    )  # fmt: skip


@pytest.mark.parametrize("tells", [True, False])
def test_a_decompression_bomb_is_rejected_unread(data, tells):
    assert numcodecs.Zstd().decode(zeros_packed(1 << 20, tells=tells)) == bytes(1 << 20)
    put_chunk(data / "label/c/0", zeros_packed(16 << 30, tells=tells))
    with pytest.raises(CorruptedError, match=r"chunk 0 of label .*it would decompress to"):
        open_dataset(data)["label"].compute(scheduler="sync")


def test_stated_sizes_of_compressed_chunks():
    for size in (0, 1, 255, 256, 65_791, 65_792, 200_000):
        head = bytes(numcodecs.Zstd().encode(bytes(size)))[:18]
        assert verified._decoded_size(head) == size
        for end in range(5):
            with pytest.raises(CorruptedError, match="not compressed by zstd"):
                verified._decoded_size(head[:end])


VALUES = {
    "image": (lambda values: values.__setitem__(3, 99), "image is out of range"),
    "label": (lambda values: values.__setitem__(3, 7), "label is out of range"),
    "weight": (lambda values: values.__setitem__(3, -1), "weight is out of range"),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_out_of_range(data, name):
    change, told = VALUES[name]
    array = zarr.open_group(data, mode="r+")[name]
    values = array[...]
    change(values)
    array[...] = values
    with pytest.raises(CorruptedError, match=f"{told} in 1 row.*the first is 3"):
        GPGC().fit(open_dataset(data))


def test_sizes_that_no_photo_has(data):
    zarr.open_group(data, mode="r+")["height"][2] = 2**31 - 1
    with pytest.raises(CorruptedError, match="height or width is out of range"):
        open_dataset(data)


def test_maps_that_name_superpixels_there_are_not(data, tmp_path):
    zarr.open_group(data, mode="r+")["segments"][2, 5, 5] = 4000
    found = open_dataset(data)
    with pytest.raises(CorruptedError, match="a map names superpixel 4000"):
        write_masks(found, found["label"].values, tmp_path / "out")


def test_a_models_lost_array_is_missed(fitted, tmp_path):
    path = shutil.copytree(fitted, tmp_path / "model.zarr")
    shutil.rmtree(path / "confidence_")
    with pytest.raises(
        CorruptedError, match=r"model\.zarr is corrupted: it lacks confidence_; restore"
    ):
        load(path)
