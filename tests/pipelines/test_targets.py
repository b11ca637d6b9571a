"""Where a dataset goes: what is there is kept, folders, links, memory, object stores."""

from __future__ import annotations

import shutil

import pytest
import xarray as xr

from gpgc_dask import open_dataset
from gpgc_dask.core.errors import PipelineError
from gpgc_dask.pipelines import batches
from gpgc_dask.pipelines.ingest import Recipe, RunOptions, assemble, ingest, work
from gpgc_dask.storage import location as storage
from tests.support.images import save_pair, save_pairs, tree_bytes
from tests.support.ingesting import QUICK, CrashError, crash_after, truncate
from tests.support.object_store import object_store

pytestmark = pytest.mark.newest


def test_resume_and_overwrite_exclude_each_other():
    with pytest.raises(ValueError, match=r"resume keeps .* overwrite replaces it: choose one"):
        RunOptions(resume=True, overwrite=True)


def test_an_existing_dataset_is_kept_by_default(folders, reference, tmp_path):
    target = tmp_path / "data.zarr"
    shutil.copytree(reference, target)
    before = tree_bytes(target)
    with pytest.raises(FileExistsError, match="--overwrite"):
        ingest(*folders, target, recipe=QUICK)
    report = ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    assert report.resumed == 30
    with pytest.raises(PipelineError, match="with other settings: recipe"):
        ingest(
            *folders,
            target,
            recipe=Recipe(backbone="colour", superpixels=30),
            run=RunOptions(resume=True),
        )
    assert tree_bytes(target) == before
    report = ingest(
        *folders,
        target,
        recipe=Recipe(backbone="colour", superpixels=10),
        run=RunOptions(overwrite=True),
    )
    assert open_dataset(target).attrs["recipe"]["superpixels"] == 10
    assert report.resumed == 0


def test_bad_input_does_not_cost_the_dataset_that_is_there(folders, reference, tmp_path):
    target = tmp_path / "data.zarr"
    shutil.copytree(reference, target)
    before = tree_bytes(target)
    with pytest.raises(NotADirectoryError):
        ingest(
            tmp_path / "nowhere", folders[1], target, recipe=QUICK, run=RunOptions(overwrite=True)
        )
    with pytest.raises(ValueError, match="backbone"):
        ingest(*folders, target, recipe=Recipe(backbone="alexnet"), run=RunOptions(overwrite=True))
    assert tree_bytes(target) == before


def test_work_is_never_lost_when_there_is_much_of_it(folders, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MIN_TASKS", 1)
    monkeypatch.setattr(batches, "TASKS_PER_THREAD", 1)
    monkeypatch.setattr(work, "IMAGES_PER_TASK", 2)
    assert ingest(*folders, tmp_path / "data.zarr", recipe=QUICK).images == 30
    assert tree_bytes(tmp_path / "data.zarr") == tree_bytes(reference)


def test_parts_that_vanish_are_noticed(folders, tmp_path, monkeypatch):
    def forgetful(location, images):
        if not next(count):
            original(location, images)

    original, count = work.write_part, iter([0, 1, 0, 0])
    monkeypatch.setattr(work, "write_part", forgetful)
    with pytest.raises(PipelineError, match=r"[68] finished images are gone"):
        ingest(*folders, tmp_path / "data.zarr", recipe=QUICK)


def test_the_last_ingest_to_come_has_the_target(folders, reference, tmp_path):
    target = tmp_path / "data.zarr"
    state = {}

    def intrude(progress):
        if progress.done >= 8 and not state:
            state["second"] = ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))

    with pytest.raises(PipelineError, match="another ingest writes to"):
        ingest(*folders, target, recipe=QUICK, run=RunOptions(progress=intrude))
    assert state["second"].images == 30
    assert tree_bytes(target) == tree_bytes(reference)


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_a_stopped_overwrite_can_be_resumed(folders, reference, tmp_path, monkeypatch, calls):
    """Whatever was removed by then: never half a dataset that passes for a whole one."""
    target = tmp_path / "data.zarr"
    ingest(*folders, target, recipe=Recipe(backbone="colour", superpixels=10))
    before = tree_bytes(target)
    with monkeypatch.context() as patch:
        crash_after(patch, storage, "_remove_local", calls)
        with pytest.raises(CrashError):
            ingest(*folders, target, recipe=QUICK, run=RunOptions(overwrite=True))
    if calls == 0:
        assert open_dataset(target).attrs["recipe"]["superpixels"] == 10
        assert tree_bytes(target).items() > before.items()
        ingest(*folders, target, recipe=QUICK, run=RunOptions(overwrite=True))
    else:
        with pytest.raises(ValueError, match="is not finished"):
            open_dataset(target)
        ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    assert tree_bytes(target) == tree_bytes(reference)


