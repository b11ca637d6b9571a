"""Updates end as an ingest of the same files would, except for the order of the images."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
import zarr
from PIL import Image

from gpgc_dask import GPGC, ImageInfo, MaskOptions, RunOptions, open_dataset, update
from gpgc_dask.core.errors import ExistsError, InputError, MissingFileError, PipelineError
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.pipelines.ingest import ingest, work
from gpgc_dask.pipelines.update import lock as update_lock
from gpgc_dask.storage.location import Location
from tests.support.answers import save_answers
from tests.support.coco_files import write_coco
from tests.support.images import save_pair, save_pairs, tree_bytes
from tests.support.ingesting import QUICK
from tests.support.updating import contents

SKIP = RunOptions(on_error="skip")


def redraw(path, value=0):
    """Replace a mask by one of a single value, with a square of another one."""
    mask = np.full((60, 80), value, dtype=np.uint8)
    mask[10:30, 20:40] = 255 - value
    Image.fromarray(mask).save(path)


def check_equal(target, images, masks, folder, **options):
    """Compare a dataset with an ingest of the same files."""
    fresh = folder / "fresh.zarr"
    shutil.rmtree(fresh, ignore_errors=True)
    ingest(images, masks, fresh, recipe=QUICK, **options)
    assert contents(target) == contents(fresh)
    assert sorted(path.name for path in target.iterdir()) == sorted(
        path.name for path in fresh.iterdir()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = xr.open_zarr(target, mask_and_scale=False)
    assert plain.sizes == xr.open_zarr(fresh).sizes


@pytest.fixture
def living(tmp_path, small_chunks):
    """A dataset of 12 photos in several chunks, and its folders."""
    images, masks = save_pairs(tmp_path, 12)
    target = tmp_path / "data.zarr"
    ingest(images, masks, target, recipe=QUICK)
    return target, images, masks


def test_new_photos_and_changed_masks(living, tmp_path, monkeypatch):
    target, images, masks = living
    for number, name in enumerate(("aaa", "photo_0045", "sub/zzz")):
        save_pair(tmp_path, name, 50 + number)
    redraw(masks / "photo_005.png")
    redraw(masks / "photo_011.png", 255)
    described = []
    original = work.describe
    monkeypatch.setattr(
        work, "describe", lambda path, *others: described.append(path) or original(path, *others)
    )
    report = update(target, images, masks)
    assert (report.changed, report.images, report.new, report.relabelled) == (True, 15, 3, 2)
    assert (report.unchanged, report.vanished, report.removed, report.replaced) == (10, [], 0, 0)
    names = open_dataset(target)["image_name"].values.tolist()
    assert names[12:] == ["aaa.jpg", "photo_0045.jpg", "sub/zzz.jpg"]
    assert sorted(described) == sorted(str(images / name) for name in names[12:])
    check_equal(target, images, masks, tmp_path)


def test_chunks_before_a_change_are_not_written(living, tmp_path):
    target, images, masks = living
    before = {path: os.stat(path).st_ino for path in target.glob("*/c/*/*") if path.is_file()}
    before |= {path: os.stat(path).st_ino for path in target.glob("*/c/*/*/*")}
    save_pair(tmp_path, "zzz", 50)
    redraw(masks / "photo_009.png")
    update(target, images, masks)
    same = {path.relative_to(target).as_posix() for path, node in before.items()
            if path.exists() and os.stat(path).st_ino == node}  # fmt: skip
    assert {"features/c/0/0", "features/c/1/0", "segments/c/0/0/0", "segments/c/2/0/0"} <= same
    assert {"mask/c/0/0/0", "mask/c/1/0/0"} <= same
    assert "mask/c/2/0/0" not in same


def test_nothing_changed_writes_nothing(living):
    target, images, masks = living
    before, times = tree_bytes(target), os.stat(target).st_mtime_ns
    report = update(target, images, masks)
    assert not report.changed
    assert (report.unchanged, report.images) == (12, 12)
    assert tree_bytes(target) == before
    assert os.stat(target).st_mtime_ns == times


def test_files_that_were_only_touched_are_unchanged(living, tmp_path, monkeypatch):
    target, images, masks = living
    for path in (*images.iterdir(), *masks.iterdir()):
        os.utime(path, (1, 1))
    before = tree_bytes(target)
    with monkeypatch.context() as patch:
        patch.setattr(work, "describe", None)
        report = update(target, images, masks)
    assert (report.changed, report.unchanged) == (False, 12)
    assert tree_bytes(target) == before
    redraw(masks / "photo_003.png")
    assert update(target, images, masks).relabelled == 1
    check_equal(target, images, masks, tmp_path)  # the stamps are up to date now


def test_a_changed_photo_is_made_again(living, tmp_path):
    target, images, masks = living
    save_pair(tmp_path, "photo_004", 99, height=70, width=90)
    report = update(target, images, masks)
    assert (report.new, report.replaced, report.relabelled, report.unchanged) == (1, 1, 0, 11)
    check_equal(target, images, masks, tmp_path)


def test_a_taller_photo_makes_all_maps_larger(living, tmp_path):
    target, images, masks = living
    save_pair(tmp_path, "tall", 99, height=120, width=50)
    update(target, images, masks)
    check_equal(target, images, masks, tmp_path)
    for kind in (images, masks):
        next(kind.glob("tall.*")).unlink()
    update(target, images, masks, prune=True)
    check_equal(target, images, masks, tmp_path)


def test_vanished_files_are_listed_and_pruned(living, tmp_path):
    target, images, masks = living
    (images / "photo_002.jpg").unlink()
    (masks / "photo_002.png").unlink()
    (masks / "photo_007.png").unlink()
    (images / "photo_011.jpg").unlink()
    before = tree_bytes(target)
    report = update(target, images, masks)
    assert not report.changed
    assert [one.name for one in report.vanished] == [
        f"photo_{n}.jpg" for n in ("002", "007", "011")
    ]
    assert [one.reason[:12] for one in report.vanished] == [
        "its photo or", "mask missing", "mask without",
    ]  # fmt: skip
    assert tree_bytes(target) == before
    save_pair(tmp_path, "zzz", 50)
    assert update(target, images, masks).images == 13
    report = update(target, images, masks, prune=True)
    assert (report.removed, report.images, report.unchanged) == (3, 10, 10)
    check_equal(target, images, masks, tmp_path, run=SKIP)
    report = update(target, images, masks, prune=True)  # they are known, and no error
    assert (report.changed, len(report.skipped)) == (False, 2)


def test_folders_that_have_moved(living, tmp_path):
    target, images, masks = living
    (masks / "photo_002.png").unlink()
    other = tmp_path / "elsewhere"
    shutil.copytree(images, other / "images")
    shutil.copytree(masks, other / "masks")
    report = update(target, other / "images", other / "masks")
    assert (report.changed, report.unchanged, len(report.vanished)) == (True, 11, 1)
    assert open_dataset(target)["image_path"].values[2] == str(other / "images/photo_002.jpg")
    update(target, other / "images", other / "masks", prune=True)
    check_equal(target, other / "images", other / "masks", tmp_path, run=SKIP)


def test_masks_saved_again_in_another_folder(living, tmp_path):
    """Their files are others, their labels the same."""
    target, images, masks = living
    other = tmp_path / "other/deep/er"
    other.mkdir(parents=True)
    for mask in masks.iterdir():
        Image.open(mask).save(other / mask.name, compress_level=1)
    report = update(target, images, other)
    assert report.unchanged == 12
    assert open_dataset(target)["mask_path"].values[2] == str(other / "photo_002.png")
    check_equal(target, images, other, tmp_path)


def test_a_small_dataset_grows_into_larger_chunks(tmp_path):
    images, masks = save_pairs(tmp_path, 1)
    target = tmp_path / "data.zarr"
    ingest(images, masks, target, recipe=QUICK)
    for n in (2, 9):
        save_pairs(tmp_path, n)
        update(target, images, masks)
        check_equal(target, images, masks, tmp_path)


def test_groups_stay_together(tmp_path, small_chunks):
    images, masks = save_pairs(tmp_path, 12)
    target = tmp_path / "data.zarr"
    table = tmp_path / "annotators.csv"

    def write_table(who):
        names = [path.name for path in images.iterdir()]
        table.write_text("image,annotator\n" + "".join(f"{name},{who}\n" for name in names))

    write_table("anna")
    info = ImageInfo(group=r"(\d)\.jpg$", annotator=str(table))
    ingest(images, masks, target, recipe=QUICK, info=info)
    for name in ("new_3", "new_7", "new_2"):
        save_pair(tmp_path, name, ord(name[-1]))
    with pytest.raises(InputError, match="has no line for 3 of 15 images"):
        update(target, images, masks)
    write_table("bert")
    update(target, images, masks)  # the rules are stored
    dataset = open_dataset(target)
    groups = dataset["group"].values.tolist()
    assert len(groups) == 15
    assert sum(a != b for a, b in pairwise(groups)) == 9
    assert set(dataset["annotator"].values) == {"bert"}
    check_equal(target, images, masks, tmp_path, info=info)
    names = ImageInfo(annotator=r"^(\w+?)_")
    report = update(target, images, masks, info=names)
    assert (report.changed, report.unchanged) == (True, 15)
    names = ImageInfo(group=info.group, annotator=names.annotator)
    check_equal(target, images, masks, tmp_path, info=names)


def test_a_new_answer_needs_no_features(tmp_path, small_chunks, monkeypatch):
    images, masks = save_answers(tmp_path, 6)
    shutil.rmtree(masks / "photo_005")
    (images / "photo_005.jpg").unlink()
    target = tmp_path / "data.zarr"
    answers = MaskOptions(format="answers")
    ingest(images, masks, target, recipe=QUICK, masks_as=answers)
    redraw(masks / "photo_002/dora.png")
    redraw(masks / "photo_003/anna.png")
    with monkeypatch.context() as patch:
        patch.setattr(work, "describe", None)
        report = update(target, images, masks)
    assert (report.new, report.relabelled, report.unchanged) == (1, 1, 14)
    save_answers(tmp_path / "more", 6)
    shutil.move(tmp_path / "more/images/photo_005.jpg", images)
    shutil.move(tmp_path / "more/masks/photo_005", masks)
    assert update(target, images, masks).new == 3
    check_equal(target, images, masks, tmp_path, masks_as=answers)


def test_annotations_of_a_coco_file(tmp_path, small_chunks, monkeypatch):
    images, masks = save_pairs(tmp_path, 8)
    path, target = tmp_path / "coco.json", tmp_path / "data.zarr"
    write_coco(images, masks, path)
    content = json.loads(path.read_text())
    options = MaskOptions(format="coco", categories=["horse"])
    ingest(images, path, target, recipe=QUICK, masks_as=options)
    extra = {"id": 50, "image_id": 1, "category_id": 7, "iscrowd": 1, "area": 3}
    extra["segmentation"] = [[1, 1, 20, 1, 20, 20, 1, 20]]
    kept = [one for one in content["annotations"] if one["id"] != 6] + [extra]
    path.write_text(json.dumps(content | {"annotations": kept}))
    with monkeypatch.context() as patch:
        patch.setattr(work, "describe", None)
        report = update(target, images, path)
    assert (report.new, report.relabelled, report.unchanged) == (0, 2, 6)
    check_equal(target, images, path, tmp_path, masks_as=options)
    dataset = open_dataset(target)
    assert dataset["object_id"].values.tolist() == ["0", "50", "1", "2", "3", "4", "5", "7"]
    assert dataset["flags"].values[6] == "empty mask"
    fewer = [image for image in content["images"] if image["id"] != 6]
    path.write_text(json.dumps(content | {"annotations": kept, "images": fewer}))
    assert [one.name for one in update(target, images, path).vanished] == ["photo_006.jpg"]


def test_other_classes_than_those_of_the_dataset(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    path, target = tmp_path / "coco.json", tmp_path / "data.zarr"
    write_coco(images, masks, path)
    options = MaskOptions(format="coco", categories=["all"])
    ingest(images, path, target, recipe=QUICK, masks_as=options)
    content = json.loads(path.read_text())
    content["annotations"][1]["category_id"] = 8
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="has the classes background, horse, cat, and the dataset"):
        update(target, images, path)


def test_options_of_the_masks_are_those_of_the_dataset(tmp_path):
    images, masks = save_pairs(tmp_path, 6)
    for path in masks.iterdir():
        mask = np.asarray(Image.open(path)) // 255 * 7
        mask[:9] = 99
        Image.fromarray(mask).save(path)
        path.rename(masks / f"{path.stem}_mask.png")
    target = tmp_path / "data.zarr"
    options = MaskOptions(suffix="_mask", classes={0: "ground", 7: "horse"}, void=[99])
    ingest(images, masks, target, recipe=QUICK, masks_as=options)
    mask[20:30] = 7
    Image.fromarray(mask).save(masks / "photo_001_mask.png")
    assert update(target, images, masks).relabelled == 1
    check_equal(target, images, masks, tmp_path, masks_as=options)
    before = tree_bytes(target)
    Image.fromarray(mask // 2).save(masks / "photo_002_mask.png")
    with pytest.raises(PipelineError, match=r"photo_002.jpg: mask holds value\(s\) 3, 49 that are"):
        update(target, images, masks)
    staged = {name: each for name, each in tree_bytes(target).items() if name[:8] == ".update/"}
    assert tree_bytes(target) == before | staged
    report = update(target, images, masks, run=SKIP)
    assert (report.changed, report.unchanged, len(report.skipped)) == (False, 5, 1)
    assert tree_bytes(target) == before
    report = update(target, images, masks, prune=True, run=SKIP)
    assert (report.removed, report.images) == (1, 5)
    check_equal(target, images, masks, tmp_path, masks_as=options, run=SKIP)


def test_what_users_have_added_stays(living, tmp_path):
    target, images, masks = living
    group = zarr.open_group(target, mode="r+")
    group.update_attributes({"note": "mine"})
    group.create_array("extra", data=np.arange(3), dimension_names=("own",))
    VerdictLog(Location.of(target)).append(Verdict("photo_001.jpg", "confirmed"))
    save_pair(tmp_path, "zzz", 50)
    update(target, images, masks)
    dataset = open_dataset(target)
    assert dataset.attrs["note"] == "mine"
    assert dataset["extra"].values.tolist() == [0, 1, 2]
    assert dataset["verdict"].values[1] == "confirmed"
    zarr.open_group(target, mode="r+").update_attributes({"note": "other"})
    assert open_dataset(target).attrs["note"] == "other"


def test_a_model_says_what_has_changed_since(living, tmp_path):
    target, images, masks = living
    dataset = open_dataset(target)
    model = GPGC(rounds=0, redundancy=1.0).fit(dataset)
    save_pair(tmp_path, "zzz", 50)
    redraw(masks / "photo_003.png")
    update(target, images, masks)
    (images / "zzz.jpg").unlink()
    update(target, images, masks, prune=True)
    message = r"updated since the model was fitted \(1 new, 1 relabelled, 1 removed\): fit it again"
    with pytest.raises(InputError, match=message):
        model.review(open_dataset(target))
    GPGC(rounds=0, redundancy=1.0).fit(open_dataset(target))


def test_one_update_at_a_time(living, tmp_path):
    target, images, masks = living
    save_pair(tmp_path, "zzz", 50)
    before = tree_bytes(target)
    with (
        update_lock.update_lock(Location.of(target)),
        pytest.raises(PipelineError, match=r"another gpgc update of .* is running: wait until"),
    ):
        update(target, images, masks)
    assert tree_bytes(target) == before
    assert update(target, images, masks).new == 1


def test_what_cannot_be_updated(living, tmp_path):
    target, images, masks = living
    with pytest.raises(MissingFileError, match="does not exist: make a dataset"):
        update(tmp_path / "nothing.zarr", images, masks)
    with pytest.raises(InputError, match="is not a gpgc_dask dataset"):
        update(images, images, masks)
    with pytest.raises(InputError, match="an update replaces nothing"):
        update(target, images, masks, run=RunOptions(overwrite=True))
    save_pair(tmp_path, "unpaired", 50)
    (masks / "unpaired.png").unlink()
    with pytest.raises(PipelineError, match=r"unpaired.jpg: mask missing"):
        update(target, images, masks)
    assert update(target, images, masks, run=SKIP).skipped[0].name == "unpaired.jpg"
    assert open_dataset(target)["skipped_name"].values.tolist() == ["unpaired.jpg"]
    for path in masks.iterdir():
        path.unlink()
    with pytest.raises(PipelineError, match="no image would be left"):
        update(target, images, masks, prune=True, run=SKIP)


def test_an_ingest_over_an_unfinished_update(living, tmp_path):
    target, images, masks = living
    (target / "zarr.json").rename(tmp_path / "root")
    (target / ".update").mkdir()
    (target / ".update/commit").write_text("{}")
    with pytest.raises(ExistsError, match=r"an update of .* is not finished"):
        ingest(images, masks, target, recipe=QUICK)
    ingest(images, masks, target, recipe=QUICK, run=RunOptions(overwrite=True))
    check_equal(target, images, masks, tmp_path)


def test_verdicts_on_changed_masks(living):
    """They are withdrawn, or confirmed if the new mask is the corrected one; others stay."""
    target, images, masks = living
    dataset, log = open_dataset(target), VerdictLog(Location.of(target))
    corrected = np.zeros((60, 80), dtype=np.uint8)
    corrected[10:30, 20:40] = 1
    for number in (2, 5):
        own = make_correction(dataset, number, corrected)
        log.append(Verdict(f"photo_{number:03d}.jpg", "corrected", "anna", correction=own))
    for number in (7, 8):
        log.append(Verdict(f"photo_{number:03d}.jpg", "confirmed", "ben"))
    redraw(masks / "photo_005.png")
    redraw(masks / "photo_008.png")
    image = dataset["image"].values
    given = open_dataset(target, verdicts=False)["label"].values
    assert update(target, images, masks).relabelled == 2
    verdicts = open_dataset(target)["verdict"].values
    assert verdicts[[2, 5, 7, 8]].tolist() == ["corrected", "confirmed", "confirmed", ""]
    label = open_dataset(target, verdicts=False)["label"].values
    np.testing.assert_array_equal(label[image == 2], given[image == 2])
