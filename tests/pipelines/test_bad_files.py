"""Files that cannot be used: each named, and nothing else lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import open_dataset
from gpgc_dask.clusters.connect import connect
from gpgc_dask.core.errors import PipelineError
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, RunOptions, ingest
from tests.support.images import draw, save_pair, tree_bytes
from tests.support.ingesting import QUICK, truncate

pytestmark = pytest.mark.newest


@pytest.fixture
def good(tmp_path):
    """Two good pairs, to which a test adds something bad."""
    save_pair(tmp_path, "a good", 1)
    save_pair(tmp_path, "z good", 2)
    return tmp_path


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
    spoil_truncated: "bad.jpg: corrupted or truncated",
    spoil_empty_file: "bad.jpg: the file is empty",
    spoil_mask_size: "bad.jpg: mask .*is 80×61 pixels but its photo 80×60",
    spoil_no_mask: r"bad.jpg: mask missing: there is no bad\.\* in",
    spoil_no_image: r"bad.png: mask without a photo: there is no bad\.\* in",
    spoil_tiny: "bad.jpg: only 1×1 pixels",
    spoil_same_stem: r"bad.bmp, bad.jpg: bad.bmp and bad.jpg share one mask name, bad\.\*",
    spoil_two_masks: "bad.jpg: several masks, bad.bmp and bad.png",
    spoil_link_loop: "bad.jpg: cannot be opened: Too many levels of symbolic links",
    spoil_mask_values: "bad.jpg: mask holds 256 values",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_bad_files(good, spoil):
    spoil(good)
    folders, target = (good / "images", good / "masks"), good / "data.zarr"
    with pytest.raises(PipelineError, match=BAD[spoil]) as raised:
        ingest(*folders, target, recipe=QUICK)
    assert "--on-error skip" in str(raised.value)
    assert all(problem.name.startswith("bad") for problem in raised.value.problems)
    report = ingest(*folders, target, recipe=QUICK, run=RunOptions(on_error="skip", resume=True))
    assert report.images == 2
    assert {problem.name[:3] for problem in report.skipped} == {"bad"}
    found = open_dataset(target)
    assert found["image_name"].values.tolist() == ["a good.jpg", "z good.jpg"]
    assert [str(name) for name in found["skipped_name"].values] == [
        problem.name for problem in report.skipped
    ]
    assert all(str(reason) for reason in found["skipped_reason"].values)


def test_a_fixed_file_is_used_when_resuming(good):
    spoil_truncated(good)
    target = good / "data.zarr"
    with pytest.raises(PipelineError, match="2 images are finished and kept"):
        ingest(good / "images", good / "masks", target, recipe=QUICK)
    save_pair(good, "bad", 3)
    report = ingest(
        good / "images", good / "masks", target, recipe=QUICK, run=RunOptions(resume=True)
    )
    assert (report.images, report.resumed, report.skipped) == (3, 2, [])


def test_masks_of_one_class_are_kept_and_flagged(good):
    save_pair(good, "empty", 3)
    save_pair(good, "full", 4)
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(good / "masks/empty.png")
    Image.fromarray(np.full((60, 80), 255, dtype=np.uint8)).save(good / "masks/full.png")
    report = ingest(good / "images", good / "masks", good / "data.zarr", recipe=QUICK)
    assert report.flagged == {"empty mask": 1, "one class": 1}
    flags = open_dataset(good / "data.zarr")["flags"].values.tolist()
    assert flags == ["", "empty mask", "one class", ""]


@pytest.mark.parametrize(
    "name", ["two words", "Pferd im Grünen", "马", "sub folder/ö", "[bold]x[/bold]", "a.b.c"]
)
def test_names_of_all_kinds(tmp_path, name):
    save_pair(tmp_path, name, 1)
    ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "data.zarr", recipe=QUICK)
    assert open_dataset(tmp_path / "data.zarr")["image_name"].values.tolist() == [f"{name}.jpg"]


def test_a_name_that_is_no_text(good):
    odd = os.fsencode(str(good / "images")) + b"/bad\xff.jpg"
    shutil.copy(good / "images/a good.jpg", odd)
    shutil.copy(good / "masks/a good.png", os.fsencode(str(good / "masks")) + b"/bad\xff.png")
    shutil.copy(good / "masks/a good.png", os.fsencode(str(good / "masks")) + b"/lone\xff.png")
    with pytest.raises(PipelineError, match="not valid Unicode"):
        ingest(good / "images", good / "masks", good / "data.zarr", recipe=QUICK)
    report = ingest(
        good / "images",
        good / "masks",
        good / "x.zarr",
        recipe=QUICK,
        run=RunOptions(on_error="skip"),
    )
    assert report.images == 2


def test_a_folder_that_links_to_itself(good):
    (good / "images/again").symlink_to(good / "images", target_is_directory=True)
    report = ingest(good / "images", good / "masks", good / "data.zarr", recipe=QUICK)
    assert report.images == 2


def test_a_folder_linked_from_elsewhere_is_followed(good):
    other = good / "elsewhere"
    save_pair(other, "c", 5)
    (good / "images/sub").symlink_to(other / "images", target_is_directory=True)
    (good / "masks/sub").symlink_to(other / "masks", target_is_directory=True)
    ingest(good / "images", good / "masks", good / "data.zarr", recipe=QUICK)
    assert "sub/c.jpg" in open_dataset(good / "data.zarr")["image_name"].values


def test_masks_beside_the_photos(good):
    folder = good / "one"
    folder.mkdir()
    shutil.copy(good / "images/a good.jpg", folder / "a.jpg")
    shutil.copy(good / "masks/a good.png", folder / "a_mask.png")
    with pytest.raises(ValueError, match=r"the same folder.*--mask-suffix"):
        ingest(folder, folder, good / "data.zarr", recipe=QUICK)
    report = ingest(
        folder, folder, good / "data.zarr", recipe=QUICK, masks_as=MaskOptions(suffix="_mask")
    )
    assert report.images == 1


def test_no_images_at_all(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    (tmp_path / "images/notes.txt").write_text("none here")
    with pytest.raises(ValueError, match="there are no images in"):
        ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "data.zarr", recipe=QUICK)
    assert not (tmp_path / "data.zarr").exists()


def test_none_of_the_images_usable(tmp_path):
    save_pair(tmp_path, "a", 1)
    truncate(tmp_path / "images/a.jpg", 700)
    with pytest.raises(PipelineError, match=r"none of the images could be used:\na.jpg: corrupted"):
        ingest(
            tmp_path / "images",
            tmp_path / "masks",
            tmp_path / "data.zarr",
            recipe=QUICK,
            run=RunOptions(on_error="skip"),
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
        connect(workers=1) as client,
    ):
        report = ingest(
            good / "images",
            good / "masks",
            good / "data.zarr",
            recipe=Recipe(backbone=deadly),
            run=RunOptions(on_error="skip", client=client),
        )
    assert report.images == 2
    assert [problem.name for problem in report.skipped] == ["deadly.jpg"]
    assert "workers died repeatedly" in report.skipped[0].reason


def test_pipes_are_no_photos(good):
    os.mkfifo(good / "images/pipe.jpg")
    report = ingest(good / "images", good / "masks", good / "data.zarr", recipe=QUICK)
    assert report.images == 2


def test_masks_in_a_folder_among_the_photos(good):
    shutil.move(good / "masks", good / "images/masks")
    report = ingest(good / "images", good / "images/masks", good / "data.zarr", recipe=QUICK)
    assert report.images == 2


def test_one_letter_written_in_two_ways(tmp_path):
    save_pair(tmp_path, "caf\u00e9", 1)
    (tmp_path / "images/caf\u00e9.jpg").rename(tmp_path / "images/cafe\u0301.jpg")
    assert (
        ingest(tmp_path / "images", tmp_path / "masks", tmp_path / "d.zarr", recipe=QUICK).images
        == 1
    )


@pytest.mark.parametrize(
    "options",
    [{"categories": ["horse"]}, {"with_empty": False}, {"format": "coco", "threshold": 0.5}],
    ids=str,
)
def test_options_that_would_be_ignored_are_rejected(good, options):
    choice = MaskOptions(**options)
    with pytest.raises(ValueError, match=f"{[*options][-1]}: not an option of masks in the format"):
        ingest(good / "images", good / "masks", good / "data.zarr", recipe=QUICK, masks_as=choice)


def test_formats_that_are_not_registered(good):
    choice = MaskOptions(format="sketch")
    with pytest.raises(
        ValueError, match="no format of masks 'sketch': choose one of masks, answers,"
    ):
        ingest(good / "images", good / "masks", good / "data.zarr", masks_as=choice)


def test_a_callable_that_fails_names_the_image(good):
    def broken(image):
        raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError) as raised:
        ingest(good / "images", good / "masks", good / "data.zarr", recipe=Recipe(backbone=broken))
    assert any("a good.jpg" in note for note in raised.value.__notes__)


def test_a_callable_that_cannot_make_up_its_mind(good):
    save_pair(good, "m", 3, height=70)

    def fickle(image):
        return [np.ones((len(image), 2, 2))]

    with pytest.raises(ValueError, match=r"60 features for a good.jpg but 70 for m.jpg"):
        ingest(good / "images", good / "masks", good / "data.zarr", recipe=Recipe(backbone=fickle))


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
from gpgc_dask import Recipe, ingest
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1024
if __name__ == "__main__":
    before = peak()
    import dask
    with dask.config.set(num_workers=1):
        ingest({str(tmp_path / "images")!r}, {str(tmp_path / "masks")!r},
               {str(tmp_path / "data.zarr")!r}, recipe=Recipe(backbone="colour"))
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
    with pytest.raises(PipelineError, match=r"no space is left at .*free some space .*--resume"):
        ingest(*folders, target, recipe=QUICK)
    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    assert tree_bytes(target) == tree_bytes(reference)
