"""The paper's experiments, on datasets small enough to check by hand."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.stats import wilcoxon
from sklearn.metrics import average_precision_score, roc_auc_score

from gpgc_dask import GP, GPGC, open_dataset
from gpgc_dask.core.metrics import average_class_accuracy, confusion_matrix, signed_rank
from gpgc_dask.data.subsets import best_photos, take_photos
from gpgc_dask.experiments import compare
from gpgc_dask.experiments.accuracy import PixelCounts
from gpgc_dask.experiments.files import plot_tradeoff, to_markdown, write_comparison
from gpgc_dask.experiments.nested import fit_nested
from gpgc_dask.experiments.ranking_quality import TrueMasks, mask_iou, ranking_quality, true_iou
from gpgc_dask.experiments.scores import softmin_scores
from gpgc_dask.experiments.tables import runs_table, table_1, table_2, table_3
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.painting import paint_image
from gpgc_dask.pipelines.ingest import MaskOptions, Recipe, ingest
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

pytestmark = pytest.mark.newest

N = 24
CORRUPTED = (2, 7, 11, 13, 19)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """train/ with corrupted masks and their truth, and test/."""
    place = tmp_path_factory.mktemp("experiments")
    save_pairs(place / "train", N)
    (place / "train/masks").rename(place / "train/truth")
    (place / "train/masks").mkdir()
    for number in range(N):
        name = f"photo_{number:03d}.png"
        truth = np.asarray(Image.open(place / "train/truth" / name))
        given = np.roll(truth, 30, axis=1) if number in CORRUPTED else truth
        given = np.zeros_like(truth) if number == 13 else given
        Image.fromarray(given).save(place / "train/masks" / name)
    save_pairs(place / "test", 12)
    for kind in ("train", "test"):
        folders = [place / kind / "images", place / kind / "masks"]
        ingest(*folders, place / f"{kind}.zarr", recipe=QUICK)
    return place


@pytest.fixture(scope="module")
def train(place):
    return open_dataset(place / "train.zarr")


@pytest.fixture(scope="module")
def test(place):
    return open_dataset(place / "test.zarr")


@pytest.fixture(scope="module")
def found(place, train, test):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare(train, test, truth=place / "train/truth", draws=2)


# -- accuracy ----------------------------------------------------------------------------------


def test_the_accuracy_is_that_of_the_painted_prediction(test):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, test.sizes["superpixel"])
    result = PixelCounts.read(test).evaluate(labels)
    hits, totals, each = np.zeros(2), np.zeros(2), []
    for photo, path in enumerate(test["mask_path"].values):
        truth = (np.asarray(Image.open(path)) > 0).astype(np.intp)
        counts = confusion_matrix(truth, paint_image(test, labels, photo).astype(np.intp), 2)
        hits, totals = hits + counts.diagonal(), totals + counts.sum(1)
        each.append(average_class_accuracy(counts.diagonal(), counts.sum(1)))
    assert result.accuracy == pytest.approx(average_class_accuracy(hits, totals), rel=1e-12)
    np.testing.assert_allclose(result.per_image, each, rtol=1e-12)


def test_void_pixels_do_not_count(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    path = masks / "photo_001.png"
    Image.fromarray(np.full((60, 80), 128, dtype=np.uint8)).save(path)
    ingest(images, masks, tmp_path / "d.zarr", recipe=QUICK, masks_as=MaskOptions(void=[128]))
    dataset = open_dataset(tmp_path / "d.zarr")
    result = PixelCounts.read(dataset).evaluate(dataset["label"].values)
    assert np.isnan(result.per_image[1])
    assert np.isfinite(result.per_image[[0, 2]]).all()
    assert result.totals[1].sum() == 0


# -- statistics --------------------------------------------------------------------------------


def test_signed_rank_is_scipys():
    rng = np.random.default_rng(0)
    first, second = rng.random(40), rng.random(40) - 0.3
    found = signed_rank(first, second)
    assert found.p == wilcoxon(first, second).pvalue
    assert found.lean > 0
    assert found.better == (first > second).sum()
    assert found.significant == (found.p < 1e-3)
    gaps = signed_rank(np.append(first, [np.nan, 1.0]), np.append(second, [0.5, np.nan]))
    assert gaps == found


def test_equal_values_have_a_clear_outcome():
    found = signed_rank(np.full(20, 0.5), np.full(20, 0.5))
    assert (found.p, found.lean, found.too_few, found.significant) == (1.0, 0.0, True, False)
    assert signed_rank(np.full(3, np.nan), np.ones(3)).p == 1.0


def test_ranking_quality_of_small_examples():
    iou = np.array([0.9, 0.8, 0.2, 0.1, 0.7, 0.6, 0.95, 0.3])
    score = np.array([0.8, 0.9, 0.1, 0.2, 0.3, 0.7, 0.95, 0.4])
    found = ranking_quality(score, iou)
    # Ranks of score 6 7 1 2 3 5 8 4, of iou 7 6 2 1 5 4 8 3: Σd² = 1+1+1+1+4+1+0+1 = 10.
    assert found["spearman"] == pytest.approx(1 - 6 * 10 / (8 * 63))
    assert found["precision_worst_quarter"] == 1.0
    # Of 3 bad and 5 good masks one pair is the wrong way round (0.7 scored 0.3, 0.3 scored 0.4).
    assert found["auroc"] == pytest.approx(14 / 15)
    assert found["auroc"] == roc_auc_score(iou < 0.5, -score)
    assert found["auprc"] == average_precision_score(iou < 0.5, -score)
    # Of 28 pairs 4 are the wrong way round: ranks 7-6, 2-1, 5-4 and 5-3 of the IoU.
    assert found["kendall"] == pytest.approx((28 - 2 * 4) / 28)


def test_ranking_quality_where_it_is_not_defined():
    good = ranking_quality(np.array([0.1, 0.5, 0.2]), np.array([0.9, 0.8, 0.7]))
    assert np.isnan([good["auroc"], good["auprc"]]).all()
    assert good["precision_worst_quarter"] == 0.0
    assert np.isnan(ranking_quality(np.ones(3), np.array([0.1, 0.5, 0.9]))["spearman"])
    assert np.isnan(ranking_quality(np.ones(1), np.array([0.1]))["kendall"])
    unknown = ranking_quality(np.array([np.nan, 0.5, 0.9]), np.array([0.1, 0.6, 0.9]))
    assert unknown["auroc"] == 1.0  # what is not known comes first


def test_iou_of_masks():
    given, truth = np.zeros((2, 4), dtype=np.uint8), np.zeros((2, 4), dtype=np.uint8)
    assert mask_iou(given, truth, 2) == 1.0
    given[0], truth[0, :2] = 1, 1
    assert mask_iou(given, truth, 2) == 0.5
    truth[0, 3] = VOID
    assert mask_iou(given, truth, 2) == pytest.approx(2 / 3)
    given[1], truth[1] = 2, 2
    assert mask_iou(given, truth, 3) == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_true_iou_and_missing_truth(place, train, tmp_path):
    iou = true_iou(train, TrueMasks(train, place / "train/truth"))
    assert np.flatnonzero(iou < 0.5).tolist() == list(CORRUPTED)
    assert np.all(iou[[n for n in range(N) if n not in CORRUPTED]] == 1.0)
    with pytest.raises(FileNotFoundError, match="lacks the true masks of 24 of 24"):
        TrueMasks(train, tmp_path)


# -- subsets -----------------------------------------------------------------------------------


def test_best_photos_are_nested():
    score = np.array([0.5, np.nan, 0.9, 0.9, 0.1])
    assert best_photos(score, 0.2).tolist() == [2]
    assert best_photos(score, 0.4).tolist() == [2, 3]
    assert best_photos(score, 0.8).tolist() == [0, 2, 3, 4]
    assert best_photos(score, 0.001).tolist() == [2]


def test_a_subset_is_fitted_as_the_rows_alone(train):
    photos = np.array([0, 3, 4, 9, 10, 12, 15, 16, 17, 20])
    model = GPGC().fit(take_photos(train, photos))
    keep = np.isin(train["image"].values, photos)
    same = GPGC().fit(
        np.asarray(train["features"].values)[keep],
        train["label"].values[keep],
        groups=train["image"].values[keep],
        feature_groups=np.array(train["feature_group"].values.tolist()),
    )
    np.testing.assert_allclose(model.noise_variance_, same.noise_variance_, rtol=1e-3)
    assert model.groups_.size == photos.size


@pytest.mark.parametrize("budget", [1 << 40, 1 << 17])
def test_nested_fits_equal_separate_ones(train, monkeypatch, budget):
    monkeypatch.setattr("gpgc_dask.experiments.nested.PARTIAL_BYTES", budget)
    order = np.random.default_rng(1).permutation(N)
    subsets = [np.sort(order[:n]) for n in (1, 2, 5, 9, 18, 24)]
    models = fit_nested(train, subsets)
    for photos, model in zip(subsets, models, strict=True):
        same = GP(redundancy=1.0, dtype="float64").fit(take_photos(train, photos))
        np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-6, atol=1e-9)
        assert model.noise_variance_ == pytest.approx(same.noise_variance_, rel=1e-6)
        assert model.log_evidence_ == pytest.approx(same.log_evidence_, rel=1e-6)
        assert model.feature_scales_ == pytest.approx(same.feature_scales_, rel=1e-6)
        assert (model.n_reads_ == 1) == (budget > 1 << 30)
        assert model.converged_


def test_nested_subsets_must_be_nested(train):
    with pytest.raises(ValueError, match="subset 1 lacks photos"):
        fit_nested(train, [np.array([0, 1]), np.array([1, 2])])


def test_a_subset_without_a_class(train, test):
    """Photo 13 has an empty mask: alone it teaches nothing."""
    assert fit_nested(train, [np.array([13]), np.array([12, 13])])[0] is None


# -- the whole ---------------------------------------------------------------------------------


def test_the_tables(found):
    first = table_1(found).set_index("model")
    assert {*first.index} == {
        "SVM",
        "GP, c = 1",
        "GP",
        "GP-GC, c = 1",
        "GP-GC",
        "GP-GC, second look",
        "GP on true masks",
    }
    assert first["accuracy"].between(50, 100).all()
    second = table_2(found)
    assert {*second["model"]} == {"SVM", "GP, c = 1", "GP"}
    assert len(second) == 3 * 8
    random = second[second["rule"] == "random"]
    assert random["spread"].notna().all()
    third = table_3(found)
    assert len(third) == 3
    assert next(name for name in third if name.endswith("%")) == "1 %"
    assert found.table3_reads == 1


def test_every_cell_can_be_traced(found):
    runs = runs_table(found).set_index("number")
    per_image = {run.number: run.per_image for run in found.runs}
    for row in table_2(found).itertuples():
        own = [int(n) for n in row.runs.split(", ")]
        assert row.accuracy == pytest.approx(100 * runs.loc[own, "accuracy"].mean())
        assert {*runs.loc[own, "rule"]} == {row.rule}
        assert {*runs.loc[own, "images"]} == {6}
    line = table_1(found).set_index("model")
    by_model = {run.model: run.number for run in found.runs if run.table == 1 and run.rule == "all"}
    expected = wilcoxon(per_image[by_model["GP, c = 1"]], per_image[by_model["GP-GC"]]).pvalue
    assert line["p against GP-GC"]["GP, c = 1"] == pytest.approx(expected)


def test_the_rules_know_the_corrupted_masks(found):
    quality = found.quality.set_index(["rule", "images"])
    assert quality.loc[("agreement", "all"), "auroc"] > 0.95
    assert quality.loc[("agreement", "all"), "bad"] == len(CORRUPTED)
    assert quality.loc[("agreement", "not empty"), "n"] == N - 1
    for rule in ("agreement", "quality"):
        worst = np.argsort(found.scores[rule])[: len(CORRUPTED)]
        assert {*worst.tolist()} == {*CORRUPTED}


def test_cleanlabs_score_is_cleanlabs(train):
    cleanlab = pytest.importorskip("cleanlab")
    scores = softmin_scores(train)
    assert cleanlab.__version__
    assert scores.shape == (N,)
    assert np.all((scores >= 0) & (scores <= 1))
    good = [n for n in range(N) if n not in CORRUPTED]
    assert scores[list(CORRUPTED)].mean() < scores[good].mean()


def test_files(found, tmp_path):
    pytest.importorskip("matplotlib")
    written = {path.name for path in write_comparison(found, tmp_path / "out")}
    assert written == {*(path.name for path in (tmp_path / "out").iterdir())}
    assert {"tables.md", "table3.csv", "runs.csv", "per_image.csv", "tradeoff.svg"} <= written
    runs = pd.read_csv(tmp_path / "out/runs.csv")
    each = pd.read_csv(tmp_path / "out/per_image.csv")
    assert len(each) == 12 * len(runs)
    text = to_markdown(found)
    assert text.count("### Table") == 3
    assert "| GP-GC |" in text
    widths = [line.count("|") for line in text.splitlines() if line.startswith("| SVM")]
    assert widths
    assert "images kept" in plot_tradeoff(found).get_xlabel()


def test_a_class_missing_in_the_smallest_subset_is_a_dash(train, test):
    found = compare(train, test, svm=False, cleanlab=False, draws=0, shares=(0.01, 0.5))
    lone = [run for run in found.runs if run.table == 3 and run.share == 0.01]
    assert all(run.images == 1 for run in lone)
    corrupted = train.copy()
    # The best image by every rule has but one class: there is no model of it alone.
    corrupted["label"] = (corrupted["label"].dims, np.where(
        corrupted["image"].values == 0, 0, corrupted["label"].values))  # fmt: skip
    fits = fit_nested(corrupted, [np.array([0]), np.arange(N)])
    assert fits[0] is None
    assert fits[1] is not None


def test_other_features_or_classes_are_rejected(place, train, tmp_path):
    images = [place / "test/images", place / "test/masks"]
    ingest(*images, tmp_path / "finer.zarr", recipe=Recipe(backbone="colour", superpixels=40))
    with pytest.raises(ValueError, match="other features"):
        compare(train, open_dataset(tmp_path / "finer.zarr"))
    ingest(
        *images,
        tmp_path / "named.zarr",
        recipe=QUICK,
        masks_as=MaskOptions(classes={0: "ground", 255: "disc"}),
    )
    with pytest.raises(ValueError, match="other classes"):
        compare(train, open_dataset(tmp_path / "named.zarr"))


@pytest.mark.filterwarnings("ignore")
def test_the_command(run, place, tmp_path):
    given = [place / "train.zarr", "--test", place / "test.zarr", "--without-svm", "--draws", 1]
    code, out, err = run("compare", *given, "-o", tmp_path / "t", "--truth", place / "train/truth")
    assert code == 0, err
    assert "Table 1: all images" in out
    assert "GP-GC" in out
    assert re.search(r"GP on \d+ images by agreement", err)
    assert (tmp_path / "t/tables.md").exists()
    code, out, _ = run("compare", *given, "--json")
    found = json.loads(out)
    assert {*found} == {"table1", "table2", "table3"}
    assert found["table1"][0]["model"] == "GP, c = 1"