def test_a_link_as_target_stays_a_link(folders, reference, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data.zarr").symlink_to(tmp_path / "disk", target_is_directory=True)
    ingest(*folders, tmp_path / "data.zarr", recipe=Recipe(backbone="colour", superpixels=10))
    ingest(*folders, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(overwrite=True))
    assert (tmp_path / "data.zarr").is_symlink()
    assert tree_bytes(tmp_path / "disk") == tree_bytes(reference)


def test_a_target_that_looks_like_a_chain_of_urls(folders, reference, tmp_path):
    ingest(*folders, tmp_path / "a::b.zarr", recipe=QUICK)
    assert tree_bytes(tmp_path / "a::b.zarr") == tree_bytes(reference)
    assert open_dataset(tmp_path / "a::b.zarr").sizes["photo"] == 30


def test_a_clients_owner_keeps_it(client, folders, tmp_path):
    ingest(*folders, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(client=client))
    assert client.submit(lambda: 1).result() == 1


def test_a_finished_dataset_does_not_hide_changed_images(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    truncate(images / "photo_001.jpg", 700)
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(on_error="skip"))
    ingest(
        images,
        masks,
        tmp_path / "data.zarr",
        recipe=QUICK,
        run=RunOptions(on_error="skip", resume=True),
    )
    save_pair(tmp_path, "photo_001", 1)
    with pytest.raises(
        PipelineError, match=r"changed since: 0 more, 0 fewer, other content, groups or annotators"
    ):
        ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(resume=True))


def test_a_finished_dataset_does_not_hide_new_images(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    save_pair(tmp_path, "new", 9)
    with pytest.raises(PipelineError, match="files have changed since: 1 more, 0 fewer"):
        ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(resume=True))


@pytest.mark.parametrize("overwrite", [False, True])
def test_other_things_are_never_overwritten(folders, tmp_path, overwrite):
    folder, file = tmp_path / "thesis", tmp_path / "letter.txt"
    folder.mkdir()
    (folder / "chapter.tex").write_text("precious")
    file.write_text("precious")
    for target in (folder, file):
        with pytest.raises(FileExistsError, match="not a gpgc_dask dataset"):
            ingest(*folders, target, recipe=QUICK, run=RunOptions(overwrite=overwrite))
    assert (folder / "chapter.tex").read_text() == file.read_text() == "precious"


def test_a_target_in_memory(folders, reference):
    ingest(*folders, "memory://tests/data.zarr", recipe=QUICK, run=RunOptions(overwrite=True))
    found = open_dataset("memory://tests/data.zarr")
    xr.testing.assert_identical(found.load(), open_dataset(reference).load())
    with pytest.raises(FileExistsError, match=r"memory://tests/data.zarr exists"):
        ingest(*folders, "memory://tests/data.zarr", recipe=QUICK)


def test_a_target_in_memory_needs_workers_in_this_process(client, folders):
    with pytest.raises(ValueError, match="exists in this process only"):
        ingest(*folders, "memory://tests/other.zarr", recipe=QUICK)
    with pytest.raises(FileNotFoundError):
        open_dataset("memory://tests/other.zarr")


@pytest.fixture(scope="module")
def bucket():
    """An S3 server on this machine: (URL, storage options)."""
    pytest.importorskip("s3fs")
    with object_store() as store:
        yield "s3://bucket", {"key": "k", "secret": "s", "endpoint_url": store.url}


def test_a_target_in_an_object_store(bucket, folders, reference, monkeypatch, small_chunks):
    url, options = f"{bucket[0]}/data.zarr", bucket[1]
    given = {"storage_options": options, "recipe": QUICK}
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 7)
        with pytest.raises(CrashError):
            ingest(*folders, url, **given)
    with pytest.raises(FileExistsError, match="--resume"):
        ingest(*folders, url, **given)
    ingest(*folders, url, **given, run=RunOptions(resume=True))
    found = open_dataset(url, storage_options=options)
    xr.testing.assert_identical(found.load(), open_dataset(reference).load())


def test_an_unknown_protocol_reports_what_is_missing(folders):
    with pytest.raises(ValueError, match="nothing://x cannot be reached"):
        ingest(*folders, "nothing://x", recipe=QUICK)
