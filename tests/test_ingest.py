"""Folders to datasets: whole, resumable, the same whatever the workers; and what bad files do."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from gpgc_dask import open_dataset, storage
from gpgc_dask.cluster import connected
from gpgc_dask.imaging import IngestError, assemble, ingest, paint_image, work
from tests.images import draw, save_pair, save_pairs, tree_bytes

QUICK = {"backbone": "colour", "superpixels": 20}
COMMAND = [sys.executable, "-m", "gpgc_dask", "ingest"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_pairs(tmp_path_factory.mktemp("photos"), 30)


@pytest.fixture(scope="module")
def reference(folders, tmp_path_factory):
    """The dataset of ``folders``, made at a stroke by threads of this process."""
    target = tmp_path_factory.mktemp("reference") / "data.zarr"
    ingest(*folders, target, **QUICK)
    return target


@pytest.fixture
def small_chunks(monkeypatch):
    """Several chunks also of small data, so that seams are exercised."""
    monkeypatch.setattr("gpgc_dask.dataset.CHUNK_BYTES", 64 * 31 * 4)
    monkeypatch.setattr("gpgc_dask.dataset.SEGMENT_BYTES", 4 * 2 * 60 * 80)


# -- what a dataset holds ----------------------------------------------------------------------


def test_the_dataset(reference, folders):
    found = open_dataset(reference)
    n = found.sizes["superpixel"]
    assert found.sizes["photo"] == 30
    assert found["features"].shape == (n, 14 + 16 + 1)
    assert found["features"].dtype == np.float32
    assert np.all(np.diff(found["image"].values) >= 0)
    assert [str(name) for name in found["image_name"].values] == sorted(
        path.name for path in folders[0].iterdir()
    )
    groups = found["feature_group"].values.tolist()
    assert groups == ["appearance"] * 14 + ["position"] * 16 + ["constant"]
    area = np.bincount(found["image"].values, found["pixels"].values)
    np.testing.assert_array_equal(area, 60 * 80)
    assert found.attrs["classes"] == ["background", "foreground"]
    assert found.attrs["backbone"]["name"] == "colour"
    assert found.attrs["recipe"]["superpixels"] == 20
    assert not [path for path in reference.rglob("*") if ".ingest" in path.parts]


def test_plain_xarray_opens_it(reference):
    plain = xr.open_zarr(reference, consolidated=False)
    np.testing.assert_array_equal(plain["label"], open_dataset(reference)["label"])
    assert plain["features"].dims == ("superpixel", "feature")


def test_labels_are_the_masks_majority(reference):
    found = open_dataset(reference)
    for photo in (0, 17):
        _, mask = draw(photo)
        painted = paint_image(found, np.arange(found.sizes["superpixel"]), photo)
        assert painted.shape == mask.shape
        for row in np.unique(painted):
            assert found["label"].values[row] == (mask[painted == row].mean() > 0.5)
            assert found["pixels"].values[row] == (painted == row).sum()


def test_features_are_those_of_the_image_alone(reference, folders):
    from gpgc_dask.imaging.backbones import find_backbone
    from gpgc_dask.imaging.extract import Recipe, describe

    found = open_dataset(reference)
    recipe = Recipe(find_backbone("colour"), superpixels=20)
    alone = describe(folders[0] / "photo_011.jpg", recipe)
    rows = found["image"].values == 11
    np.testing.assert_array_equal(found["features"].values[rows], alone.features)


def test_small_chunks_hold_the_same(folders, reference, tmp_path, small_chunks):
    ingest(*folders, tmp_path / "data.zarr", **QUICK)
    found, expected = open_dataset(tmp_path / "data.zarr"), open_dataset(reference)
    assert found["features"].data.numblocks[0] > 5
    assert found["segments"].data.numblocks[0] > 5
    xr.testing.assert_identical(found.load(), expected.load())


def test_float16(folders, reference, tmp_path):
    ingest(*folders, tmp_path / "data.zarr", dtype="float16", **QUICK)
    found = open_dataset(tmp_path / "data.zarr")["features"]
    assert found.dtype == np.float16
    expected = open_dataset(reference)["features"].values.astype(np.float16)
    np.testing.assert_array_equal(found.values, expected)


def test_any_number_of_workers_gives_the_same_bytes(client, folders, reference, tmp_path):
    ingest(*folders, tmp_path / "data.zarr", **QUICK)
    assert tree_bytes(tmp_path / "data.zarr") == tree_bytes(reference)


def test_the_default_network(tmp_path):
    images, masks = save_pairs(tmp_path, 2)
    report = ingest(images, masks, tmp_path / "data.zarr")
    assert report.features == 472 + 16 + 1
    assert set(report.seconds) == {"decode", "superpixels", "backbone", "pooling", "write"}
    assert all(seconds > 0 for seconds in report.seconds.values())


def test_progress_is_told(folders, tmp_path):
    told = []
    ingest(*folders, tmp_path / "data.zarr", progress=told.append, **QUICK)
    images = [one for one in told if one.phase == "images"]
    assert len(images) == 5
    assert (images[0].done, images[-1].done) == (0, 30)
    assert images[-1].rate > 0
    assert images[-1].seconds_left == 0
    assert told[-1].phase == "writing"
    assert told[-1].done == told[-1].total


# -- kills and resuming ------------------------------------------------------------------------


def test_killed_three_times_at_random_it_ends_bit_for_bit_the_same(tmp_path):
    images, masks = save_pairs(tmp_path, 96, height=90, width=120)
    command = [*COMMAND, images, masks, "--backbone", "colour", "--workers", "2", "--resume"]
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    target = tmp_path / "data.zarr"
    parts = sorted(rng.sample(range(1, 11), 2))
    moments = [lambda: len(list(target.rglob("*.rows"))) >= parts[0]]
    moments += [lambda: len(list(target.rglob("*.rows"))) >= parts[1]]
    moments += [lambda: (target / ".ingest/assembly").exists()]
    for moment in moments:
        assert killed([*command, "-o", target], moment, rng.uniform(0, 0.1)), f"seed {seed}"
    for path in (target, tmp_path / "whole.zarr"):
        subprocess.run([*command, "-o", path], check=True, capture_output=True)
    assert tree_bytes(target) == tree_bytes(tmp_path / "whole.zarr"), f"seed {seed}"


def killed(command: list, moment: Callable[[], bool], delay: float) -> bool:
    """Run a command and SIGKILL it some time after a moment; whether it lived to see that."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not moment():
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    return process.wait() == -signal.SIGKILL


