"""Scores of masks against those of scikit-learn, boundaries against distance transforms."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import distance_transform_edt
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    cohen_kappa_score,
    confusion_matrix,
    f1_score,
    jaccard_score,
    precision_score,
    recall_score,
)
from typer.testing import CliRunner

from gpgc_dask import compare_annotators, evaluate
from gpgc_dask.cli import app
from gpgc_dask.core.errors import InputError, MissingFileError, UnusableFileError

pytestmark = pytest.mark.quick

CLASSES = {0: "ground", 4: "horse", 9: "rider"}
VOID = 255


def save(folder, masks):
    folder.mkdir(parents=True)
    for name, values in masks.items():
        Image.fromarray(np.asarray(values, dtype=np.uint8)).save(folder / f"{name}.png")
    return folder


def draw(seed, values, n=4):
    """Masks of a few blobs each, so that they have boundaries."""
    rng = np.random.default_rng(seed)
    return [np.kron(rng.choice(values, (4, 5)), np.ones((5, 6), dtype=int)) for _ in range(n)]


def pixels(firsts, seconds):
    """The pixels of all masks that are void in neither."""
    first, second = (np.concatenate([mask.ravel() for mask in all]) for all in (firsts, seconds))
    known = (first != VOID) & (second != VOID)
    return first[known], second[known]


@pytest.fixture
def several(tmp_path):
    """Predictions and true masks of three classes and void, as folders and as pixels."""
    guesses, trues = draw(0, [0, 4, 9, VOID]), draw(1, [0, 4, 4, 9, VOID])
    names = [f"m{i}" for i in range(len(trues))]
    predicted = save(tmp_path / "p", dict(zip(names, guesses, strict=True)))
    true = save(tmp_path / "t", dict(zip(names, trues, strict=True)))
    return predicted, true, guesses, trues


def test_scores_are_those_of_scikit_learn(several):
    predicted, true, guesses, trues = several
    found = evaluate(predicted, true, classes=CLASSES, void=[VOID])
    guess, truth = pixels(guesses, trues)
    values = list(CLASSES)
    for key, function in (
        ("iou", jaccard_score),
        ("dice", f1_score),
        ("precision", precision_score),
        ("recall", recall_score),
    ):
        expected = function(truth, guess, labels=values, average=None)
        own = [getattr(one, key) for one in found.classes.values()]
        assert own == pytest.approx(expected, rel=1e-12), key
    assert list(found.classes) == list(found.class_accuracy) == list(CLASSES.values())
    assert [one.pixels for one in found.classes.values()] == [(truth == v).sum() for v in values]
    assert found.confusion == confusion_matrix(truth, guess, labels=values).tolist()
    assert found.pixel_accuracy == pytest.approx(accuracy_score(truth, guess))
    assert found.average_class_accuracy == pytest.approx(balanced_accuracy_score(truth, guess))
    assert found.kappa == pytest.approx(cohen_kappa_score(truth, guess))
    assert found.mean_iou == pytest.approx(jaccard_score(truth, guess, average="macro"))
    assert found.mean_dice == pytest.approx(f1_score(truth, guess, average="macro"))
    only_predicted = sum(
        ((g == VOID) & (t != VOID)).sum() for g, t in zip(guesses, trues, strict=True)
    )
    assert found.void_predicted == only_predicted > 0
    assert (found.boundary, found.boundary_tolerance) == (None, None)


def test_scores_of_each_image(several):
    predicted, true, guesses, trues = several
    found = evaluate(predicted, true, classes=CLASSES, void=[VOID])
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    for one, row, *masks in zip(found.per_image, rows, guesses, trues, strict=True):
        guess, truth = pixels(*([mask] for mask in masks))
        present = np.union1d(guess, truth)
        each = jaccard_score(truth, guess, labels=present, average=None)
        expected = dict(zip((CLASSES[value] for value in present), each, strict=True))
        assert one.iou == pytest.approx(expected)
        assert one.mean_iou == pytest.approx(jaccard_score(truth, guess, average="macro"))
        assert one.mean_dice == pytest.approx(f1_score(truth, guess, average="macro"))
        assert one.pixel_accuracy == pytest.approx(accuracy_score(truth, guess))
        shown = {name: row[f"iou:{name}"] for name in CLASSES.values()}
        assert {name: float(text) for name, text in shown.items() if text} == one.iou
        assert float(row["mean_dice"]) == one.mean_dice


def test_two_sets_of_predictions_are_compared_on_the_same_pixels(tmp_path, several):
    predicted, true, guesses, trues = several
    others = draw(2, [0, 4, 9, VOID])
    other = save(tmp_path / "q", {f"m{i}": mask for i, mask in enumerate(others)})
    found = evaluate(predicted, true, against=other, classes=CLASSES, void=[VOID])
    same = [np.where(o == VOID, VOID, g) for g, o in zip(guesses, others, strict=True)]
    assert found.confusion == confusion_matrix(*pixels(same, trues)[::-1]).tolist()
    assert np.sum(found.confusion) == np.sum(found.against.confusion)


def test_values_of_predictions(tmp_path):
    """As gpgc predict writes them, or those of the true masks."""
    true = save(tmp_path / "t", {"a": [[0, 13, 13, 4, 255]]})
    written = save(tmp_path / "p", {"a": [[0, 255, 0, 0, 255]]})
    same = save(tmp_path / "q", {"a": [[255, 13, 0, 4, 13]]})
    options = {"foreground": [13], "void": [255]}
    assert evaluate(written, true, **options).confusion == [[2, 0], [1, 1]]
    found = evaluate(same, true, **options, same_values=True)
    assert (found.confusion, found.void_predicted) == ([[1, 0], [1, 1]], 1)
    with pytest.raises(UnusableFileError, match=r"q/a.png: .*--same-values"):
        evaluate(same, true, **options)
    with pytest.raises(InputError, match="all other pixels of the true masks in"):
        evaluate(
            save(tmp_path / "v", {"a": [[255] * 5]}), true, foreground=[13], void=[255],
            same_values=True,
        )  # fmt: skip


# -- boundaries ----------------------------------------------------------------------------------


def edges(region):
    """Pixels with a neighbour on one side that is not in the region, found by shifts."""
    inside = np.pad(region, 1, constant_values=True)
    neighbours = [inside[2:, 1:-1], inside[:-2, 1:-1], inside[1:-1, 2:], inside[1:-1, :-2]]
    return region & ~np.logical_and.reduce(neighbours)


def dense_boundary(guess, truth, value, tolerance):
    """Boundary F-score by distance transforms of the whole image; NaN without a boundary."""
    mine, other = edges(guess == value), edges(truth == value)
    if not mine.any() and not other.any():
        return np.nan
    if not mine.any() or not other.any():
        return 0.0
    precision = np.mean(distance_transform_edt(~other)[mine] <= tolerance)
    recall = np.mean(distance_transform_edt(~mine)[other] <= tolerance)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@pytest.mark.parametrize(
    ("boundary", "pixel"), [(0, 0), ("2", 2), (2.5, 2.5), ("5%", 0.05 * 36.06)]
)
def test_boundaries(tmp_path, boundary, pixel):
    guesses, trues = draw(3, [0, 4, 9]), draw(3, [0, 4, 9])
    guesses = [np.roll(mask, (i, 1), (0, 1)) for i, mask in enumerate(guesses)]
    trues[2][:], guesses[3][:] = 4, 0
    names = [f"m{i}" for i in range(4)]
    predicted = save(tmp_path / "p", dict(zip(names, guesses, strict=True)))
    true = save(tmp_path / "t", dict(zip(names, trues, strict=True)))
    found = evaluate(predicted, true, classes=CLASSES, boundary=boundary)
    expected = np.array(
        [
            [dense_boundary(g, t, value, pixel) for value in CLASSES]
            for g, t in zip(guesses, trues, strict=True)
        ]
    )
    own = [one.boundary for one in found.classes.values()]
    assert own == pytest.approx(np.nanmean(expected, axis=0))
    assert found.boundary == pytest.approx(np.nanmean(expected, axis=0).mean())
    assert [one.boundary for one in found.per_image] == pytest.approx(np.nanmean(expected, axis=1))
    assert found.boundary_tolerance == boundary


def test_a_boundary_hidden_by_void(tmp_path):
    """The predicted boundary may be anywhere in a void ring, as in VOC; outside it is wrong."""
    truth = np.zeros((40, 40), dtype=int)
    truth[8:32, 8:32], truth[12:28, 12:28] = 255, 1
    exact, large, blob = np.zeros((3, 40, 40), dtype=int)
    exact[11:30, 9:31] = large[2:38, 2:38] = blob[11:30, 9:31] = 1
    blob[18:22, 18:22] = 0
    true = save(tmp_path / "t", {"a": truth})
    scores = []
    for name, guess in (("exact", exact), ("large", large), ("blob", blob)):
        predicted = save(tmp_path / name, {"a": guess})
        found = evaluate(predicted, true, classes={0: "b", 1: "f"}, void=[255], boundary=1)
        scores.append(found.classes["f"].boundary)
    assert scores[0] == 1.0
    assert scores[1] < 0.1
    assert 0.5 < scores[2] < 1.0


def test_no_boundary(tmp_path):
    predicted = save(tmp_path / "p", {"a": np.zeros((3, 3))})
    true = save(tmp_path / "t", {"a": np.zeros((3, 3))})
    found = evaluate(predicted, true, boundary=1)
    assert (found.boundary, found.kappa, found.mean_iou) == (None, None, 1.0)
    for text in ("x", "-1", "100%", "nan"):
        with pytest.raises(InputError, match=r"--boundary.*got " + text):
            evaluate(predicted, true, boundary=text)


# -- annotators ----------------------------------------------------------------------------------


def test_annotators(several):
    first, second, ours, theirs = several
    Image.new("L", (30, 20)).save(first / "extra.png")
    options = {"classes": CLASSES, "void": [VOID], "boundary": "2"}
    found = compare_annotators(first, second, **options)
    mine, other = pixels(ours, theirs)
    assert found.kappa == pytest.approx(cohen_kappa_score(mine, other))
    assert found.pixel_agreement == pytest.approx(accuracy_score(mine, other))
    assert found.mean_iou == pytest.approx(jaccard_score(mine, other, average="macro"))
    assert found.mean_dice == pytest.approx(f1_score(mine, other, average="macro"))
    assert found.confusion == confusion_matrix(other, mine, labels=list(CLASSES)).tolist()
    assert [one.pixels for one in found.classes.values()] == [
        ((mine == value).sum(), (other == value).sum()) for value in CLASSES
    ]
    assert (found.images, found.unpaired) == (4, 1)
    for one, a, b in zip(found.per_image, ours, theirs, strict=True):
        assert one.kappa == pytest.approx(cohen_kappa_score(*pixels([a], [b])))
    turned = compare_annotators(second, first, **options)
    assert turned.per_image == found.per_image
    for key in ("pixel_agreement", "kappa", "mean_iou", "mean_dice", "boundary", "unpaired"):
        assert getattr(turned, key) == pytest.approx(getattr(found, key), rel=1e-12), key
    assert np.transpose(turned.confusion).tolist() == found.confusion


def test_annotators_without_common_images(tmp_path):
    first, second = (save(tmp_path / name, {name: [[0, 1]]}) for name in "ab")
    with pytest.raises(MissingFileError, match="has the name of a mask in"):
        compare_annotators(first, second)
    with pytest.raises(InputError, match="each pixel is void in"):
        compare_annotators(first, save(tmp_path / "c", {"a": [[7, 7]]}), void=[7])


def run(*arguments):
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


def test_commands(tmp_path, several):
    first, second, *_ = several
    options = ("--classes", "0=ground,4=horse,9=rider", "--void", VOID, "--boundary", "5%")
    result = run(first, second, *options)
    assert result.exit_code == 0, result.output
    for text in ("IoU", "Dice", "precision", "recall", "Cohen's kappa", "boundary F within 5%"):
        assert text in result.stdout
    assert f"pixels are void in {first} and do not count" in result.stdout
    result = run(first, second, *options, "--annotators", "-o", tmp_path / "images.csv")
    assert result.exit_code == 0, result.output
    assert "Agreement, 4 images" in result.stdout
    header = (tmp_path / "images.csv").read_text().splitlines()[0]
    assert header == (
        "image,pixel_agreement,kappa,mean_iou,mean_dice,boundary,iou:ground,iou:horse,iou:rider"
    )
    reported = json.loads(run(first, second, *options, "--annotators", "--json").stdout)
    expected = compare_annotators(first, second, classes=CLASSES, void=[VOID], boundary="5%")
    assert reported["kappa"] == expected.kappa
    assert reported["classes"]["horse"]["pixels"] == list(expected.classes["horse"].pixels)
    assert run(first, second, "--annotators", "--against", first).exit_code != 0
