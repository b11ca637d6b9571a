"""Predicted masks against true ones: numbers, the test, and what is wrong with files."""

from __future__ import annotations

import csv
import json
import os
import shutil

import numpy as np
import pytest
import typer
from PIL import Image
from scipy.stats import wilcoxon
from typer.testing import CliRunner

import gpgc_dask.results.evaluation.pixels as pixels
from gpgc_dask.cli.evaluate import EXAMPLE
from gpgc_dask.cli.evaluate import evaluate as evaluate_command
from gpgc_dask.core.errors import UnusableFileError
from gpgc_dask.results.evaluation import evaluate

pytestmark = pytest.mark.quick

app = typer.Typer(pretty_exceptions_enable=False)
app.command("evaluate", epilog=EXAMPLE)(evaluate_command)

THREE = {0: "ground", 4: "horse", 9: "rider"}


def save(folder, **masks):
    """Masks as PNGs; "a__b" is b in the subfolder a."""
    for name, values in masks.items():
        path = folder / f"{name.replace('__', '/')}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(values, dtype=np.uint8)).save(path)
    return folder


def corrupt(rng, values, choices, share):
    """The mask with a share of its pixels drawn again."""
    return np.where(rng.random(values.shape) < share, rng.choice(choices, values.shape), values)


def dense(trues, guesses, values, void=()):
    """(accuracy of each class pooled, per image averages), written out pixel by pixel."""
    hits, totals = dict.fromkeys(values, 0), dict.fromkeys(values, 0)
    per_image = []
    for true, guess in zip(trues, guesses, strict=True):
        shares = []
        for value in values:
            mine = (true == value) & ~np.isin(true, void)
            right = (mine & (guess == value)).sum()
            hits[value] += right
            totals[value] += mine.sum()
            if mine.any():
                shares.append(right / mine.sum())
        per_image.append(np.mean(shares) if shares else None)
    return [hits[v] / totals[v] for v in values], per_image


def values_of(scores):
    return [one.average_class_accuracy for one in scores.per_image]


def test_two_classes(tmp_path):
    rng = np.random.default_rng(0)
    trues = [(rng.random((7 + i, 9)) < 0.3) * 255 for i in range(6)]
    guesses = [corrupt(rng, true, [0, 255], 0.4) for true in trues]
    names = ["b", "a", "sub__a", "sub__deep__c", "d", "e.f"]
    true = save(tmp_path / "true", **dict(zip(names, trues, strict=True)))
    predicted = save(tmp_path / "predicted", **dict(zip(names, guesses, strict=True)))
    (background, foreground), per_image = dense(trues, guesses, [0, 255])
    reported = []
    found = evaluate(predicted, true, progress=reported.append)
    assert found.average_class_accuracy == pytest.approx((background + foreground) / 2, rel=1e-12)
    assert found.background_accuracy == pytest.approx(background, rel=1e-12)
    assert found.foreground_accuracy == pytest.approx(foreground, rel=1e-12)
    assert found.class_accuracy == pytest.approx(
        {"background": background, "foreground": foreground}
    )
    order = ["a.png", "b.png", "d.png", "e.f.png", "sub/a.png", "sub/deep/c.png"]
    assert [one.image for one in found.per_image] == order
    assert values_of(found) == pytest.approx([per_image[i] for i in (1, 0, 4, 5, 2, 3)], rel=1e-12)
    assert (found.images, found.ignored) == (6, 0)
    assert (found.against, found.wilcoxon_p, found.better) == (None, None, None)
    assert [(one.done, one.total) for one in reported] == [(i, 6) for i in range(7)]