class CrashError(Exception):
    pass


def crash_after(monkeypatch, owner, name, calls):
    """Make a function fail from its n-th call on."""
    original, count = getattr(owner, name), iter(range(10**6))

    def failing(*args, **kwargs):
        if next(count) >= calls:
            raise CrashError
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        *(("part", calls) for calls in (0, 1, 3)),
        *(("chunk", calls) for calls in (0, 1, 6, 12)),
        *(("finish", calls) for calls in (0, 7, 14)),
    ],
)
def test_stopped_anywhere_it_goes_on(folders, tmp_path, monkeypatch, small_chunks, step, calls):
    whole, target = tmp_path / "whole.zarr", tmp_path / "data.zarr"
    ingest(*folders, whole, **QUICK)
    owner, name = {
        "part": (work, "write_part"),
        "chunk": (assemble.ChunkTask, "run"),
        "finish": (assemble, "write_array"),
    }[step]
    with monkeypatch.context() as patch:
        crash_after(patch, owner, name, calls)
        with pytest.raises(CrashError):
            ingest(*folders, target, **QUICK)
    with pytest.raises(ValueError, match="is not finished"):
        open_dataset(target)
    ingest(*folders, target, resume=True, **QUICK)
    assert tree_bytes(target) == tree_bytes(whole)


