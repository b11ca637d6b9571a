"""Reviews, rankings and what is selected by them."""

from __future__ import annotations

import csv
import io
import json
import os

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gpgc_dask import GP, GPGC, load, open_dataset
from gpgc_dask.models.review import rank
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, RunOptions, ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.columns import column_names
from gpgc_dask.results.ranking import (
    BadCount,
    count_bad,
    headline,
    is_suspect,
    records,
    select_best,
    to_csv,
)
from gpgc_dask.results.selection import filter_coco, write_folder
from tests.support.coco_files import write_coco
from tests.support.images import save_pair, save_pairs
from tests.support.ingesting import QUICK

pytestmark = pytest.mark.quick


def save_mask(folder, name, values):
    Image.fromarray(values.astype(np.uint8)).save(folder / f"masks/{name}.png")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """(folder, dataset, model): 16 images; inverted, empty, full and wholly void masks."""
    folder = tmp_path_factory.mktemp("ranking")
    save_pairs(folder, 14)
    shape = (60, 80)
    first = np.asarray(Image.open(folder / "masks/photo_000.png"))
    save_mask(folder, "photo_000", np.where(first == 1, 255, 255 - first))
    save_mask(folder, "photo_001", np.zeros(shape))
    save_mask(folder, "photo_002", np.full(shape, 255))
    save_mask(folder, "photo_003", np.full(shape, 128))
    save_pair(folder, "deep/er/photo, with comma", 40)
    ingest(
        folder / "images",
        folder / "masks",
        folder / "data.zarr",
        recipe=QUICK,
        masks_as=MaskOptions(void=[128]),
    )
    dataset = open_dataset(folder / "data.zarr")
    with pytest.warns(UserWarning, match="fewer than two labelled"):
        model = GPGC().fit(dataset)
    return folder, dataset, model


@pytest.fixture(scope="module")
def table(job):
    _, dataset, model = job
    with pytest.warns(UserWarning, match="not in the fit"):
        return model.review(dataset)


def test_a_review_agrees_with_the_model(job, table):
    _, dataset, model = job
    _, found = model.leave_group_out(dataset, return_agreement=True)
    assert table["image"].tolist() == dataset["image_name"].values.tolist()
    known = table.set_index("image")
    for name, iou in zip(found.groups, found.iou, strict=True):
        if name != "photo_003.jpg":
            assert known["agreement"][name] == iou
    for name, noise, sure in zip(
        model.groups_, model.noise_variance_, model.confidence_, strict=True
    ):
        assert known["noise_variance"][name] == noise
        assert known["confidence"][name] == sure
    void = known.loc["photo_003.jpg"]
    assert np.isnan([void["agreement"], void["noise_variance"], void["confidence"]]).all()
    assert void["flags"] == "mostly void"
    assert known["flags"]["photo_001.jpg"] == "empty mask"
    assert known["flags"]["photo_002.jpg"] == "one class"


def test_the_worst_come_first(table):
    ranking = rank(table)
    assert ranking["rank"].tolist() == list(range(1, 16))
    assert ranking["image"][0] == "photo_003.jpg"  # nothing speaks for it
    assert {*ranking["image"][1:4]} == {f"photo_{i:03d}.jpg" for i in range(3)}
    assert ranking["quality"][1:].is_monotonic_increasing
    assert rank(table, "agreement")["agreement"][1:].is_monotonic_increasing
    by_noise = rank(table, "confidence")
    assert by_noise["confidence"][1:].is_monotonic_increasing
    assert by_noise["noise_variance"][1:].is_monotonic_decreasing


def test_suspects(table):
    suspect = {*table["image"][is_suspect(table)]}
    assert suspect == {f"photo_{i:03d}.jpg" for i in range(4)}


def make_table(**columns):
    """A review of images a, b, c, …; other columns than those given are equal for all."""
    n = len(next(iter(columns.values())))
    equal = {"quality": 0.5, "agreement": 0.5, "confidence": 0.5, "bad_probability": np.nan}
    names = [chr(ord("a") + number) for number in range(n)]
    return pd.DataFrame({"image": names} | {k: [v] * n for k, v in equal.items()} | columns)


