"""Chunks that are corrupted or missing: the error names them, and no result is wrong."""

from __future__ import annotations

import os
import shutil

import fsspec
import numpy as np
import pytest
import zarr
from PIL import Image
from zarr.storage import LocalStore, WrapperStore

from gpgc_dask import GP, GPGC, MarginSVM, load, open_dataset
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.schema import FORMAT_VERSION, VARIABLES
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.pipelines.ingest import RunOptions, assemble, ingest
from gpgc_dask.storage.verified import VerifiedArray
from tests.support.corruption import empty, flip, four_zeros, halve, images_of_rows, rewrite
from tests.support.images import save_pairs, tree_bytes
from tests.support.ingesting import QUICK, CrashError, crash_after

pytestmark = pytest.mark.newest

EMPTY = ("skipped", "object")
"""Starts of the names of arrays that have no entries here, and therefore no chunks."""


@pytest.mark.parametrize("spoil", [flip, halve, empty, four_zeros, os.unlink])
@pytest.mark.parametrize("kind", [GPGC, GP, MarginSVM])
def test_a_fit_names_the_corrupted_chunk(data, sound, spoil, kind):
    spoil(data / "features/c/1/0")
    images = images_of_rows(sound, 64, 127)
    told = rf"chunk 1 of features .*rows 64 … 127, images {images[0]} … {images[-1]} "
    with pytest.raises(CorruptedError, match=told) as raised:
        kind().fit(open_dataset(data))
    assert str(data) in str(raised.value)
    assert "gpgc ingest" in str(raised.value)


@pytest.mark.parametrize("spoil", [flip, os.unlink])
def test_a_cluster_names_the_corrupted_chunk(client, data, spoil):
    spoil(data / "features/c/2/0")
    with pytest.raises(
        CorruptedError, match=r"chunk 2 of features .*rows 128 … 191, images photo_"
    ):
        GPGC().fit(open_dataset(data))


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_the_program_reports_it_in_one_line(data, tmp_path, run, workers):
    flip(data / "features/c/0/0")
    code, out, err = run("fit", data, "-o", tmp_path / "model.zarr", *workers)
    (line,) = [line for line in err.splitlines() if "corrupted" in line]
    assert code == 2
    assert "chunk 0 of features" in line
    assert "photo_000.jpg" in line
    assert "Traceback" not in err
    assert not out
    assert not list(tmp_path.glob("model*"))


@pytest.mark.parametrize("name", [name for name in VARIABLES if not name.startswith(EMPTY)])
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
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    assert not open_dataset(tmp_path / "data.zarr")["label"].values.any()
    assert (tmp_path / "data.zarr/label/c/0").exists()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (1, r"older gpgc_dask \(format 1, this one reads format {own}\): create it again"),
        (99, r"newer gpgc_dask \(format 99, this one reads format {own}\): upgrade gpgc_dask"),
    ],
)
def test_other_versions_are_rejected(version, message, sound, fitted, tmp_path):
    def change(group) -> None:
        group["attributes"]["format_version"] = version

    for source, read, own in ((sound, open_dataset, FORMAT_VERSION), (fitted, load, 3)):
        copy = shutil.copytree(source, tmp_path / source.name)
        rewrite(copy / "zarr.json", change)
        with pytest.raises(InputError, match=message.format(own=own)):
            read(copy)


@pytest.mark.parametrize("kind", ["features", "segments", "mask", "rows"])
def test_what_an_unfinished_ingest_keeps_is_guarded_too(sound, tmp_path, monkeypatch, kind):
    folders, target = (sound.parent / "images", sound.parent / "masks"), tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 0)
        with pytest.raises(CrashError):
            ingest(*folders, target, recipe=QUICK)
    part = min((target / ".ingest/parts").glob(f"*.{kind}"))
    flip(part, part.stat().st_size // 2)
    with pytest.raises(CorruptedError, match=r"is corrupted: remove .*--resume"):
        ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    for path in part.parent.glob(f"{part.stem}.*"):
        path.unlink()
    ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    ingest(*folders, tmp_path / "whole.zarr", recipe=QUICK)
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


def test_what_was_corrupted_on_its_way_is_read_again(sound):
    store = SpoilsOnce(LocalStore(sound, read_only=True))
    group = zarr.open_group(store, mode="r")
    array = VerifiedArray(group, "features", str(sound), "do something")
    right = zarr.open_group(sound, mode="r")["features"][60:70]
    np.testing.assert_array_equal(array[60:70], right)
    assert store.spoilt


class LineError(Exception):
    """As clients of object stores raise of their own kind."""


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), LineError("gone")])
def test_a_network_fault_is_not_taken_for_corruption(sound, error):
    class Unreachable(WrapperStore):
        async def get(self, key, prototype=None, byte_range=None):
            if "/c/" in key:
                raise error
            return await self._store.get(key, prototype, byte_range)

    group = zarr.open_group(Unreachable(LocalStore(sound, read_only=True)), mode="r")
    with pytest.raises(type(error), match="gone"):
        VerifiedArray(group, "features", str(sound), "do something")[60:70]