def test_what_is_done_is_not_done_again(folders, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 0)
        with pytest.raises(CrashError):
            ingest(*folders, tmp_path / "data.zarr", **QUICK)
    monkeypatch.setattr(work, "describe", None)
    report = ingest(*folders, tmp_path / "data.zarr", resume=True, **QUICK)
    assert report.resumed == 30
    assert report.images == 30


def test_files_left_by_killed_writers_are_removed(folders, reference, tmp_path, monkeypatch):
    target = tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 1)
        with pytest.raises(CrashError):
            ingest(*folders, target, **QUICK)
    (target / "features/c/0").mkdir(parents=True, exist_ok=True)
    (target / "features/c/0/0.abc.partial").write_bytes(b"half")
    ingest(*folders, target, resume=True, **QUICK)
    assert tree_bytes(target) == tree_bytes(reference)


@pytest.mark.parametrize("stage", ["part", "chunk"])
def test_images_that_change_between_runs(tmp_path, monkeypatch, small_chunks, stage):
    """One removed, one added, one mask redrawn after the stop: as if it had always been so."""
    images, masks = save_pairs(tmp_path, 30)
    target = tmp_path / "data.zarr"
    owner, name, calls = {
        "part": (work, "write_part", 2),
        "chunk": (assemble.ChunkTask, "run", 9),
    }[stage]
    with monkeypatch.context() as patch:
        crash_after(patch, owner, name, calls)
        with pytest.raises(CrashError):
            ingest(images, masks, target, **QUICK)
    (images / "photo_003.jpg").unlink()
    (masks / "photo_003.png").unlink()
    save_pair(tmp_path, "aaa", 77)
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(masks / "photo_005.png")
    ingest(images, masks, target, resume=True, **QUICK)
    ingest(images, masks, tmp_path / "whole.zarr", **QUICK)
    assert tree_bytes(target) == tree_bytes(tmp_path / "whole.zarr")
    found = open_dataset(target)
    assert found["image_name"].values[0] == "aaa.jpg"
    assert "photo_003.jpg" not in found["image_name"].values
    assert found["flags"].values[5] == "empty mask"


def test_resuming_in_another_way_is_refused(folders, tmp_path, monkeypatch):
    target = tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, work, "write_part", 1)
        with pytest.raises(CrashError):
            ingest(*folders, target, **QUICK)
    with pytest.raises(IngestError, match=r"what differs: recipe .*20.* there, .*30.* here"):
        ingest(*folders, target, resume=True, backbone="colour", superpixels=30)
    ingest(*folders, target, resume=True, **QUICK)


# -- targets -----------------------------------------------------------------------------------


def test_an_existing_dataset_is_kept_unless_told_otherwise(folders, reference, tmp_path):
    target = tmp_path / "data.zarr"
    shutil.copytree(reference, target)
    before = tree_bytes(target)
    with pytest.raises(FileExistsError, match="--overwrite"):
        ingest(*folders, target, **QUICK)
    report = ingest(*folders, target, resume=True, **QUICK)
    assert report.resumed == 30
    with pytest.raises(IngestError, match="what differs: recipe"):
        ingest(*folders, target, resume=True, backbone="colour", superpixels=30)
    assert tree_bytes(target) == before
    report = ingest(*folders, target, overwrite=True, backbone="colour", superpixels=10)
    assert open_dataset(target).attrs["recipe"]["superpixels"] == 10
    assert report.resumed == 0


def test_bad_input_does_not_cost_the_dataset_that_is_there(folders, reference, tmp_path):
    target = tmp_path / "data.zarr"
    shutil.copytree(reference, target)
    before = tree_bytes(target)
    with pytest.raises(NotADirectoryError):
        ingest(tmp_path / "nowhere", folders[1], target, overwrite=True, **QUICK)
    with pytest.raises(ValueError, match="backbone"):
        ingest(*folders, target, overwrite=True, backbone="alexnet")
    assert tree_bytes(target) == before