def test_ties(table):
    """By agreement, then confidence, then name; unknown values come first."""
    tied = make_table(
        quality=[0.5, 0.5, 0.5, 0.5, np.nan, 0.2],
        agreement=[0.9, 0.3, 0.3, 0.3, 0.9, 0.9],
        confidence=[0.1, 0.8, 0.2, 0.2, 0.9, 0.9],
    )
    assert "".join(rank(tied)["image"]) == "efcdba"
    assert "".join(rank(tied, "confidence")["image"]) == "acdbef"
    with pytest.raises(ValueError, match="by must be quality, agreement, confidence, got 'noise'"):
        rank(table, "noise")


def test_suspects_by_probability():
    """More than 90 % sure; without a probability by the quality, unknown ones included."""
    found = is_suspect(
        make_table(
            quality=[0.3, 0.3, 0.6, 0.4, 0.6, np.nan],
            bad_probability=[0.95, 0.9, 0.91, np.nan, np.nan, np.nan],
        )
    )
    assert found.tolist() == [True, False, True, True, False, True]


def test_the_number_of_bad_masks():
    """Sum of the probabilities ± 1.28 standard deviations, or what the intervals allow."""
    table = make_table(bad_probability=[0.5] * 16 + [np.nan])
    narrow = table.assign(quality_low=[0.4] * 9 + [0.6] * 8, quality_high=[0.45] * 7 + [0.6] * 10)
    assert count_bad(narrow) == BadCount(0.5, 8, 5, 11)  # 1.28 √(16 · ¼) = 2.56
    assert headline(narrow) == (
        "about 8 of 17 masks (5–11) have a quality below 0.5; 0 are suspect (90 % sure)"
    )
    wide = table.assign(quality_low=0.4, quality_high=0.6)
    assert count_bad(wide) == BadCount(0.5, 8, 0, 17)
    sure = table.assign(bad_probability=0.0, quality_low=0.9, quality_high=1.0)
    assert count_bad(sure) == BadCount(0.5, 0, 0, 0)


def test_the_number_of_bad_masks_of_few_images(table):
    assert count_bad(table) is None
    assert headline(table).startswith("4 of 15 masks are suspect (quality below 0.5); fewer than")


def test_reviews_of_older_versions(table):
    with pytest.raises(ValueError, match=r"older version.*gpgc fit --overwrite"):
        rank(table.drop(columns="quality"), "agreement")


def test_the_sorted_review_of_a_model(job, table):
    _, _, model = job
    pd.testing.assert_frame_equal(model.quality_, rank(table))
    assert not hasattr(GPGC(), "quality_")


def test_columns_that_programs_read(table):
    text = to_csv(rank(table))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert text.splitlines()[0] == (
        "rank,image,quality,quality_low,quality_high,agreement,confidence,noise_variance,flags"
    )
    assert list(rows[0]) == column_names()
    assert rows[0]["quality"] == rows[0]["agreement"] == ""
    assert {row["image"] for row in rows} == {*table["image"]}
    assert "deep/er/photo, with comma.jpg" in {row["image"] for row in rows}
    found = records(rank(table))
    assert json.loads(json.dumps(found)) == found
    assert found[0]["agreement"] is None
    assert found[0]["flags"] == ["mostly void"]
    for one, row in zip(found[1:], rows[1:], strict=True):
        assert one["noise_variance"] == float(row["noise_variance"])


@pytest.mark.parametrize(
    ("top", "count"), [("25%", 4), ("100%", 15), ("0.1%", 1), (5, 5), ("5", 5), (500, 15)]
)
def test_the_best_are_kept(table, top, count):
    ranking = rank(table)
    assert (
        select_best(ranking, top=top)["image"].tolist() == ranking["image"].tolist()[::-1][:count]
    )


