"""Reviews, and the leave-image-out decision values that a model keeps of them."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gpgc_dask import GP, GPGC, MarginSVM, RunOptions, load, open_dataset, write_report
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.subsets import take_photos
from gpgc_dask.models.review import (
    CLASS_IOU,
    count_confusions,
    leave_out_values,
    predict_and_review,
    rank,
)
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.export import export
from gpgc_dask.results.ranking import confusion, records, to_csv
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

MODELS = [GPGC(redundancy=1.0), GP(redundancy=1.0), MarginSVM(C=0.1)]


@pytest.fixture(scope="module")
def trained(reference, tmp_path_factory):
    """A reviewed model on disk."""
    path = tmp_path_factory.mktemp("trained") / "model.zarr"
    train(reference, path, parameters={"redundancy": 1.0})
    return path


@pytest.fixture
def featureless(reference, tmp_path):
    """A dataset whose features cannot be read, because their chunks are gone."""
    path = shutil.copytree(reference, tmp_path / "data.zarr")
    shutil.rmtree(path / "features/c")
    dataset = open_dataset(path)
    with pytest.raises(CorruptedError, match="of features cannot be read"):
        GP(redundancy=1.0).fit(dataset)
    return dataset


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_values_are_kept_saved_and_loaded(model, reference, tmp_path):
    dataset = open_dataset(reference)
    fitted = model.fit(dataset)
    assert fitted.leave_out is None
    table = fitted.review(dataset)
    expected = np.asarray(fitted.leave_group_out(dataset))
    assert fitted.leave_out.values.dtype == np.float32
    np.testing.assert_allclose(fitted.leave_out.values, expected, rtol=1e-6)
    fitted.save(tmp_path / "model.zarr")
    loaded = load(tmp_path / "model.zarr")
    np.testing.assert_array_equal(loaded.leave_out.values, fitted.leave_out.values)
    assert table["noise_variance"].notna().all() == (fitted.typical_noise is not None)
    assert table["confidence"].notna().all() == (fitted.group_confidence is not None)
    predicted, again = predict_and_review(loaded, dataset)
    pd.testing.assert_frame_equal(again, table)
    np.testing.assert_array_equal(predicted, expected > 0)


def test_reports_and_exports_read_no_features(trained, featureless, tmp_path):
    model = load(trained)
    assert write_report(featureless, model, tmp_path / "report.html").images == 30
    labels = export(model, tmp_path / "labels.json", "fiftyone", dataset=featureless)
    assert labels.images == 30
    export(model, tmp_path / "scores.npz", "cleanlab", dataset=featureless)
    with np.load(tmp_path / "scores.npz") as arrays:
        assert arrays["pred_probs"].shape == (arrays["labels"].size, 2)
    pd.testing.assert_frame_equal(model.review(featureless), load(trained).review_)


def test_commands_read_no_features(trained, featureless, tmp_path, run):
    data = featureless.encoding["source"]
    code, _, err = run("report", str(data), str(trained), "-o", str(tmp_path / "report.html"))
    assert code == 0, err


def test_values_of_other_rows_are_not_used(trained, reference):
    """Not for a part of the rows; after labels have changed there are none."""
    dataset, model = open_dataset(reference), load(trained)
    part = take_photos(dataset, np.arange(10))
    values = leave_out_values(model, part)
    np.testing.assert_allclose(values, np.asarray(model.leave_group_out(part)))
    turned = dataset.assign(label=1 - dataset["label"])
    with pytest.raises(InputError, match="are not those of the fit"):
        predict_and_review(model, turned)


def test_a_new_fit_forgets_them(reference):
    dataset = open_dataset(reference)
    model = GP(redundancy=1.0).fit(dataset)
    model.review(dataset)
    model.fit(dataset)
    assert model.leave_out is None
    assert model.review_table is None


def test_they_are_read_when_needed(trained, reference, tmp_path):
    path = shutil.copytree(trained, tmp_path / "model.zarr")
    model = load(path)
    for chunk in (path / "leave_out/c").iterdir():
        chunk.unlink()
    assert model.predict(open_dataset(reference)).size
    with pytest.raises(CorruptedError, match=r"chunk 0 of leave_out cannot be read"):
        model.leave_out.values  # noqa: B018


def test_values_of_another_model_are_not_taken_for_its_own(trained, reference, tmp_path):
    path = shutil.copytree(trained, tmp_path / "model.zarr")
    model = load(path)
    train(reference, path, parameters={"redundancy": 2.0}, run=RunOptions(overwrite=True))
    with pytest.raises(CorruptedError, match="has been replaced since the model was loaded"):
        predict_and_review(model, open_dataset(reference))


# -- more than two classes -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """(folder, dataset, model) of 12 images: ground, left and right; the last has no object."""
    folder = tmp_path_factory.mktemp("classes")
    images, masks = save_pairs(folder, 12)
    for number, path in enumerate(sorted(masks.iterdir())):
        mask = np.asarray(Image.open(path)) // 255 * (number < 11)
        mask = np.where(mask & (np.arange(80) > 40), 2, mask)
        Image.fromarray(mask.astype(np.uint8)).save(path)
    options = MaskOptions(classes={0: "ground", 1: "le/ft", 2: "right"})
    ingest(images, masks, folder / "data.zarr", recipe=QUICK, masks_as=options)
    dataset = open_dataset(folder / "data.zarr")
    model = GPGC(redundancy=1.0).fit(dataset)
    model.review(dataset)
    return folder, dataset, model


def test_iou_of_each_class(classes):
    _, dataset, model = classes
    predicted, table = predict_and_review(model, dataset)
    given, area = dataset["label"].values, dataset["pixels"].values
    image = dataset["image"].values
    own = [name for name in table if name.startswith(CLASS_IOU)]
    assert own == ["iou:ground", "iou:le/ft", "iou:right"]
    for photo, row in table.iterrows():
        for number, name in enumerate(own):
            first, second = given == number, predicted == number
            both = area[(image == photo) & first & second].sum()
            union = area[(image == photo) & (first | second)].sum()
            assert row[name] == pytest.approx(both / union if union else np.nan, nan_ok=True)
    np.testing.assert_allclose(table[own].mean(axis=1), table["agreement"])
    assert to_csv(rank(table)).splitlines()[0].endswith("flags,iou:ground,iou:le/ft,iou:right")
    assert [row["iou:le/ft"] for row in records(rank(table))] == [
        None if np.isnan(value) else float(f"{value:.6g}") for value in rank(table)["iou:le/ft"]
    ]


def test_two_classes_have_no_iou_of_their_own(trained, reference):
    model = load(trained)
    assert not [name for name in model.review_ if name.startswith(CLASS_IOU)]
    table = confusion(model, open_dataset(reference))
    assert table["classes"] == ["background", "foreground"]


def test_confused_classes(classes):
    _, dataset, model = classes
    predicted, _ = predict_and_review(model, dataset)
    counts = count_confusions(model, dataset)
    given, area = dataset["label"].values, dataset["pixels"].values
    for number, first in enumerate(["ground", "le/ft", "right"]):
        for other, second in enumerate(["ground", "le/ft", "right"]):
            chosen = (given == number) & (predicted == other)
            assert counts.loc[first, second] == area[chosen].sum()
    assert counts.to_numpy().sum() == 12 * 60 * 80


def test_confused_classes_are_printed(classes, run, tmp_path):
    folder, *_ = classes
    model = tmp_path / "model.zarr"
    code, out, err = run("fit", folder / "data.zarr", "-o", model, "--json")
    assert code == 0, err
    outcome = json.loads(out)
    assert outcome["bad"] is None  # fewer than 30 images
    assert outcome["confusion"] == confusion(load(model), open_dataset(folder / "data.zarr"))
    assert outcome["confusion"]["classes"] == ["ground", "le/ft", "right"]
    assert load(model).review_["iou:le/ft"].notna().any()
    code, out, err = run("info", folder / "data.zarr", "--model", model, "--json")
    assert code == 0, err
    assert json.loads(out)["confusion"] == outcome["confusion"]
    code, out, _ = run("info", folder / "data.zarr", "--model", model)
    assert "Predicted classes" in out
    pixels = np.array(outcome["confusion"]["pixels"])
    assert f"{100 * pixels[1, 1] / pixels[1].sum():.1f}" in out


def test_the_number_of_bad_masks_is_printed(reference, run, tmp_path):
    code, out, err = run("fit", reference, "-o", tmp_path / "model.zarr", "--json")
    assert code == 0, err
    outcome = json.loads(out)
    assert "confusion" not in outcome
    assert list(outcome["bad"]) == ["below", "estimate", "low", "high"]
    assert 0 <= outcome["bad"]["low"] <= outcome["bad"]["estimate"] <= outcome["bad"]["high"] <= 30
    _, out, _ = run("fit", reference, "-o", tmp_path / "model.zarr", "--overwrite")
    assert f"about {outcome['bad']['estimate']} of 30 masks" in " ".join(out.split())


def test_a_kept_review_is_not_computed_again(trained, reference, monkeypatch):
    model, dataset = load(trained), open_dataset(reference)
    monkeypatch.setattr("gpgc_dask.models.review.estimate_quality", None)
    moved = dataset.assign(image_path=("photo", [f"/new/{i}" for i in range(30)]))
    _, table = predict_and_review(model, moved)
    assert table["image_path"][7] == "/new/7"
    pd.testing.assert_frame_equal(
        table.drop(columns="image_path"), model.review_.drop(columns="image_path")
    )


COMMANDS = (
    ("report", "DATA", "MODEL", "-o", "page.html"),
    ("rank", "MODEL", "--objects", "-o", "objects.csv"),
    ("rank", "MODEL", "-o", "ranking.csv"),
    ("export", "MODEL", "--to", "cleanlab", "--data", "DATA", "-o", "labels.npz"),
    ("export", "MODEL", "--to", "label-studio", "--data", "DATA", "-o", "tasks.json"),
    ("export", "MODEL", "--to", "coco", "-o", "coco.json"),
)


def test_commands_after_a_fit_compute_nothing_again(run, trained, reference, tmp_path, monkeypatch):
    def computed(*arguments, **options):
        raise AssertionError("computed again")

    review = "gpgc_dask.models.review"
    for name in ("estimate_quality", "learn_quality", "objects_table", "calibrate"):
        monkeypatch.setattr(f"{review}.{name}", computed)
    monkeypatch.setattr(GPGC, "leave_group_out", computed)
    monkeypatch.setattr("gpgc_dask.quality.predictions.calibrate", computed)
    for command in COMMANDS:
        words = [{"DATA": reference, "MODEL": trained}.get(word, word) for word in command]
        words[-1] = tmp_path / words[-1]
        code, _, err = run(*words)
        assert code == 0, err