def test_work_is_never_lost_when_there_is_much_of_it(folders, reference, tmp_path, monkeypatch):
    monkeypatch.setattr(work, "LEAST_TASKS", 1)
    monkeypatch.setattr(work, "TASKS_A_THREAD", 1)
    monkeypatch.setattr(work, "IMAGES_A_TASK", 2)
    assert ingest(*folders, tmp_path / "data.zarr", **QUICK).images == 30
    assert tree_bytes(tmp_path / "data.zarr") == tree_bytes(reference)


def test_parts_that_vanish_are_noticed(folders, tmp_path, monkeypatch):
    def forgetful(location, images):
        if not next(count):
            original(location, images)

    original, count = work.write_part, iter([0, 1, 0, 0])
    monkeypatch.setattr(work, "write_part", forgetful)
    with pytest.raises(IngestError, match=r"[68] images that were done are gone"):
        ingest(*folders, tmp_path / "data.zarr", **QUICK)


def test_the_last_ingest_to_come_has_the_target(folders, reference, tmp_path):
    target = tmp_path / "data.zarr"
    state = {}

    def intrude(progress):
        if progress.done >= 8 and not state:
            state["second"] = ingest(*folders, target, resume=True, **QUICK)

    with pytest.raises(IngestError, match="another ingest has taken over"):
        ingest(*folders, target, progress=intrude, **QUICK)
    assert state["second"].images == 30
    assert tree_bytes(target) == tree_bytes(reference)


@pytest.mark.parametrize("calls", range(0, 40, 3))
def test_an_overwrite_that_is_stopped_can_go_on(folders, reference, tmp_path, monkeypatch, calls):
    """Whatever was removed by then: never half a dataset that passes for a whole one."""
    target = tmp_path / "data.zarr"
    ingest(*folders, target, backbone="colour", superpixels=10)
    before = tree_bytes(target)
    with monkeypatch.context() as patch:
        crash_after(patch, storage, "_remove_local", calls)
        with pytest.raises(CrashError):
            ingest(*folders, target, overwrite=True, **QUICK)
    if calls == 0:
        assert open_dataset(target).attrs["recipe"]["superpixels"] == 10
        assert tree_bytes(target).items() > before.items()
        ingest(*folders, target, overwrite=True, **QUICK)
    else:
        with pytest.raises(ValueError, match="is not finished"):
            open_dataset(target)
        ingest(*folders, target, resume=True, **QUICK)
    assert tree_bytes(target) == tree_bytes(reference)