def test_selection_by_score(table):
    ranking = rank(table)
    found = select_best(ranking, min_score=0.5)
    assert {*found["image"]} == {*table["image"][table["quality"] >= 0.5]}
    agreeing = select_best(rank(table, "agreement"), min_score=0.9, by="agreement")
    assert {*agreeing["image"]} == {*table["image"][table["agreement"] >= 0.9]}
    assert (
        len(select_best(ranking, min_score=0.0)) == 14
    )  # the unknown one is not at least anything


@pytest.mark.parametrize("top", ["0%", "101%", "-3", "0", "some", "%", "2.5"])
def test_odd_shares(table, top):
    with pytest.raises(ValueError, match=r"such as 25%.*got"):
        select_best(rank(table), top=top)


def test_ways_to_select_exclude_each_other(table):
    for given in ({}, {"top": 3, "min_score": 0.5}):
        with pytest.raises(ValueError, match="one of top"):
            select_best(rank(table), **given)


def test_one_noise_for_all_has_no_confidence(job):
    _, dataset, _ = job
    table = GP().fit(dataset).review(dataset)
    assert table["confidence"].isna().all()
    assert table["noise_variance"].nunique() == 1
    assert len(rank(table)) == 15
    with pytest.raises(ValueError, match="one noise for all images"):
        rank(table, "confidence")


def test_a_model_keeps_its_review(job, table, tmp_path):
    _, dataset, model = job
    model.save(tmp_path / "model.zarr")
    again = load(tmp_path / "model.zarr")
    pd.testing.assert_frame_equal(again.review_, table, check_dtype=False)
    assert again.dataset_ == model.dataset_
    assert again.dataset_["backbone"]["name"] == "colour"
    X = np.asarray(dataset["features"])
    again.fit(X, dataset["label"].values, groups=dataset["image"].values, force=True)
    assert not hasattr(again, "review_")
    assert not hasattr(again, "dataset_")


def test_another_dataset_is_no_review(job, tmp_path):
    folder, _, model = job
    ingest(*save_pairs(tmp_path, 12), tmp_path / "other.zarr", recipe=QUICK)
    with pytest.raises(ValueError, match="fitted on another dataset"):
        model.review(open_dataset(tmp_path / "other.zarr"))
    images = [folder / "images", folder / "masks"]
    ingest(
        *images,
        tmp_path / "finer.zarr",
        recipe=Recipe(backbone="colour", superpixels=30),
        masks_as=MaskOptions(void=[128]),
    )
    with pytest.raises(ValueError, match="recipe superpixels is 20 there, 30 here"):
        model.review(open_dataset(tmp_path / "finer.zarr"))
    with pytest.raises(TypeError, match="pass the dataset"):
        model.review(np.ones((3, 31)))


@pytest.mark.parametrize("copy", [False, True])
def test_a_folder_for_other_tools(job, table, tmp_path, copy):
    folder, _, model = job
    chosen = select_best(rank(table), top=12)
    target = write_folder(chosen, model.dataset_["source"], tmp_path / "clean", copy=copy)
    for kind, ending in (("images", ".jpg"), ("masks", ".png")):
        found = {p.relative_to(target / kind).as_posix(): p for p in (target / kind).rglob("*.*")}
        assert {*found} == {name.replace(".jpg", ending) for name in chosen["image"]}
        for name, path in found.items():
            assert path.is_symlink() != copy
            assert path.read_bytes() == (folder / kind / name).read_bytes()
    with pytest.raises(FileExistsError, match="not an empty folder"):
        write_folder(chosen, model.dataset_["source"], tmp_path / "clean")


def test_a_folder_of_files_that_are_gone(job, table, tmp_path):
    _, _, model = job
    gone = table.assign(image_path=[f"/gone/{name}" for name in table["image"]])
    with pytest.raises(FileNotFoundError, match=r"15 files are no longer .* such as /gone/"):
        write_folder(gone, model.dataset_["source"] | {"images": "/gone"}, tmp_path / "clean")
    assert not (tmp_path / "clean").exists()


