"""Datasets and models that are damaged, or lie: refused by name, or as good as new; never wrong."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import fsspec
import numcodecs
import numpy as np
import pytest
import zarr
from PIL import Image
from zarr.codecs import Crc32cCodec
from zarr.storage import LocalStore, WrapperStore

from gpgc_dask import GP, GPGC, MarginSVM, load, open_dataset
from gpgc_dask.cli import EXPECTED
from gpgc_dask.core.errors import CorruptedError, InputError, UnusableFileError
from gpgc_dask.data.schema import VARIABLES
from gpgc_dask.imaging.masks import MaskFormat, read_mask
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.imaging.photos import Orientation, read_photo
from gpgc_dask.models.review import rank
from gpgc_dask.pipelines.ingest import assemble, ingest
from gpgc_dask.results.report import write_report
from gpgc_dask.results.selection import write_folder
from gpgc_dask.storage.integrity import DIGESTS, digests
from gpgc_dask.storage.location import Location, write_whole
from gpgc_dask.storage.verified import GuardedArray
from tests.support.images import save_pairs, tree_bytes
from tests.support.ingesting import QUICK, CrashError, crash_after

pytestmark = pytest.mark.newest

DATASET_TRIES, MODEL_TRIES = 500, 200
HANGS_AFTER = 60
"""Seconds for a try, which takes a tenth of one."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A dataset of 12 photos in several chunks, as it should be."""
    folder = tmp_path_factory.mktemp("sound")
    images, masks = save_pairs(folder, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpgc_dask.data.writing.CHUNK_BYTES", 64 * 31 * 4)
        patch.setattr("gpgc_dask.data.writing.SEGMENT_BYTES", 4 * 2 * 60 * 80)
        ingest(images, masks, folder / "data.zarr", **QUICK)
    return folder / "data.zarr"


@pytest.fixture
def data(sound, tmp_path):
    """A copy of it to spoil."""
    return shutil.copytree(sound, tmp_path / "data.zarr")


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


# -- chunks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", [flip, halve, empty, four_zeros, os.unlink])
@pytest.mark.parametrize("kind", [GPGC, GP, MarginSVM])
def test_a_fit_names_the_damaged_chunk(data, sound, spoil, kind):
    spoil(data / "features/c/1/0")
    images = images_of_rows(sound, 64, 127)
    told = rf"chunk 1 of features .*rows 64 … 127, images {images[0]} … {images[-1]} "
    with pytest.raises(CorruptedError, match=told) as raised:
        kind().fit(open_dataset(data))
    assert str(data) in str(raised.value)
    assert "gpgc ingest" in str(raised.value)


@pytest.mark.parametrize("spoil", [flip, os.unlink])
def test_a_cluster_names_the_damaged_chunk(client, data, spoil):
    spoil(data / "features/c/2/0")
    with pytest.raises(
        CorruptedError, match=r"chunk 2 of features .*rows 128 … 191, images photo_"
    ):
        GPGC().fit(open_dataset(data))


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_the_program_tells_it_in_one_line(data, tmp_path, run, workers):
    flip(data / "features/c/0/0")
    code, out, err = run("fit", data, "-o", tmp_path / "model.zarr", *workers)
    (line,) = [line for line in err.splitlines() if "damaged" in line]
    assert code == 1
    assert "chunk 0 of features" in line
    assert "photo_000.jpg" in line
    assert "Traceback" not in err
    assert not out
    assert not list(tmp_path.glob("model*"))


@pytest.mark.parametrize("name", [name for name in VARIABLES if "skipped" not in name])
@pytest.mark.parametrize("spoil", [flip, os.unlink])
def test_every_array_is_guarded(data, name, spoil):
    path = next(path for path in sorted((data / name / "c").rglob("*")) if path.is_file())
    spoil(path)
    with pytest.raises(CorruptedError, match=rf"chunk 0 of {name} cannot be read"):
        open_dataset(data).compute(scheduler="sync")


def test_predictions_never_come_of_a_lost_chunk(sound, data):
    model = GPGC(redundancy=1.0).fit(open_dataset(sound))
    found = open_dataset(data)
    (data / "features/c/3/0").unlink()
    for use in (
        lambda: model.predict(found).compute(),
        lambda: model.leave_group_out(found, return_agreement=True),
        lambda: write_masks(found, model.predict(found), data.parent / "out"),
    ):
        with pytest.raises(CorruptedError, match=r"chunk 3 of features .*it is missing"):
            use()
    assert not (data.parent / "out").exists()


@pytest.mark.parametrize("spoil", [None, b"", b"x" * 7940])
def test_a_chunk_lost_in_another_kind_of_store(sound, spoil):
    url = "memory://damage/data.zarr"
    files = fsspec.filesystem("memory")
    files.pipe({f"{url}/{name}": content for name, content in tree_bytes(sound).items()})
    assert GP(redundancy=1.0).fit(open_dataset(url)).converged_
    if spoil is None:
        files.rm_file(f"{url}/features/c/1/0")
    else:
        files.pipe_file(f"{url}/features/c/1/0", spoil)
    with pytest.raises(
        CorruptedError, match=rf"{url} .*chunk 1 of features .*rows 64 … 127, images"
    ):
        GP(redundancy=1.0).fit(open_dataset(url))


def test_every_chunk_is_written(tmp_path):
    """Also those that hold nothing but what a missing one would read as."""
    images, masks = save_pairs(tmp_path, 3)
    for path in masks.iterdir():
        Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(path)
    ingest(images, masks, tmp_path / "data.zarr", **QUICK)
    assert not open_dataset(tmp_path / "data.zarr")["label"].values.any()
    assert (tmp_path / "data.zarr/label/c/0").exists()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (1, r"older gpgc_dask \(format 1, this one reads format 2\): create it again"),
        (99, r"newer gpgc_dask \(format 99, this one reads format 2\): upgrade gpgc_dask"),
    ],
)
def test_other_versions_are_rejected(version, message, sound, fitted, tmp_path):
    def change(group) -> None:
        group["attributes"]["format_version"] = version

    for source, read in ((sound, open_dataset), (fitted, load)):
        copy = shutil.copytree(source, tmp_path / source.name)
        rewrite(copy / "zarr.json", change)
        with pytest.raises(InputError, match=message):
            read(copy)