def test_a_link_as_target_stays_a_link(folders, reference, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data.zarr").symlink_to(tmp_path / "disk", target_is_directory=True)
    ingest(*folders, tmp_path / "data.zarr", backbone="colour", superpixels=10)
    ingest(*folders, tmp_path / "data.zarr", overwrite=True, **QUICK)
    assert (tmp_path / "data.zarr").is_symlink()
    assert tree_bytes(tmp_path / "disk") == tree_bytes(reference)


def test_a_target_that_looks_like_a_chain_of_urls(folders, reference, tmp_path):
    ingest(*folders, tmp_path / "a::b.zarr", **QUICK)
    assert tree_bytes(tmp_path / "a::b.zarr") == tree_bytes(reference)
    assert open_dataset(tmp_path / "a::b.zarr").sizes["photo"] == 30


def test_a_lost_chunk_is_not_read_as_zeros(folders, tmp_path):
    from gpgc_dask import GPGC

    ingest(*folders, tmp_path / "data.zarr", **QUICK)
    (tmp_path / "data.zarr/features/c/0/0").unlink()
    with pytest.raises(ValueError, match="NaN"):
        GPGC().fit(open_dataset(tmp_path / "data.zarr"))


def test_a_clients_owner_keeps_it(client, folders, tmp_path):
    ingest(*folders, tmp_path / "data.zarr", client=client, **QUICK)
    assert client.submit(lambda: 1).result() == 1


def test_a_finished_dataset_does_not_hide_changed_images(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    truncate(images / "photo_001.jpg", 700)
    ingest(images, masks, tmp_path / "data.zarr", on_error="skip", **QUICK)
    ingest(images, masks, tmp_path / "data.zarr", on_error="skip", resume=True, **QUICK)
    save_pair(tmp_path, "photo_001", 1)
    with pytest.raises(IngestError, match=r"changed since: 0 more, 0 fewer, or other content"):
        ingest(images, masks, tmp_path / "data.zarr", resume=True, **QUICK)


def test_a_finished_dataset_does_not_hide_new_images(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    ingest(images, masks, tmp_path / "data.zarr", **QUICK)
    save_pair(tmp_path, "new", 9)
    with pytest.raises(IngestError, match="files have changed since: 1 more, 0 fewer"):
        ingest(images, masks, tmp_path / "data.zarr", resume=True, **QUICK)


@pytest.mark.parametrize("overwrite", [False, True])
def test_other_things_are_never_overwritten(folders, tmp_path, overwrite):
    folder, file = tmp_path / "thesis", tmp_path / "letter.txt"
    folder.mkdir()
    (folder / "chapter.tex").write_text("precious")
    file.write_text("precious")
    for target in (folder, file):
        with pytest.raises(FileExistsError, match="not a gpgc_dask dataset"):
            ingest(*folders, target, overwrite=overwrite, **QUICK)
    assert (folder / "chapter.tex").read_text() == file.read_text() == "precious"


def test_a_target_in_memory(folders, reference):
    ingest(*folders, "memory://tests/data.zarr", overwrite=True, **QUICK)
    found = open_dataset("memory://tests/data.zarr")
    xr.testing.assert_identical(found.load(), open_dataset(reference).load())
    with pytest.raises(FileExistsError, match=r"memory://tests/data.zarr exists"):
        ingest(*folders, "memory://tests/data.zarr", **QUICK)


def test_a_target_in_memory_needs_workers_in_this_process(client, folders):
    with pytest.raises(ValueError, match="lives in this process alone"):
        ingest(*folders, "memory://tests/other.zarr", **QUICK)
    with pytest.raises(FileNotFoundError):
        open_dataset("memory://tests/other.zarr")


@pytest.fixture(scope="module")
def bucket():
    """An S3 server on this machine: (URL, storage options)."""
    from moto.server import ThreadedMotoServer

    s3fs = pytest.importorskip("s3fs")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "k", "secret": "s", "endpoint_url": f"http://{host}:{port}"}
    s3fs.S3FileSystem(**options).mkdir("bucket")
    yield "s3://bucket", options
    server.stop()


def test_a_target_in_an_object_store(bucket, folders, reference, monkeypatch, small_chunks):
    url, options = f"{bucket[0]}/data.zarr", bucket[1]
    given = {"storage_options": options, **QUICK}
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 7)
        with pytest.raises(CrashError):
            ingest(*folders, url, **given)
    with pytest.raises(FileExistsError, match="--resume"):
        ingest(*folders, url, **given)
    ingest(*folders, url, resume=True, **given)
    found = open_dataset(url, storage_options=options)
    xr.testing.assert_identical(found.load(), open_dataset(reference).load())


def test_an_unknown_protocol_says_what_is_missing(folders):
    with pytest.raises(ValueError, match="nothing://x cannot be reached"):
        ingest(*folders, "nothing://x", **QUICK)


# -- bad files ---------------------------------------------------------------------------------


@pytest.fixture
def good(tmp_path):
    """Two good pairs, to which a test adds something bad."""
    save_pair(tmp_path, "a good", 1)
    save_pair(tmp_path, "z good", 2)
    return tmp_path


def truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def spoil_truncated(folder):
    save_pair(folder, "bad", 3)
    truncate(folder / "images/bad.jpg", 1500)


def spoil_empty_file(folder):
    save_pair(folder, "bad", 3)
    truncate(folder / "images/bad.jpg", 0)


def spoil_mask_size(folder):
    save_pair(folder, "bad", 3)
    Image.fromarray(np.zeros((61, 80), dtype=np.uint8)).save(folder / "masks/bad.png")


def spoil_no_mask(folder):
    save_pair(folder, "bad", 3)
    (folder / "masks/bad.png").unlink()


def spoil_no_image(folder):
    save_pair(folder, "bad", 3)
    (folder / "images/bad.jpg").unlink()


def spoil_tiny(folder):
    save_pair(folder, "bad", 3, height=1, width=1)


def spoil_same_stem(folder):
    save_pair(folder, "bad", 3)
    Image.fromarray(draw(4)[0]).save(folder / "images/bad.bmp")


def spoil_two_masks(folder):
    save_pair(folder, "bad", 3)
    shutil.copy(folder / "masks/bad.png", folder / "masks/bad.bmp")


def spoil_link_loop(folder):
    save_pair(folder, "bad", 3)
    (folder / "images/bad.jpg").unlink()
    (folder / "images/bad.jpg").symlink_to(folder / "images/bad.jpg")


def spoil_mask_values(folder):
    save_pair(folder, "bad", 3)
    values = np.arange(4800, dtype=np.uint16).reshape(60, 80).astype(np.uint8)
    Image.fromarray(values).save(folder / "masks/bad.png")


BAD = {
    spoil_truncated: "bad.jpg: damaged or cut off",
    spoil_empty_file: "bad.jpg: the file is empty",
    spoil_mask_size: "bad.jpg: mask .*is 80×61 pixels but its photo 80×60",
    spoil_no_mask: r"bad.jpg: mask missing: there is no bad\.\* in",
    spoil_no_image: r"bad.png: mask without a photo: there is no bad\.\* in",
    spoil_tiny: "bad.jpg: only 1×1 pixels",
    spoil_same_stem: r"bad.bmp: bad.bmp and bad.jpg share one mask name, bad\.\*",
    spoil_two_masks: "bad.jpg: several masks, bad.bmp and bad.png",
    spoil_link_loop: "bad.jpg: cannot be opened: Too many levels of symbolic links",
    spoil_mask_values: "bad.jpg: mask holds 256 values",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_bad_files(good, spoil):
    spoil(good)
    folders, target = (good / "images", good / "masks"), good / "data.zarr"
    with pytest.raises(IngestError, match=BAD[spoil]) as raised:
        ingest(*folders, target, **QUICK)
    assert "--on-error skip" in str(raised.value)
    assert all(problem.name.startswith("bad") for problem in raised.value.problems)
    report = ingest(*folders, target, on_error="skip", resume=True, **QUICK)
    assert report.images == 2
    assert {problem.name[:3] for problem in report.skipped} == {"bad"}
    found = open_dataset(target)
    assert found["image_name"].values.tolist() == ["a good.jpg", "z good.jpg"]
    assert [str(name) for name in found["skipped_name"].values] == [
        problem.name for problem in report.skipped
    ]
    assert all(str(reason) for reason in found["skipped_reason"].values)


def test_a_mended_file_is_taken_up_on_resuming(good):
    spoil_truncated(good)
    target = good / "data.zarr"
    with pytest.raises(IngestError, match="2 images are done and kept"):
        ingest(good / "images", good / "masks", target, **QUICK)
    save_pair(good, "bad", 3)
    report = ingest(good / "images", good / "masks", target, resume=True, **QUICK)
    assert (report.images, report.resumed, report.skipped) == (3, 2, [])


def test_masks_of_one_class_are_kept_and_flagged(good):
    save_pair(good, "empty", 3)
    save_pair(good, "full", 4)
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(good / "masks/empty.png")
    Image.fromarray(np.full((60, 80), 255, dtype=np.uint8)).save(good / "masks/full.png")
    report = ingest(good / "images", good / "masks", good / "data.zarr", **QUICK)
    assert report.flagged == {"empty mask": 1, "one class": 1}
    flags = open_dataset(good / "data.zarr")["flags"].values.tolist()
    assert flags == ["", "empty mask", "one class", ""]


@pytest.mark.parametrize(
    "name", ["two words", "Pferd im Grünen", "马", "sub folder/ö", "[bold]x[/bold]", "a.b.c"]
)
def test_names_of_all_kinds(tmp_path, name):
    save_pair(tmp_path, name, 1)
    ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "data.zarr", **QUICK)
    assert open_dataset(tmp_path / "data.zarr")["image_name"].values.tolist() == [f"{name}.jpg"]


def test_a_name_that_is_no_text(good):
    odd = os.fsencode(str(good / "images")) + b"/bad\xff.jpg"
    shutil.copy(good / "images/a good.jpg", odd)
    shutil.copy(good / "masks/a good.png", os.fsencode(str(good / "masks")) + b"/bad\xff.png")
    shutil.copy(good / "masks/a good.png", os.fsencode(str(good / "masks")) + b"/lone\xff.png")
    with pytest.raises(IngestError, match="not valid Unicode"):
        ingest(good / "images", good / "masks", good / "data.zarr", **QUICK)
    report = ingest(good / "images", good / "masks", good / "x.zarr", on_error="skip", **QUICK)
    assert report.images == 2


def test_a_folder_that_links_to_itself(good):
    (good / "images/again").symlink_to(good / "images", target_is_directory=True)
    report = ingest(good / "images", good / "masks", good / "data.zarr", **QUICK)
    assert report.images == 2


def test_a_folder_linked_from_elsewhere_is_followed(good):
    other = good / "elsewhere"
    save_pair(other, "c", 5)
    (good / "images/sub").symlink_to(other / "images", target_is_directory=True)
    (good / "masks/sub").symlink_to(other / "masks", target_is_directory=True)
    ingest(good / "images", good / "masks", good / "data.zarr", **QUICK)
    assert "sub/c.jpg" in open_dataset(good / "data.zarr")["image_name"].values


def test_masks_beside_the_photos(good):
    folder = good / "one"
    folder.mkdir()
    shutil.copy(good / "images/a good.jpg", folder / "a.jpg")
    shutil.copy(good / "masks/a good.png", folder / "a_mask.png")
    with pytest.raises(ValueError, match=r"the same folder.*--mask-suffix"):
        ingest(folder, folder, good / "data.zarr", **QUICK)
    report = ingest(folder, folder, good / "data.zarr", mask_suffix="_mask", **QUICK)
    assert report.images == 1


def test_no_images_at_all(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    (tmp_path / "images/notes.txt").write_text("none here")
    with pytest.raises(ValueError, match="there are no images in"):
        ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "data.zarr", **QUICK)
    assert not (tmp_path / "data.zarr").exists()


def test_none_of_the_images_usable(tmp_path):
    save_pair(tmp_path, "a", 1)
    truncate(tmp_path / "images/a.jpg", 700)
    with pytest.raises(IngestError, match=r"none of the images could be used:\na.jpg: damaged"):
        ingest(
            tmp_path / "images",
            tmp_path / "masks",
            tmp_path / "data.zarr",
            on_error="skip",
            **QUICK,
        )


def test_an_image_that_kills_its_workers_is_named(good):
    import dask

    def deadly(image):
        if len(image) == 70:
            os._exit(1)
        return [np.ones((1, 2, 2))]

    save_pair(good, "deadly", 3, height=70)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        connected(workers=1) as client,
    ):
        report = ingest(
            good / "images",
            good / "masks",
            good / "data.zarr",
            backbone=deadly,
            on_error="skip",
            client=client,
        )
    assert report.images == 2
    assert [problem.name for problem in report.skipped] == ["deadly.jpg"]
    assert "workers died over it" in report.skipped[0].reason