@pytest.mark.parametrize("name", ["../out.jpg", "/out.jpg", "a/../../out.jpg"])
def test_no_name_leads_out_of_the_folder(job, table, tmp_path, name):
    _, _, model = job
    hostile = table.head(1).assign(image=name)
    with pytest.raises(ValueError, match="leads out of its folder"):
        write_folder(hostile, model.dataset_["source"], tmp_path / "clean")


def test_a_coco_file_of_the_selected(tmp_path, run):
    images, masks = save_pairs(tmp_path, 12)
    write_coco(images, masks, tmp_path / "all.json")
    horses = MaskOptions(format="coco", categories=["horse"])
    ingest(images, tmp_path / "all.json", tmp_path / "data.zarr", recipe=QUICK, masks_as=horses)
    model = train(tmp_path / "data.zarr", tmp_path / "model.zarr")
    out, folder = tmp_path / "kept.json", tmp_path / "clean"
    code, text, err = run(
        "select", tmp_path / "model.zarr", "--top", "5", "--coco", out, "--folder", folder
    )
    assert code == 0, err
    assert "5 of 12 images" in text
    content = json.loads(out.read_text())
    best = select_best(rank(model.review_), top=5)["image"]
    assert {one["file_name"] for one in content["images"]} == {*best}
    assert {one["image_id"] for one in content["annotations"]} == {
        one["id"] for one in content["images"]
    }
    assert len(content["categories"]) == 2
    assert json.loads((folder / "annotations.json").read_text()) == content
    assert len(list((folder / "images").iterdir())) == 5
    with pytest.raises(ValueError, match="not made from a COCO instances file"):
        filter_coco({"format": "masks", "masks": "masks"}, best, tmp_path / "x.json")


def test_links_and_pipes_are_written_through(run, job, tmp_path):
    _, dataset, model = job
    model.review(dataset)
    model.save(tmp_path / "model.zarr")
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert run("rank", tmp_path / "model.zarr", "-o", tmp_path / "link.csv")[0] == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("rank,image")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run("rank", tmp_path / "model.zarr", "-o", tmp_path / "pipe")[0] == 0
    assert os.read(reader, 100).startswith(b"rank,image")
    os.close(reader)


def test_one_image_has_no_agreement(tmp_path):
    ingest(*save_pairs(tmp_path, 1), tmp_path / "one.zarr", recipe=QUICK)
    dataset = open_dataset(tmp_path / "one.zarr")
    assert GPGC().fit(dataset).review(dataset)["agreement"].isna().all()


def test_a_dataset_made_again_is_another_one(tmp_path):
    images, masks = save_pairs(tmp_path, 12)
    ingest(images, masks, tmp_path / "d.zarr", recipe=QUICK)
    model = GPGC().fit(open_dataset(tmp_path / "d.zarr"))
    save_mask(tmp_path, "photo_000", np.zeros((60, 80)))
    ingest(images, masks, tmp_path / "d.zarr", recipe=QUICK, run=RunOptions(overwrite=True))
    with pytest.raises(ValueError, match="has been created again since"):
        model.review(open_dataset(tmp_path / "d.zarr"))


def test_commands(run, job, tmp_path):
    folder, *_ = job
    model = tmp_path / "model.zarr"
    code, out, err = run("fit", folder / "data.zarr", "-o", model)
    assert code == 0
    assert "4 of 15 masks are suspect" in " ".join(out.split())
    assert "gpgc: 1 image(s) have fewer than two labelled superpixels" in err
    code, out, _ = run("rank", model)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 15
    assert [row["rank"] for row in rows] == [str(i) for i in range(1, 16)]
    code, out, _ = run("rank", model, "--json", "--by", "confidence", "-o", tmp_path / "r.json")
    assert json.loads(out) == json.loads((tmp_path / "r.json").read_text())
    code, out, _ = run("select", model, "--top", "20%")
    assert out.splitlines() == [row["image"] for row in rows[::-1][:3]]
    code, out, _ = run("select", model, "--top", "80%", "--rest", "--json")
    assert json.loads(out)["images"] == [row["image"] for row in rows[:3]]
    _, _, err = run("select", model, "--top", "100%", "--by", "confidence")
    assert "of the selected images have flags" in err