@pytest.mark.parametrize("classes", [THREE, {9: "rider", 4: "horse", 0: "ground"}])
def test_several_classes_and_void(tmp_path, classes):
    rng = np.random.default_rng(1)
    trues = [rng.choice([0, 4, 9, 77], (11, 13), p=[0.5, 0.3, 0.1, 0.1]) for _ in range(5)]
    trues[2][trues[2] == 9] = 4
    trues[3][:] = 77
    guesses = [np.where(true == 77, 9, corrupt(rng, true, [0, 4, 9], 0.5)) for true in trues]
    guesses = [np.where(guess == 77, 0, guess) for guess in guesses]
    names = list("abcde")
    true = save(tmp_path / "true", **dict(zip(names, trues, strict=True)))
    predicted = save(tmp_path / "predicted", **dict(zip(names, guesses, strict=True)))
    (ground, horse, rider), per_image = dense(trues, guesses, [0, 4, 9], void=[77])
    found = evaluate(predicted, true, classes=classes, void=[77])
    assert found.class_accuracy == pytest.approx({"ground": ground, "horse": horse, "rider": rider})
    assert list(found.class_accuracy) == list(classes.values())
    assert found.average_class_accuracy == pytest.approx((ground + horse + rider) / 3)
    assert found.background_accuracy == pytest.approx(ground)
    assert found.foreground_accuracy == pytest.approx((horse + rider) / 2)
    assert found.images == 5
    assert per_image[3] is None
    assert values_of(found)[3] is None
    del per_image[3], found.per_image[3]
    assert values_of(found) == pytest.approx(per_image)


def test_background_without_a_value_of_zero_is_the_first_class(tmp_path):
    true = save(tmp_path / "true", a=[[1, 1, 2, 2]])
    predicted = save(tmp_path / "predicted", a=[[1, 2, 2, 2]])
    found = evaluate(predicted, true, classes={1: "street", 2: "car", 3: "tree"})
    assert (found.background_accuracy, found.foreground_accuracy) == (0.5, 1.0)
    assert found.class_accuracy == {"street": 0.5, "car": 1.0, "tree": None}
    assert found.average_class_accuracy == 0.75


def test_classes_that_do_not_occur(tmp_path):
    true = save(tmp_path / "true", a=np.zeros((2, 2)))
    predicted = save(tmp_path / "predicted", a=[[0, 0], [0, 255]])
    found = evaluate(predicted, true)
    assert (found.average_class_accuracy, found.background_accuracy) == (0.75, 0.75)
    assert found.foreground_accuracy is None
    assert found.class_accuracy == {"background": 0.75, "foreground": None}


def test_voc(tmp_path):
    """Class indices and a void border in palette PNGs; predictions of 0 and 255."""
    values = np.array([[0, 13, 13, 255], [4, 4, 13, 255]], dtype=np.uint8)
    image = Image.fromarray(values).convert("P")
    image.putpalette(np.random.default_rng(0).integers(0, 256, 768).tolist())
    image.putdata(values.ravel().tolist())
    (tmp_path / "true").mkdir()
    image.save(tmp_path / "true/2007_000032.png")
    shown = [[0, 255, 0, 255], [255, 0, 255, 0]]
    predicted = save(tmp_path / "predicted", **{"2007_000032": shown})
    found = evaluate(predicted, tmp_path / "true", foreground=[13], void=[255])
    assert found.foreground_accuracy == pytest.approx(2 / 3)
    assert found.background_accuracy == pytest.approx(2 / 3)
    result = CliRunner().invoke(
        app, [str(predicted), str(tmp_path / "true"), "--foreground", "13", "--void", "255"]
    )
    assert result.exit_code == 0, result.output
    assert "0.6667" in result.stdout


def test_soft_masks(tmp_path):
    true = save(tmp_path / "true", a=[[10, 100, 130, 250]])
    predicted = save(tmp_path / "predicted", a=[[0, 255, 255, 255]])
    assert evaluate(predicted, true, threshold=0.5).average_class_accuracy == 0.75