def test_pipes_are_no_photos(good):
    os.mkfifo(good / "images/pipe.jpg")
    report = ingest(good / "images", good / "masks", good / "data.zarr", **QUICK)
    assert report.images == 2


def test_masks_in_a_folder_among_the_photos(good):
    shutil.move(good / "masks", good / "images/masks")
    report = ingest(good / "images", good / "images/masks", good / "data.zarr", **QUICK)
    assert report.images == 2


def test_one_letter_written_in_two_ways(tmp_path):
    save_pair(tmp_path, "caf\u00e9", 1)
    (tmp_path / "images/caf\u00e9.jpg").rename(tmp_path / "images/cafe\u0301.jpg")
    assert ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "d.zarr", **QUICK).images == 1


@pytest.mark.parametrize(
    "options",
    [{"categories": ["horse"]}, {"with_empty": True}, {"coco": "x.json", "threshold": 0.5}],
    ids=str,
)
def test_options_that_would_be_ignored_are_refused(good, options):
    masks = None if "coco" in options else good / "masks"
    with pytest.raises(ValueError, match="leave out what does not apply"):
        ingest(good / "images", masks, good / "data.zarr", **options, **QUICK)


def test_a_callable_that_fails_names_the_image(good):
    def broken(image):
        raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError) as raised:
        ingest(good / "images", good / "masks", good / "data.zarr", backbone=broken)
    assert any("a good.jpg" in note for note in raised.value.__notes__)