@pytest.mark.parametrize("kind", ["features", "segments", "rows"])
def test_what_an_unfinished_ingest_keeps_is_guarded_too(sound, tmp_path, monkeypatch, kind):
    folders, target = (sound.parent / "images", sound.parent / "masks"), tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 0)
        with pytest.raises(CrashError):
            ingest(*folders, target, **QUICK)
    part = min((target / ".ingest/parts").glob(f"*.{kind}"))
    flip(part, part.stat().st_size // 2)
    with pytest.raises(CorruptedError, match=r"is damaged: remove .*--resume"):
        ingest(*folders, target, resume=True, **QUICK)
    for path in part.parent.glob(f"{part.stem}.*"):
        path.unlink()
    ingest(*folders, target, resume=True, **QUICK)
    ingest(*folders, tmp_path / "whole.zarr", **QUICK)
    assert tree_bytes(target) == tree_bytes(tmp_path / "whole.zarr")


class SpoilsOnce(WrapperStore):
    """A store behind a bad line: its first chunk arrives with a bit flipped."""

    spoilt = False

    async def get(self, key, prototype=None, byte_range=None):
        found = await self._store.get(key, prototype, byte_range)
        if "/c/" not in key or self.spoilt:
            return found
        self.spoilt = True
        content = found.as_numpy_array().copy()
        content[100] ^= 1
        return type(found).from_array_like(content)


def test_what_was_spoilt_on_its_way_is_read_again(sound):
    store = SpoilsOnce(LocalStore(sound, read_only=True))
    group = zarr.open_group(store, mode="r")
    array = GuardedArray(group, "features", str(sound), "do something")
    right = zarr.open_group(sound, mode="r")["features"][60:70]
    np.testing.assert_array_equal(array[60:70], right)
    assert store.spoilt


class LineError(Exception):
    """As clients of object stores raise of their own kind."""


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), LineError("gone")])
def test_a_fault_of_the_line_is_not_taken_for_damage(sound, error):
    class Unreachable(WrapperStore):
        async def get(self, key, prototype=None, byte_range=None):
            if "/c/" in key:
                raise error
            return await self._store.get(key, prototype, byte_range)

    group = zarr.open_group(Unreachable(LocalStore(sound, read_only=True)), mode="r")
    with pytest.raises(type(error), match="gone"):
        GuardedArray(group, "features", str(sound), "do something")[60:70]


