"""The ranking benchmark corrupts masks as it describes, and its scores and measures are right."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cleanlab.segmentation.rank import get_label_quality_scores
from PIL import Image

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
errors, sets = import_module("ranking_errors"), import_module("ranking_sets")
scores, ranking = import_module("ranking_scores"), import_module("ranking")


def blob(top=30, left=40, size=20):
    mask = np.zeros((100, 120), dtype=np.uint8)
    mask[top : top + size, left : left + size] = 1
    mask[top, left] = 0
    return mask


def street():
    mask = np.zeros((60, 80), dtype=np.uint8)
    mask[20:] = 3
    mask[25:45, 10:40] = 8
    mask[30:33, 60:63] = 6  # below 1 %
    mask[:, :2] = mask[10:14, 20:24] = errors.STREET_VOID
    return mask


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sets")
    sets.draw_folder(place, 20)
    return place


def write(folder, place, name, seed=0, share=None):
    kind = sets.SETS[name]
    share = kind.share if share is None else share
    return sets.write_examples(
        kind, sets.Job(folder / kind.folder, place, seed, share, nullcontext)
    )


# -- errors --------------------------------------------------------------------------------


def test_kinds_are_equally_frequent():
    kinds = errors.choose_kinds(100, 0.3, ["a", "b", "c"], np.random.default_rng(0))
    assert sorted(kinds) == [""] * 70 + ["a"] * 10 + ["b"] * 10 + ["c"] * 10


@pytest.mark.parametrize("seed", range(5))
def test_errors_of_one_object(seed):
    rng, mask = np.random.default_rng(seed), blob()
    centre = np.argwhere(mask).mean(0)
    step = (np.argwhere(errors.shift(mask, rng)).mean(0) - centre) / mask.shape
    assert np.hypot(*step) == pytest.approx(errors.SHIFT, abs=0.008)  # whole pixels
    dilated = errors.dilate(mask, rng)
    assert dilated[30 + 10, 40 - 6]
    assert not dilated[30 + 10, 40 - 7]  # 5 % of 120 pixels
    assert np.array_equal(errors.fill_box(mask, rng), square())
    assert not errors.remove(mask, rng).any()
    moved = errors.misplace(mask, rng)
    assert moved.sum() == mask.sum()
    assert errors.mask_iou(moved, mask, 2) < errors.ELSEWHERE


def square():
    mask = blob()
    mask[30, 40] = 1
    return mask


@pytest.mark.parametrize("seed", range(5))
def test_errors_of_scenes(seed):
    mask, void = street(), street() == errors.STREET_VOID
    for name, corruption in errors.STREET.items():
        result = corruption(mask, np.random.default_rng(seed))
        assert np.array_equal(result == errors.STREET_VOID, void), name
        assert np.any(result != mask), name
    dropped = errors.drop(mask, np.random.default_rng(seed))
    (gone,) = set(np.unique(mask)) - set(np.unique(dropped))
    assert gone in (0, 8)  # neither the most common class, nor the small one
    assert (dropped[mask == gone] == 3).all()
    swapped = errors.swap(mask, np.random.default_rng(seed))
    pairs = {(a, b) for a, b in zip(mask.flat, swapped.flat, strict=True) if a != b}
    assert len(pairs) == 2
    assert {pair[::-1] for pair in pairs} == pairs
    assert not any(6 in pair for pair in pairs)


def test_an_error_without_effect_is_replaced():
    kinds = {"box": errors.fill_box, "empty": errors.remove}
    result, kind = errors.corrupt(square(), "box", kinds, np.random.default_rng(0))
    assert kind == "empty"
    assert not result.any()


def test_errors_of_regions():
    rng, truth = np.random.default_rng(0), np.zeros((100, 120), dtype=np.uint8)
    hidden = errors.Region(blob(50) > 0, 1, 400.0)
    regions = [hidden, errors.Region(blob(50) > 0, 2, 399.0), errors.Region(blob(10) > 0, 3, 399.0)]
    truth = errors.paint_regions(regions, truth.shape)
    assert set(np.unique(truth)) == {0, 2, 3}  # the smaller region is in front
    for kind in errors.COCO:
        given = errors.corrupt_regions(regions, truth, kind, rng)
        assert np.any(given != truth), kind
    wrong = errors.corrupt_region(hidden, "wrong category", rng)[0]
    assert wrong.code in (2, 3, 4)


# -- sets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["street", "medical", "coco"])
def test_a_set_depends_on_its_seed_alone(name, folder, tmp_path):
    first, again = (write(folder, tmp_path / str(n), name) for n in range(2))
    other = write(folder, tmp_path / "other", name, seed=1)
    pd.testing.assert_frame_equal(first, again)
    for path in (tmp_path / "0/masks").iterdir():
        assert path.read_bytes() == (tmp_path / "1/masks" / path.name).read_bytes()
    assert first["kind"].tolist() != other["kind"].tolist()
    is_corrupted = first["kind"] != ""
    assert is_corrupted.sum() == round(sets.SETS[name].share * 20)
    assert (first["quality"] < 1).tolist() == is_corrupted.tolist()


@pytest.mark.parametrize("name", sets.CLEAN)
def test_a_clean_set_has_the_true_masks(name, folder, tmp_path):
    table = write(folder, tmp_path, name, share=0.0)
    assert (table["quality"] == 1).all()
    assert (table["kind"] == "").all()


def test_a_random_order_does_not_know_the_corrupted_masks():
    found = []
    for seed in range(40):
        rng = sets.Job(Path("coco"), Path(), seed, 0.25, nullcontext).rng
        bad = np.array(errors.choose_kinds(100, 0.25, errors.COCO, rng)) != ""
        found.append(scores.auroc(bad, scores.random_scores(100, seed)))
    assert np.mean(found) == pytest.approx(0.5, abs=0.04)  # 0.067 / √40 = 0.011


def test_horses_have_other_masks_for_another_seed(folder, tmp_path):
    given, cut = (write(folder, tmp_path / str(seed), "horses", seed=seed) for seed in range(2))
    assert given["image"].tolist() == cut["image"].tolist()
    assert given["quality"].tolist() != cut["quality"].tolist()
    name = Path(given["image"][3]).stem
    stored = np.asarray(Image.open(folder / f"horses/train/masks/{name}.png")) > 0
    assert np.array_equal(np.asarray(Image.open(tmp_path / f"0/masks/{name}.png")) > 0, stored)


# -- scores --------------------------------------------------------------------------------


def make_rows(n_images=10, per_image=12, classes=3):
    rng = np.random.default_rng(0)
    n = n_images * per_image
    y = rng.integers(classes, size=n)
    X = (rng.standard_normal((n, 5)) + y[:, None]).astype(np.float32)
    image = np.repeat(np.arange(n_images), per_image)
    return scores.Rows(X, y, image, rng.integers(1, 9, n).astype(float), n_images, classes)


def test_softmin_is_that_of_cleanlab():
    rows = make_rows()
    probability = np.random.default_rng(1).dirichlet(np.ones(3), rows.y.size)
    own = scores.softmin(probability, rows)
    for image in range(rows.n_images):
        pixels = np.repeat(
            np.flatnonzero(rows.image == image), rows.area[rows.image == image].astype(int)
        )
        labels, painted = rows.y[pixels][None, None], probability[pixels].T[None, :, None]
        quality, _ = get_label_quality_scores(labels, painted, verbose=False)
        assert own[image] == pytest.approx(quality[0], rel=1e-9)


def test_probabilities_are_out_of_sample(monkeypatch):
    monkeypatch.setattr(scores, "COSTS", (0.1,))
    rows = make_rows()
    before, cost = scores.logistic_probabilities(rows)
    assert cost == 0.1
    assert np.mean(before.argmax(1) == rows.y) > 0.5
    for image in range(3):
        own = rows.image == image
        y = np.where(own, (rows.y + 1) % 3, rows.y)
        changed = scores.Rows(rows.X, y, rows.image, rows.area, rows.n_images, 3)
        after, _ = scores.logistic_probabilities(changed)
        assert np.array_equal(after[own], before[own])
        assert not np.array_equal(after[~own], before[~own])


def test_decision_values_become_probabilities():
    rows = make_rows(classes=2)
    values = 2.0 * rows.y - 1 + np.random.default_rng(2).standard_normal(rows.y.size)
    probability = scores.leave_out_probabilities(values, rows)
    assert probability.sum(1) == pytest.approx(1)
    assert np.array_equal(np.argsort(probability[:, 1]), np.argsort(values))


def make_review():
    return pd.DataFrame(
        {
            "image": ["a", "b", "c", "d"],
            "quality": [0.8, 0.5, 0.3, 0.75],
            "quality_low": [0.55, 0.25, 0.05, 0.5],
            "quality_high": [1.05, 0.75, 0.55, 1.0],
            "bad_probability": [0.0, 0.6, 0.95, 0.05],
            "agreement": [0.9, 0.2, np.nan, 0.6],
            "noise_variance": [0.1, 3.0, 2.0, 1.0],
            "confidence": [0.75, 0.0, 0.25, 0.5],
            "flags": [""] * 4,
            "superpixels": [9] * 4,
        }
    )


def test_columns_of_a_review_are_scores():
    found = scores.review_scores(make_review())
    assert list(found) == [
        scores.DEFAULT, "`quality`", "`quality_low`", "`quality_high`", "`agreement`",
        "`noise_variance`",
    ]  # fmt: skip
    assert found["`noise_variance`"].tolist() == [-0.1, -3.0, -2.0, -1.0]
    assert sorted(found[scores.DEFAULT]) == [0, 1, 2, 3]
    assert found[scores.DEFAULT].argmax() == 0


# -- measures ------------------------------------------------------------------------------


def make_truth():
    return pd.DataFrame(
        {
            "kind": ["", "shift", "empty", ""],
            "quality": [1.0, 0.4, 0.0, 0.95],
            "empty": [False, False, True, False],
            "bad": [False, True, True, False],
        }
    )


def test_measures():
    perfect = scores.measure(np.array([0.9, 0.2, np.nan, 0.6]), make_truth())
    assert perfect["AUROC"] == perfect["average precision"] == perfect["Kendall τ"] == 1
    assert perfect["AUROC, not empty"] == perfect["bad in worst 25 %"] == 1
    wrong = scores.measure(np.array([0.1, 0.2, 0.3, 0.0]), make_truth())
    assert wrong["AUROC"] == wrong["AUROC, shift"] == wrong["bad in worst 5 %"] == 0
    half = scores.measure(np.array([0.9, 0.95, 0.1, 0.6]), make_truth())
    assert (half["AUROC"], half["AUROC, shift"], half["AUROC, empty"]) == (0.5, 0, 1)


def test_estimates():
    found = scores.measure_estimates(make_review(), make_truth())
    assert found["error"] == pytest.approx((0.2 + 0.1 + 0.3 + 0.2) / 4)
    assert (found["coverage"], found["suspect"], found["bad"]) == (0.75, 1, 2)
    assert (found["estimated below"], found["low"], found["high"]) == (2, 0, 2)
    assert (found["truly below"], found["count inside"]) == (2, 1)
    unknown = dict.fromkeys(["quality_low", "quality_high", "bad_probability"], np.nan)
    few = scores.measure_estimates(make_review().assign(**unknown), make_truth())
    assert np.isnan([few["coverage"], few["estimated below"], few["count inside"]]).all()


# -- the page ------------------------------------------------------------------------------


def make_run(name, values):
    measures = {score: {"AUROC": value} for score, value in values.items()}
    return ranking.Run(
        name, measures, scores.measure_estimates(make_review(), make_truth()), {}, {}
    )


def test_targets():
    values = {
        scores.DEFAULT: 0.96,
        "`quality_high`": 0.99,
        scores.LOGISTIC: 0.95,
        "`agreement`": 0.9,
    }
    groups = {"street": [make_run("street", values), make_run("street", values)]}
    reached = [target.reached for target in ranking.ranking_targets(groups)]
    assert reached == [True, True, None, None, None, None, True]
    groups["medical"] = [make_run("medical", values | {scores.DEFAULT: 0.88, "`agreement`": 0.97})]
    reached = [target.reached for target in ranking.ranking_targets(groups)]
    assert reached == [True, True, True, False, None, None, False]


def test_cells():
    assert ranking.cell([0.5]) == "0.500"
    assert ranking.cell([0.5, 0.7, float("nan")]) == "0.600 ± 0.141"
    assert ranking.cell([float("nan")]) == ""
