"""Scores of annotations and proposed regions on drawn scenes whose true objects are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import roc_auc_score

from gpgc_dask import GpgcError
from gpgc_dask.data.run_lengths import encode
from gpgc_dask.models.objects import OBJECT_COLUMNS, objects_table
from gpgc_dask.quality.objects import score_objects
from gpgc_dask.quality.polygons import outlines
from gpgc_dask.quality.predictions import Evidence, Predictions
from gpgc_dask.results.objects import (
    FILE_COLUMNS,
    object_headline,
    object_records,
    objects_to_csv,
)

SIDE, CELL = 64, 4
CELLS = (SIDE // CELL) ** 2
SEGMENTS = (np.arange(SIDE)[:, None] // CELL * (SIDE // CELL) + np.arange(SIDE) // CELL).astype(
    np.uint16
)


def disc(y, x, radius):
    rows, columns = np.ogrid[:SIDE, :SIDE]
    return (rows - y) ** 2 + (columns - x) ** 2 < radius**2


def majority(mask):
    cells = mask.reshape(SIDE // CELL, CELL, SIDE // CELL, CELL).swapaxes(1, 2).reshape(CELLS, -1)
    return np.array([np.bincount(cell).argmax() for cell in cells])


def draw_scenes(n, error, n_classes=3, seed=0):
    """Scenes of two discs each, in every fourth of which one annotation has an error.

    Returns
    -------
    dataset, evidence
    wrong : array of bool
        Which annotations are wrong.
    changed : dict
        {image: pixels that are wrong in its mask}.
    """
    rng = np.random.default_rng(seed)
    masks, values, codes, objects, wrong, changed = [], [], [], [], [], {}
    for number in range(n):
        truth, mask = np.zeros((2, SIDE, SIDE), dtype=np.uint8)
        for half in range(2):
            y, x = rng.uniform(14, SIDE - 14), rng.uniform(12, 20) + half * SIDE // 2
            code, radius = int(rng.integers(1, n_classes)), rng.uniform(6, 10)
            inside, own, bad = disc(y, x, radius), code, half == 0 and number % 4 == 0
            truth[inside] = code
            if bad and error == "class":
                own = n_classes - code
            elif bad and error == "moved":
                inside = disc((y + 28) % (SIDE - 20) + 8, x, radius)
            elif bad and error == "deleted":
                continue
            mask[inside] = own
            objects.append((number, f"{number}-{half}", own, inside))
            wrong.append(bad)
        if number % 5 == 1:  # too small to be judged
            small = disc(3, 3, 1)
            objects.append((number, f"{number}-small", 1, small))
            wrong.append(False)
        changed[number] = mask != truth
        targets = 2.0 * np.eye(n_classes)[majority(truth)] - 1
        noisy = 0.5 * targets + 0.4 * rng.normal(size=targets.shape)
        values.append(noisy[:, 1] if n_classes == 2 else noisy)
        codes.append(majority(mask))
        masks.append(mask)
    evidence = Evidence(
        values=np.concatenate(values),
        codes=np.concatenate(codes),
        area=np.full(n * CELLS, float(CELL**2)),
        image=np.repeat(np.arange(n), CELLS),
        noise=np.full(n, np.nan),
        classes=np.arange(n_classes),
    )
    return make_dataset(masks, objects, n_classes), evidence, np.array(wrong), changed


def make_dataset(masks, objects, n_classes):
    n = len(masks)
    size = np.full(n, SIDE)
    areas = [inside.mean() for _, _, _, inside in objects]
    return xr.Dataset(
        {
            "segments": (("photo", "y", "x"), np.stack([SEGMENTS] * n)),
            "mask": (("photo", "y", "x"), np.stack(masks)),
            "segment_height": ("photo", size),
            "segment_width": ("photo", size),
            "height": ("photo", 2 * size),
            "width": ("photo", 2 * size),
            "image_name": ("photo", [f"{number}.png" for number in range(n)]),
            "object_image": ("object", np.array([one[0] for one in objects], dtype=np.int32)),
            "object_id": ("object", np.array([one[1] for one in objects], dtype=object)),
            "object_class": ("object", np.array([one[2] for one in objects], dtype=np.uint8)),
            "object_area": ("object", np.array(areas, dtype=np.float32)),
            "object_box": (("object", "side"), np.zeros((len(objects), 4), dtype=np.float32)),
            "object_region": (
                "object",
                np.array([encode(one[3]) for one in objects], dtype=object),
            ),
        },
        attrs={
            "classes": ["background", *(f"class {code}" for code in range(1, n_classes))],
            "class_values": list(range(n_classes)),
        },
    )


@pytest.mark.parametrize("error", ["class", "moved"])
def test_wrong_annotations_have_low_scores(error):
    dataset, evidence, wrong, _ = draw_scenes(60, error)
    scores = score_objects(dataset, Predictions.calibrated(evidence))
    small = np.array([name.endswith("small") for name in dataset["object_id"].values])
    np.testing.assert_array_equal(scores.judged, ~small)
    assert np.isnan(scores.score[small]).all()
    judged = scores.judged
    assert roc_auc_score(~wrong[judged], scores.score[judged]) > 0.95
    assert scores.score[wrong].mean() < 0.5 < 0.8 < scores.score[judged & ~wrong].mean()


def test_few_annotations_are_scored_by_their_margin():
    dataset, evidence, wrong, _ = draw_scenes(10, "class")
    scores = score_objects(dataset, Predictions.calibrated(evidence))
    judged = scores.judged
    assert ((scores.score[judged] >= 0) & (scores.score[judged] <= 1)).all()
    assert roc_auc_score(~wrong[judged], scores.score[judged]) > 0.9


def test_scores_do_not_depend_on_the_other_run():
    dataset, evidence, _, _ = draw_scenes(40, "class")
    first, again = (objects_table(dataset, evidence, np.ones(evidence.n_images)) for _ in range(2))
    assert first.equals(again)


def test_regions_that_cannot_be_decoded_are_reported():
    dataset, evidence, _, _ = draw_scenes(10, "class")
    dataset["object_region"][3] = "13"
    with pytest.raises(GpgcError, match="object_region holds run lengths"):
        score_objects(dataset, Predictions.calibrated(evidence))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_deleted_objects_are_proposed(n_classes):
    dataset, evidence, _, changed = draw_scenes(60, "deleted", n_classes)
    table = objects_table(dataset, evidence, np.ones(evidence.n_images))
    missing = table[table["kind"] == "missing"].head(60)
    found = 0
    for number in range(0, 60, 4):
        gone = changed[number]
        y, x = 2 * np.argwhere(gone).mean(0)
        own = missing[missing["image"] == f"{number}.png"]
        found += any(
            row.x <= x <= row.x + row.width and row.y <= y <= row.y + row.height
            for row in own.itertuples()
        )
    assert found >= 13  # of 15


def test_masks_without_objects_have_regions():
    dataset, evidence, _, changed = draw_scenes(40, "moved")
    nothing = dataset.isel(object=slice(0, 0))
    table = objects_table(nothing, evidence, np.ones(evidence.n_images))
    assert set(table["kind"]) <= {"missing", "spurious", "wrong class"}
    worst = table[table["kind"] == "spurious"].head(10)
    assert np.mean([changed[int(name.split(".")[0])].any() for name in worst["image"]]) > 0.8


def test_table_and_files():
    dataset, evidence, _, _ = draw_scenes(40, "class")
    table = objects_table(dataset, evidence, np.ones(evidence.n_images))
    assert tuple(table) == OBJECT_COLUMNS
    assert table["rank"].tolist() == list(range(1, len(table) + 1))
    judged = table[table["judged"]]
    assert judged["score"].is_monotonic_increasing
    assert not table["judged"].to_numpy()[len(judged) :].any()
    lines = objects_to_csv(table).splitlines()
    assert lines[0] == ",".join(FILE_COLUMNS)
    assert len(lines) == len(table) + 1
    assert lines[-1].split(",")[FILE_COLUMNS.index("score")] == ""
    records = json.loads(json.dumps(object_records(table)))
    assert list(records[0]) == list(OBJECT_COLUMNS)
    assert records[-1]["score"] is None
    assert all(len(polygon) >= 6 for record in records for polygon in record["polygon"])
    assert "too small to judge" in object_headline(table)


def test_outlines_enclose_their_region():
    inside = disc(20, 30, 10) & ~disc(20, 30, 3)
    ((flat,),) = outlines([inside], [(2.0, 3.0)])
    x, y = np.array(flat).reshape(-1, 2).T
    assert (x.min(), x.max()) == (3 * 21, 3 * 40)
    assert (y.min(), y.max()) == (2 * 11, 2 * 30)