# -- NaN ---------------------------------------------------------------------------------------


def store_nan(data: Path, row: int) -> None:
    zarr.open_group(data, mode="r+")["features"][row, 3] = np.nan


@pytest.mark.parametrize("kind", [GPGC, GP, MarginSVM])
def test_nan_in_one_chunk_names_rows_and_images(data, kind):
    store_nan(data, 70)
    (image,) = images_of_rows(data, 70, 70)
    with pytest.raises(ValueError, match=rf"NaN or infinity in row\(s\) 70.*group\(s\) {image}"):
        kind().fit(open_dataset(data))


def test_nan_on_a_cluster_names_rows_and_images(client, data):
    store_nan(data, 130)
    (image,) = images_of_rows(data, 130, 130)
    with pytest.raises(ValueError, match=rf"row\(s\) 130, column\(s\) 3, group\(s\) {image}"):
        GPGC().fit(open_dataset(data))


def test_rows_are_those_of_the_dataset_where_images_are_left_out(data):
    found = open_dataset(data)
    rows = np.flatnonzero(found["image"].values > 0)
    found["weight"] = found["weight"] * (found["image"] > 0)
    store_nan(data, int(rows[5]))
    with (
        pytest.warns(UserWarning, match=r"left out of the fit: photo_000\.jpg"),
        pytest.raises(ValueError, match=rf"row\(s\) {rows[5]}, .*group\(s\) photo_001\.jpg"),
    ):
        GPGC().fit(found)


def test_nan_has_no_class(sound, data):
    model = GPGC(redundancy=1.0).fit(open_dataset(sound))
    store_nan(data, 70)
    (image,) = images_of_rows(data, 70, 70)
    found = open_dataset(data)
    with pytest.raises(ValueError, match=r"NaN or infinity in row\(s\) 70:"):
        model.predict(found).compute()
    with pytest.raises(ValueError, match=rf"row\(s\) 70.*group\(s\) {image}"):
        model.leave_group_out(found, return_agreement=True)


def test_groups_of_arrays_are_named(tmp_path):
    X = np.random.default_rng(0).standard_normal((40, 3))
    y, groups = np.arange(40) % 2, np.repeat(["a", "b", "c", "d"], 10)
    X[25, 1] = np.inf
    with pytest.raises(ValueError, match=r"row\(s\) 25, column\(s\) 1, group\(s\) c: drop"):
        GPGC().fit(X, y, groups=groups)


# -- what describes the arrays -----------------------------------------------------------------


def rewrite(path: Path, change, *, digest: bool = False) -> None:
    """Change a description; with ``digest`` as somebody would who means to deceive."""
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))
    if digest:
        root = (path.parent if path.parent.suffix else path.parent.parent) / "zarr.json"
        group = json.loads(root.read_text())
        known = {key: group["attributes"][key] for key in group["attributes"] if key != DIGESTS}
        group["attributes"][DIGESTS] = digests(Location.of(root.parent), known, VARIABLES)
        root.write_text(json.dumps(group))


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
def test_a_decompression_bomb_is_refused_unread(data, tells):
    assert numcodecs.Zstd().decode(zeros_packed(1 << 20, tells=tells)) == bytes(1 << 20)
    put_chunk(data / "label/c/0", zeros_packed(16 << 30, tells=tells))
    with pytest.raises(CorruptedError, match=r"chunk 0 of label .*it would unpack to"):
        open_dataset(data)["label"].compute(scheduler="sync")


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


