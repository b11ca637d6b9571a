"""Quality of masks that a model has never seen."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GPGC, ingest, load, open_dataset, rank, score
from gpgc_dask.core.errors import InputError, NotReviewedError, PipelineError
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, RunOptions
from gpgc_dask.quality.scorer import QualityScorer
from tests.support.images import save_pairs

N_IMAGES = 40
SMALL = Recipe(backbone="colour", superpixels=60)
WRONG = ("photo_003", "photo_007")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of 40 photos, and a folder of new photos, two of which have a wrong mask."""
    place = tmp_path_factory.mktemp("score")
    images, masks = save_pairs(place / "old", N_IMAGES)
    ingest(images, masks, place / "data.zarr", recipe=SMALL)
    dataset = open_dataset(place / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    model.save(place / "model.zarr")
    save_pairs(place / "all", N_IMAGES + 12)
    for part in ("images", "masks"):
        (place / "new" / part).mkdir(parents=True)
        for path in sorted((place / "all" / part).iterdir())[N_IMAGES:]:
            number = int(path.stem[-3:]) - N_IMAGES
            shutil.copy(path, place / "new" / part / f"photo_{number:03d}{path.suffix}")
    for name in WRONG:
        mask = np.zeros((60, 80), dtype=np.uint8)
        mask[:15, -20:] = 255
        Image.fromarray(mask).save(place / "new" / "masks" / f"{name}.png")
    return place


def score_new(folder, **more):
    return score(load(folder / "model.zarr"), folder / "new/images", folder / "new/masks", **more)


def test_wrong_masks_are_the_worst(folder):
    report = score_new(folder)
    ranking = rank(report.table)
    assert sorted(ranking["image"][:2].str[:9]) == list(WRONG)
    assert report.skipped == []
    good = ranking["quality"][2:]
    assert ranking["quality"][:2].max() < good.min()
    assert (ranking["quality_low"] <= ranking["quality"]).all()
    assert (ranking["quality"] <= ranking["quality_high"]).all()
    assert ranking["noise_variance"].isna().all()


def test_a_mask_is_scored_the_same_alone(folder, tmp_path):
    """The score of a mask does not depend on the others, nor on who computes it."""
    whole = score_new(folder).table.set_index("image")
    for part, name in (("images", "photo_003.jpg"), ("masks", "photo_003.png")):
        (tmp_path / part).mkdir()
        shutil.copy(folder / "new" / part / name, tmp_path / part / name)
    dataset = open_dataset(folder / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    alone = score(model, tmp_path / "images", tmp_path / "masks").table.set_index("image")
    for name in ("quality", "quality_low", "quality_high", "bad_probability", "agreement"):
        np.testing.assert_allclose(alone[name], whole.loc[["photo_003.jpg"], name], rtol=1e-9)


def test_scores_resemble_those_of_a_review(folder):
    """Masks of the fit, scored as if they were new, have about the quality of the review."""
    model = load(folder / "model.zarr")
    report = score(model, folder / "old/images", folder / "old/masks")
    assert len(report.in_fit) == N_IMAGES
    reviewed = model.review_.set_index("image")["quality"]
    scored = report.table.set_index("image")["quality"]
    assert np.abs(scored - reviewed[scored.index]).mean() < 0.1


def test_arrays_of_a_scorer(folder):
    scorer = load(folder / "model.zarr").scorer_
    again = QualityScorer.from_arrays(scorer.to_arrays())
    assert len(again.passes) == len(scorer.passes) >= 1
    np.testing.assert_equal(again.to_arrays(), scorer.to_arrays())


def test_few_images(folder, tmp_path):
    """A model of few images scores by its agreement, without an interval."""
    images, masks = save_pairs(tmp_path, 12)
    ingest(images, masks, tmp_path / "data.zarr", recipe=SMALL)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    table = score(model, folder / "new/images", folder / "new/masks").table
    assert table["quality"].between(0, 1).all()
    assert table["quality_low"].isna().all()


def test_several_classes_and_void(tmp_path):
    values = {0: "ground", 100: "left", 200: "right"}
    images, masks = save_pairs(tmp_path, 36)
    for path in masks.iterdir():
        mask = np.array(Image.open(path))
        side = np.where(np.arange(mask.shape[1]) < mask.shape[1] // 2, 100, 200)
        mask = np.where(mask > 0, side, 0).astype(np.uint8)
        mask[:4] = 255
        Image.fromarray(mask).save(path)
    options = MaskOptions(classes=values, void=[255])
    ingest(images, masks, tmp_path / "data.zarr", recipe=SMALL, masks_as=options)
    dataset = open_dataset(tmp_path / "data.zarr")
    model = GPGC().fit(dataset)
    model.review(dataset)
    Image.fromarray(np.full(mask.shape, 255, np.uint8)).save(masks / "photo_000.png")
    table = score(model, images, masks).table  # classes and void as of the dataset
    assert {"iou:ground", "iou:left", "iou:right"} <= {*table.columns}
    assert np.isnan(table["quality"][0])
    assert table["flags"][0] == "mostly void"
    assert table["quality"][1:].notna().all()
    swapped = MaskOptions(classes={0: "ground", 200: "right", 100: "left"}, void=[255])
    with pytest.raises(InputError, match="the same classes in the same order"):
        score(model, images, masks, masks_as=swapped)


def test_wrong_input(folder, tmp_path):
    model = load(folder / "model.zarr")
    arrays = GPGC().fit(np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2,
                        groups=np.arange(40) // 4)  # fmt: skip
    with pytest.raises(InputError, match="fitted on arrays"):
        score(arrays, folder / "new/images", folder / "new/masks")
    unreviewed = GPGC().fit(open_dataset(folder / "data.zarr"))
    with pytest.raises(NotReviewedError, match="has not reviewed"):
        score(unreviewed, folder / "new/images", folder / "new/masks")
    del model.scorer_
    with pytest.raises(InputError, match="by an older version"):
        score(model, folder / "new/images", folder / "new/masks")
    for part in ("images", "masks"):
        shutil.copytree(folder / "new" / part, tmp_path / part)
    (tmp_path / "masks/photo_002.png").write_bytes(b"no picture")
    with pytest.raises(PipelineError, match=r"photo_002"):
        score(load(folder / "model.zarr"), tmp_path / "images", tmp_path / "masks")
    report = score(load(folder / "model.zarr"), tmp_path / "images", tmp_path / "masks",
                   run=RunOptions(on_error="skip"))  # fmt: skip
    assert [problem.name for problem in report.skipped] == ["photo_002.jpg"]
    assert len(report.table) == 11
