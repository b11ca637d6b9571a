"""Several masks per photo: folders of answers, and files that name the photo of each mask."""

from __future__ import annotations

import numpy as np
import pytest

from gpgc_dask import MaskOptions, RunOptions, open_dataset
from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.mask_sources import open_source
from gpgc_dask.pipelines.ingest import ingest, work
from tests.support.answers import ANNOTATORS, save_answers
from tests.support.images import save_pair, save_pairs
from tests.support.ingesting import QUICK

FOLDERS = MaskOptions(format="answers")


def test_each_answer_is_an_image_of_its_own(tmp_path, monkeypatch):
    images, masks = save_answers(tmp_path, 3)
    calls = []
    describe = work.describe
    monkeypatch.setattr(work, "describe", lambda *a: calls.append(a[0]) or describe(*a))
    report = ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, masks_as=FOLDERS)
    assert report.images == 9
    assert len(calls) == 3  # features are computed once per photo
    data = open_dataset(tmp_path / "data.zarr")
    assert data["image_name"].values[:3].tolist() == [f"photo_000.jpg/{n}" for n in ANNOTATORS]
    assert (
        data["photo_name"].values.tolist()
        == np.repeat([f"photo_00{n}.jpg" for n in range(3)], 3).tolist()
    )
    assert data["group"].values.tolist() == data["photo_name"].values.tolist()
    image, features = data["image"].values, data["features"].values
    np.testing.assert_array_equal(features[image == 0], features[image == 2])
    assert not np.array_equal(data["label"].values[image == 0], data["label"].values[image == 2])


def test_folders_below_folders(tmp_path):
    save_pair(tmp_path, "a/one", 1)
    (tmp_path / "masks/a/one.png").rename(tmp_path / "masks/a/answer.png")
    (tmp_path / "answers/a/one/team").mkdir(parents=True)
    (tmp_path / "masks/a/answer.png").rename(tmp_path / "answers/a/one/team/x.y.png")
    source = open_source(tmp_path / "images", tmp_path / "answers", FOLDERS)
    assert [item.pair.name for item in source.items] == ["a/one.jpg/team/x.y"]
    assert source.problems == []


def test_what_has_no_counterpart_is_a_problem(tmp_path):
    images, masks = save_answers(tmp_path, 2)
    (masks / "photo_000").rename(masks / "other")
    source = open_source(images, masks, FOLDERS)
    problems = {problem.name: problem.reason for problem in source.problems}
    assert len(source.items) == 3
    assert "no answer for it" in problems["photo_000.jpg"]
    assert "mask without a photo" in problems["other/anna.png"]


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return MaskOptions(format="answers", answers=str(path))


def test_a_file_names_the_photo_of_each_mask(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    lines = ["photo_000.png,photo_000.jpg,anna,2024-05-01", "photo_001.png,photo_000.jpg,bert,"]
    options = write(tmp_path / "a.csv", "mask,image,annotator,date", *lines)
    run = RunOptions(on_error="skip")
    report = ingest(images, masks, tmp_path / "d.zarr", recipe=QUICK, masks_as=options, run=run)
    assert [problem.name for problem in report.skipped] == ["photo_001.jpg", "photo_002.jpg"]
    data = open_dataset(tmp_path / "d.zarr")
    assert data["image_name"].values.tolist() == [
        "photo_000.jpg/photo_000",
        "photo_000.jpg/photo_001",
    ]
    assert data["annotator"].values.tolist() == ["anna", "bert"]
    assert data["annotated"].values.tolist() == ["2024-05-01T00:00:00", ""]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["mask,image", "no.png,photo_000.jpg"],
            "names 1 masks that are not in .*masks, such as no",
        ),
        (["mask,image", "photo_000.png,no.jpg"], "names 1 images that are not in .*images"),
        (["mask,photo", "photo_000.png,photo_000.jpg"], "has no column image"),
        (["mask,image", *["photo_000.png,photo_000.jpg"] * 2], "names photo_000.png twice"),
        (["mask,image,date", "photo_000.png,photo_000.jpg,May"], "the date 'May'"),
    ],
)
def test_files_that_do_not_fit(tmp_path, lines, message):
    images, masks = save_pairs(tmp_path, 1)
    with pytest.raises(InputError, match=message):
        open_source(images, masks, write(tmp_path / "a.csv", *lines))


def test_two_masks_of_one_name(tmp_path):
    images, masks = save_answers(tmp_path, 1)
    (masks / "photo_000/anna.tif").write_bytes((masks / "photo_000/anna.png").read_bytes())
    with pytest.raises(InputError, match=r"two masks are the answer photo_000\.jpg/anna"):
        open_source(images, masks, FOLDERS)


def test_folders_of_answers_are_recognised(tmp_path):
    with pytest.raises(InputError, match="--format answers"):
        open_source(*save_answers(tmp_path, 2))