# -- pictures ----------------------------------------------------------------------------------


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
    with pytest.raises(UnusableFileError, match="damaged"):
        read_photo(path, 512)


# -- paths -------------------------------------------------------------------------------------


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
    with pytest.raises(CorruptedError, match="not followed out of its folder"):
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


# -- full disks --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(sound, tmp_path_factory):
    """A reviewed model on disk."""
    path = tmp_path_factory.mktemp("model") / "model.zarr"
    dataset = open_dataset(sound)
    model = GPGC(redundancy=1.0).fit(dataset)
    model.review(dataset)
    model.save(path)
    return path


@pytest.fixture
def disk(tmp_path):
    """A file system of 256 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path, spare: int = 0) -> None:
    """Leave so many bytes free."""
    there = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(there.f_bavail * there.f_bsize - spare))


def use(disk: Path) -> dict[str, bytes]:
    return {name: body for name, body in tree_bytes(disk).items() if name != "filler"}


def test_a_full_disk_keeps_the_older_model(fitted, disk):
    model = load(fitted)
    write_whole(disk / "small", b"x")
    shutil.copytree(fitted, disk / "model.zarr", copy_function=shutil.copyfile)
    fill(disk)
    before = use(disk)
    with pytest.raises(OSError, match=r"no space is left: make room.*model\.zarr"):
        model.save(disk / "model.zarr")
    assert use(disk) == before
    np.testing.assert_array_equal(load(disk / "model.zarr").coef_, model.coef_)


def test_a_full_disk_has_no_half_of_anything(sound, fitted, disk, run):
    dataset, model = open_dataset(sound), load(fitted)
    fill(disk)
    for make in (
        lambda: model.save(disk / "new.zarr"),
        lambda: write_report(dataset, model, disk / "report.html"),
        lambda: write_masks(dataset, dataset["label"].values, disk / "masks"),
        lambda: write_folder(
            rank(model.review_), model.dataset_["source"], disk / "clean", copy=True
        ),
    ):
        with pytest.raises(OSError, match=r"(?i)no space (is )?left.*disk/"):
            make()
    for command, out in (("rank", "rank.csv"), ("select", "keep.txt")):
        top = ["--top", "50%"] if command == "select" else []
        code, _, err = run(command, fitted, *top, "-o", disk / out)
        assert code == 1
        assert "no space is left: make room" in err
        assert str(disk / out) in err
    code, _, err = run("predict", fitted, sound.parent / "images", "-o", disk / "predicted")
    assert code == 1
    assert f"no space is left at {disk / 'predicted'}" in err
    assert [path for path in disk.rglob("*") if path.is_file()] == [disk / "filler"]


def test_a_disk_that_fills_up_half_way(sound, fitted, disk):
    """What was written before is whole, and there is nothing else."""
    dataset, model = open_dataset(sound), load(fitted)
    fill(disk, spare=16384)
    with pytest.raises(OSError, match="no space is left"):
        write_masks(dataset, dataset["label"].values, disk / "masks")
    written = [path for path in disk.rglob("*") if path.is_file() and path.name != "filler"]
    assert written
    for path in written:
        assert Image.open(path).size == (80, 60)
        path.unlink()
    with pytest.raises(OSError, match="no space is left"):
        model.save(disk / "new.zarr")
    assert [path for path in disk.rglob("*") if path.is_file()] == [disk / "filler"]


# -- at random ---------------------------------------------------------------------------------


def flip_bits(content: bytearray, rng: random.Random) -> bytearray | None:
    for _ in range(rng.choice([1, 1, 4])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def replace_bytes(content: bytearray, rng: random.Random) -> bytearray | None:
    start = rng.randrange(len(content))
    for place in range(start, min(start + rng.choice([1, 8, 64]), len(content))):
        content[place] = rng.randrange(256)
    return content


def zero_bytes(content: bytearray, rng: random.Random) -> bytearray | None:
    start, length = rng.randrange(len(content)), rng.choice([1, 16, 4096])
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


def cut_off(content: bytearray, rng: random.Random) -> bytearray | None:
    return content[: rng.randrange(len(content))]


def leave_out(content: bytearray, rng: random.Random) -> bytearray | None:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.choice([1, 5, 100]) :]


def add_bytes(content: bytearray, rng: random.Random) -> bytearray | None:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.randbytes(rng.choice([1, 5, 100])) + content[start:]


def delete(content: bytearray, rng: random.Random) -> bytearray | None:
    return None


SPOILS = (flip_bits, replace_bytes, zero_bytes, cut_off, leave_out, add_bytes, delete)


def spoilt_at_random(folder: Path, tries: int, judge) -> tuple[int, int]:
    """(complaints, right results) of ``judge`` on a folder with one file spoilt at a time.

    ``judge`` raises or returns whether all is as it should be. Anything but a foreseen complaint
    that names the folder, or the right result, fails the test, and so does a hang.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    rng = random.Random(0)
    complaints = 0
    for number in range(tries):
        path, spoil = rng.choice(files), rng.choice(SPOILS)
        content = path.read_bytes()
        spoilt = spoil(bytearray(content), rng)
        told = f"try {number}: {spoil.__name__} {path.relative_to(folder)}"
        path.unlink() if spoilt is None else path.write_bytes(spoilt)
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        try:
            outcome = judge()
        except Exception as error:
            outcome = error
        finally:
            faulthandler.cancel_dump_traceback_later()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if isinstance(outcome, Exception):
            complaints += 1
            assert isinstance(outcome, EXPECTED), f"{told}: unexpected {outcome!r}"
            assert str(folder) in str(outcome), f"{told}: {outcome!r} does not name it"
        else:
            assert outcome, f"{told}: another result, and no complaint"
    assert judge(), "the folder is not what it was"
    return complaints, tries - complaints