def test_a_callable_that_cannot_make_up_its_mind(good):
    save_pair(good, "m", 3, height=70)

    def fickle(image):
        return [np.ones((len(image), 2, 2))]

    with pytest.raises(ValueError, match=r"60 features for a good.jpg but 70 for m.jpg"):
        ingest(good / "images", good / "masks", good / "data.zarr", backbone=fickle)


def test_a_huge_photo_needs_little_memory(tmp_path):
    """60 megapixels, JPEG and PNG, with a mask of that size."""
    photo = Image.fromarray(draw(0, 60, 100)[0]).resize((10_000, 6_000), Image.Resampling.NEAREST)
    for kind in ("images", "masks"):
        (tmp_path / kind).mkdir()
    photo.save(tmp_path / "images/a.jpg", quality=50)
    photo.save(tmp_path / "images/b.png", compress_level=1)
    mask = np.zeros((6_000, 10_000), dtype=np.uint8)
    mask[2000:4000, 3000:7000] = 255
    for name in ("a", "b"):
        Image.fromarray(mask).save(tmp_path / f"masks/{name}.png", compress_level=1)
    script = f"""
import sys
from pathlib import Path
from gpgc_dask.imaging import ingest
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
if __name__ == "__main__":
    before = peak()
    import dask
    with dask.config.set(num_workers=1):
        ingest({str(tmp_path / "images")!r}, {str(tmp_path / "masks")!r},
               {str(tmp_path / "data.zarr")!r}, backbone="colour")
    print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 600
    found = open_dataset(tmp_path / "data.zarr")
    assert found["height"].values.tolist() == [6000, 6000]
    painted = paint_image(found, found["label"].values, 0)
    assert painted.shape == (6000, 10_000)
    inside = painted[2000:4000, 3000:7000].mean()
    assert inside > 0.7
    assert found["pixels"].values.sum() == 2 * 60_000_000


@pytest.fixture(params=["200k", "450k"])
def small_disk(request, tmp_path):
    """A file system too small for the parts, or for the parts and the dataset."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", place],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_said_and_nothing_is_lost(small_disk, folders, reference):
    target = small_disk / "data.zarr"
    with pytest.raises(IngestError, match=r"no space is left at .*make room .*--resume"):
        ingest(*folders, target, **QUICK)
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    ingest(*folders, target, resume=True, **QUICK)
    assert tree_bytes(target) == tree_bytes(reference)