def test_predictions_of_any_ending_and_extra_ones(tmp_path):
    mask = np.array([[0, 255], [255, 255]], dtype=np.uint8)
    true = save(tmp_path / "true", a=mask, sub__b=mask)
    predicted = save(tmp_path / "predicted", a=mask, b=mask, sub__extra=mask, sub__a=mask)
    Image.fromarray(mask // 255).save(predicted / "sub/b.tif")
    found = evaluate(predicted, true)
    assert (found.average_class_accuracy, found.images, found.ignored) == (1.0, 2, 3)


def test_suffix(tmp_path):
    """Photos and masks in one folder: the photos are passed over."""
    true = save(tmp_path / "true", a_mask=[[0, 1]], b_mask=[[1, 1]], a=[[7, 8]], b=[[9, 9]])
    predicted = save(tmp_path / "predicted", a=[[0, 255]], b=[[0, 255]], c=[[0, 0]])
    found = evaluate(predicted, true, mask_suffix="_mask")
    assert [one.image for one in found.per_image] == ["a_mask.png", "b_mask.png"]
    assert (found.foreground_accuracy, found.ignored) == (pytest.approx(2 / 3), 1)


def test_folders_within_folders(tmp_path):
    """What is predicted into the folder of true masks is no true mask, nor the other way round."""
    inner = save(tmp_path / "masks/predicted", a=[[0, 1]])
    save(tmp_path / "masks/other", a=[[0, 1]])
    outer = save(tmp_path / "masks", a=[[0, 1]])
    found = evaluate(inner, outer, against=outer / "other")
    assert (found.images, found.ignored, found.against.ignored) == (1, 0, 0)
    shutil.rmtree(outer / "other")
    assert (evaluate(outer, inner).images, evaluate(outer, inner).ignored) == (1, 0)


def test_large_masks_strip_by_strip(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    true = (rng.random((50, 30)) < 0.5) * 255
    guess = corrupt(rng, true, [0, 255], 0.5)
    folders = save(tmp_path / "p", a=guess), save(tmp_path / "t", a=true)
    whole = evaluate(*folders)
    monkeypatch.setattr(pixels, "STRIP_PIXELS", 70)
    monkeypatch.setattr(pixels, "LARGE_PIXELS", 10)
    assert evaluate(*folders) == whole


def rivals(tmp_path, mine, other):
    """Folders of 1×100 true masks (all foreground) and two predictions of so many right pixels."""

    def masks(counts):
        return {f"i{n:02d}": [[255] * k + [0] * (100 - k)] for n, k in enumerate(counts)}

    true = save(tmp_path / "true", **masks([100] * len(mine)))
    return save(tmp_path / "p", **masks(mine)), true, save(tmp_path / "q", **masks(other))


@pytest.mark.parametrize(
    ("mine", "other", "better"),
    [
        (range(60, 85), range(40, 65), "predicted"),
        (range(60, 85), [62 + (7 * i) % 25 for i in range(25)], "against"),
        ([90, 80, 70, 95, 62, 77, 81], [89, 78, 67, 91, 57, *[60] * 2], "predicted"),
        ([90, 80, 70, 95, 62, *[77] * 12], [89, 78, 67, 91, 70, *[77] * 12], "predicted"),
        ([50, 60, 70], [49, 58, 73], None),
        ([50], [60], "against"),
    ],
)
def test_wilcoxon(tmp_path, mine, other, better):
    mine, other = list(mine), list(other)
    predicted, true, against = rivals(tmp_path, mine, other)
    found, turned = (
        evaluate(predicted, true, against=against),
        evaluate(against, true, against=predicted),
    )
    expected = wilcoxon(np.array(mine) / 100, np.array(other) / 100).pvalue
    assert found.wilcoxon_p == pytest.approx(expected, rel=1e-12)
    assert turned.wilcoxon_p == pytest.approx(expected, rel=1e-12)
    assert found.significant == turned.significant == (expected < 1e-3)
    assert values_of(found) == values_of(turned.against) == pytest.approx(np.array(mine) / 100)
    assert values_of(found.against) == values_of(turned)
    assert (found.images_better, found.images_worse) == (
        sum(a > b for a, b in zip(mine, other, strict=True)),
        sum(a < b for a, b in zip(mine, other, strict=True)),
    )
    opposite = {"predicted": "against", "against": "predicted", None: None}
    assert (found.better, turned.better) == (better, opposite[better])


def test_better_is_where_the_ranks_are(tmp_path):
    """Many small losses weigh less than a few large gains."""
    predicted, true, against = rivals(tmp_path, [80, 80, 50, 49, 48, 47], [50, 40, 51, 52, 51, 49])
    found = evaluate(predicted, true, against=against)
    assert (found.images_better, found.images_worse, found.better) == (2, 4, "predicted")


@pytest.mark.parametrize(("images", "too_few"), [(10, True), (11, False)])
def test_too_few_images(tmp_path, images, too_few):
    """All differ in one way: p = 2^(1 − n)."""
    mine = [50 + 2 * i for i in range(images)]
    predicted, true, against = rivals(tmp_path, mine, [50 - i - 1 for i in range(images)])
    found = evaluate(predicted, true, against=against)
    assert found.wilcoxon_p == pytest.approx(2.0 ** (1 - images))
    assert (found.too_few, found.significant, found.better) == (too_few, not too_few, "predicted")
    result = CliRunner().invoke(app, [str(predicted), str(true), "--against", str(against)])
    said = " ".join(result.stdout.split())
    assert ("too few images differ" in said) == too_few
    assert ("is better than" in said) != too_few


def test_equal_predictions(tmp_path):
    predicted, true, against = rivals(tmp_path, [50] * 20, [50] * 20)
    found = evaluate(predicted, true, against=against)
    assert (found.wilcoxon_p, found.significant, found.better) == (1.0, False, None)
    assert (found.images_better, found.images_worse, found.too_few) == (0, 0, True)
    result = CliRunner().invoke(app, [str(predicted), str(true), "--against", str(against)])
    assert "equally right on every image" in result.stdout


def test_void_images_are_not_tested(tmp_path):
    predicted, true, against = rivals(tmp_path, [50, 60, 70, 90], [40, 61, 50, 30])
    save(true, i03=[[7] * 100])
    found = evaluate(predicted, true, against=against, void=[7])
    assert found.wilcoxon_p == pytest.approx(wilcoxon([10, -1, 20]).pvalue)
    assert (found.images, found.images_better, found.images_worse) == (4, 2, 1)
    assert "i03.png,,,,,,,,\n" in found.to_csv()


def folders(tmp_path, n=8):
    """n true masks and as many predictions."""
    masks = {f"m{i}": [[0, 255, 255]] for i in range(n)}
    return save(tmp_path / "p", **masks), save(tmp_path / "t", **masks)


def test_missing_predictions(tmp_path):
    predicted, true = folders(tmp_path)
    for i in range(1, 8):
        (predicted / f"m{i}.png").unlink()
    with pytest.raises(
        FileNotFoundError, match=r"7 of 8 true masks have no prediction.*"
    ) as raised:
        evaluate(predicted, true)
    assert f"{predicted} lacks m1.*, m2.*, m3.*, m4.*, m5.* and 2 more. Predict" in str(
        raised.value
    )
    with pytest.raises(FileNotFoundError, match="do names differ"):
        evaluate(true, save(tmp_path / "masks", m0_mask=[[0, 1, 1]]))
    with pytest.raises(FileNotFoundError, match=rf"{predicted} lacks"):
        evaluate(
            save(tmp_path / "more", **{f"m{i}": [[0, 1, 1]] for i in range(8)}),
            true,
            against=predicted,
        )


def unreadable(predicted, true):
    (predicted / "m3.png").write_bytes(b"")


def cut_off(predicted, true):
    noise = np.random.default_rng(0).integers(0, 2, (60, 60))
    save(predicted, m3=noise)
    whole = (save(true, m3=noise) / "m3.png").read_bytes()
    (true / "m3.png").write_bytes(whole[: len(whole) // 2])


def nowhere(predicted, true):
    (predicted / "m3.png").unlink()
    (predicted / "m3.png").symlink_to("nowhere.png")


def taller(predicted, true):
    save(predicted, m3=[[0, 255, 255]] * 2)


def many_values(predicted, true):
    save(predicted, m3=[[0, 13, 255]])


def many_true_values(predicted, true):
    save(true, m3=[[0, 13, 255]])


def two_of_a_name(predicted, true):
    shutil.copy(predicted / "m3.png", predicted / "m3.bmp")


def two_true_of_a_name(predicted, true):
    shutil.copy(true / "m3.png", true / "m3.bmp")


@pytest.mark.parametrize(
    ("corrupt_files", "message"),
    [
        (unreadable, r"prediction .*p/m3.png: the file is empty"),
        (cut_off, r"true mask .*t/m3.png: corrupted"),
        (nowhere, r"prediction .*p/m3.png: cannot be opened"),
        (taller, r"prediction .*p/m3.png has 3×2 pixels, but its true mask .*t/m3.png has 3×1"),
        (
            many_values,
            r"p/m3.png: holds 3 values \(0, 13, 255\): a prediction has the value",
        ),
        (many_true_values, r"true mask .*t/m3.png: holds 3 values \(0, 13, 255\).*--foreground"),
        (two_of_a_name, r"several masks in .*p have the same name: m3.bmp and m3.png"),
        (two_true_of_a_name, r"several masks in .*t have the same name: m3.bmp and m3.png"),
    ],
)
def test_bad_files(tmp_path, corrupt_files, message):
    predicted, true = folders(tmp_path)
    corrupt_files(predicted, true)
    with pytest.raises(ValueError, match=message) as raised:
        evaluate(predicted, true)
    assert "\n" not in str(raised.value)


def test_a_predicted_pixel_is_a_class_or_void(tmp_path):
    true, predicted = save(tmp_path / "t", a=[[0, 4, 255]]), save(tmp_path / "p", a=[[0, 4, 77]])
    with pytest.raises(UnusableFileError, match=r"p/a.png: holds value\(s\) 77 .* one of 0, 4, 9"):
        evaluate(predicted, true, classes=THREE, void=[255])


def test_bad_folders(tmp_path):
    predicted, true = folders(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(true)
    for pair in ((true, tmp_path / "link"), (true, true)):
        with pytest.raises(ValueError, match="are the same folder"):
            evaluate(*pair)
    with pytest.raises(ValueError, match="are the same folder"):
        evaluate(predicted, true, against=predicted)
    with pytest.raises(FileNotFoundError, match=r"no masks in .*empty"):
        evaluate(predicted, tmp_path / "empty")
    with pytest.raises(FileNotFoundError, match=r"no masks whose names end in _gt in .*t"):
        evaluate(predicted, true, mask_suffix="_gt")
    with pytest.raises(FileNotFoundError, match=r"8 of 8 true masks .*empty lacks m0"):
        evaluate(tmp_path / "empty", true)
    with pytest.raises(NotADirectoryError, match=r"m0.png is not a folder"):
        evaluate(predicted / "m0.png", true)
    with pytest.raises(NotADirectoryError, match=r"nowhere is not a folder"):
        evaluate(predicted, true, against=tmp_path / "nowhere")


def test_what_cannot_be_compared(tmp_path):
    predicted, true = folders(tmp_path)
    with pytest.raises(ValueError, match=r"all pixels of the true masks in .* are void"):
        evaluate(predicted, true, foreground=[1], void=[0, 255])
    with pytest.raises(ValueError, match="need different names, got a, a"):
        evaluate(predicted, true, classes={0: "a", 255: "a"})
    with pytest.raises(ValueError, match="choose one of foreground"):
        evaluate(predicted, true, classes={0: "a", 255: "b"}, foreground=[255])


def test_names_that_are_not_unicode(tmp_path):
    predicted, true = folders(tmp_path, 1)
    for folder in (predicted, true):
        try:
            os.rename(folder / "m0.png", os.fsencode(folder) + b"/m\xff.png")
        except OSError:
            pytest.skip("this file system takes Unicode only")
    assert evaluate(predicted, true).per_image[0].image == "m?.png"
    os.truncate(os.fsencode(predicted) + b"/m\xff.png", 0)
    with pytest.raises(UnusableFileError, match=r"m\?.png: the file is empty"):
        evaluate(predicted, true)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_command(tmp_path):
    predicted, true, against = rivals(tmp_path, [90] * 20, list(range(60, 80)))
    save(predicted, extra=[[0, 0]])
    result = run(predicted, true)
    assert result.exit_code == 0, result.output
    assert f"{predicted}, 20 images" in " ".join(result.stdout.split())
    assert "0.9000" in result.stdout
    assert f"1 files in {predicted} have no true mask and are ignored" in result.stdout
    result = run(predicted, true, "--against", against)
    assert f"{predicted} is better than {against} (Wilcoxon signed-rank p = " in result.stdout
    assert "below 0.001)" in result.stdout
    assert "0.6950" in result.stdout
    swapped = run(against, true, "--against", predicted)
    assert f"{predicted} is better than {against}" in swapped.stdout


def test_command_with_classes(tmp_path):
    predicted = save(tmp_path / "[red]p", a=[[0, 4, 4, 4]])
    true = save(tmp_path / "t", a=[[0, 4, 9, 255]], void=[[255, 255, 255, 255]])
    save(predicted, void=[[0, 0, 4, 4]])
    result = run(predicted, true, "--classes", "0=ground,4=[b]horse,9=rider,11=dog", "--void", 255)
    assert result.exit_code == 0, result.output
    shown = ("[red]p", "[b]horse", "0.0000", "–", "0.5000", "0.6667")
    assert all(text in result.stdout for text in shown)
    assert "1 images are void at every pixel" in result.stdout


def test_json(tmp_path):
    predicted, true, against = rivals(tmp_path, [50, 60, 70], [40, 61, 72])
    reported = json.loads(run(predicted, true, "--json").stdout)
    keys = (
        "average_class_accuracy foreground_accuracy background_accuracy class_accuracy mean_iou "
        "pixel_accuracy mean_dice kappa boundary boundary_tolerance classes confusion images "
        "ignored void_predicted per_image"
    )
    assert set(reported) == set(keys.split())
    assert (reported["images"], reported["foreground_accuracy"]) == (3, 0.6)
    assert reported["background_accuracy"] is None
    assert reported["per_image"][0] == {
        "image": "i00.png",
        "average_class_accuracy": 0.5,
        "pixel_accuracy": 0.5,
        "mean_iou": 0.25,
        "mean_dice": pytest.approx(1 / 3),
        "boundary": None,
        "iou": {"background": 0.0, "foreground": 0.5},
    }
    both = json.loads(run(predicted, true, "--against", against, "--json").stdout)
    assert set(both["against"]) == set(reported)
    assert both["average_class_accuracy"] == reported["average_class_accuracy"]
    assert both["wilcoxon_p"] == evaluate(predicted, true, against=against).wilcoxon_p
    assert (both["significant"], both["too_few"]) == (False, True)


def test_out(tmp_path):
    predicted, true, against = rivals(tmp_path, [50, 60, 70], [40, 61, 72])
    out = tmp_path / "new/images.csv"
    assert run(predicted, true, "-o", out).exit_code == 0
    assert out.read_text().splitlines()[:2] == [
        "image,average_class_accuracy,pixel_accuracy,mean_iou,mean_dice,boundary,iou:background,"
        "iou:foreground",
        "i00.png,0.5,0.5,0.25,0.3333333333333333,,0.0,0.5",
    ]
    result = run(predicted, true, "--against", against, "--out", out)
    assert f"Scores of each image: {out}" in " ".join(result.stdout.split())
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["image", "average_class_accuracy", "against"]
    assert [float(row["against"]) for row in rows] == [0.4, 0.61, 0.72]


def test_wrong_calls(tmp_path):
    predicted, true = folders(tmp_path)
    for given, message in (
        (["--void", "x"], "whole numbers"),
        (["--classes", "0=a,0=b"], "named twice"),
    ):
        result = run(predicted, true, *given)
        assert (result.exit_code, message in " ".join(result.stderr.split())) == (2, True)
    assert isinstance(run(predicted, predicted).exception, ValueError)