def test_a_dataset_spoilt_at_random(data, sync):
    def judge() -> bool:
        found = open_dataset(data)
        maps = found["segments"].values
        model = GPGC(redundancy=1.0).fit(found)
        return (
            model.log_evidence_ == right.log_evidence_
            and np.array_equal(model.noise_variance_, right.noise_variance_)
            and np.array_equal(maps, right_maps)
        )

    dataset = open_dataset(data)
    right, right_maps = GPGC(redundancy=1.0).fit(dataset), dataset["segments"].values
    complaints, _ = spoilt_at_random(data, DATASET_TRIES, judge)
    assert complaints > 0.9 * DATASET_TRIES


def test_a_model_spoilt_at_random(fitted, sound, tmp_path):
    def judge() -> bool:
        model = load(path)
        return (
            np.array_equal(model.predict_proba(X), right)
            and model.review_.equals(reviewed)
            and np.array_equal(model.leave_out.values, left_out)
            and np.array_equal(model.noise_variance_, noise)
        )

    path = shutil.copytree(fitted, tmp_path / "model.zarr")
    X, model = open_dataset(sound)["features"].values, load(path)
    right, reviewed, noise = model.predict_proba(X), model.review_, model.noise_variance_
    left_out = model.leave_out.values
    complaints, _ = spoilt_at_random(path, MODEL_TRIES, judge)
    assert complaints > 0.9 * MODEL_TRIES


def test_a_models_lost_array_is_missed(fitted, tmp_path):
    path = shutil.copytree(fitted, tmp_path / "model.zarr")
    shutil.rmtree(path / "confidence_")
    with pytest.raises(
        CorruptedError, match=r"model\.zarr is damaged: it lacks confidence_; restore"
    ):
        load(path)
