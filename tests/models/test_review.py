"""Reviews, and the leave-image-out decision values that a model keeps of them."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest

from gpgc_dask import GP, GPGC, MarginSVM, RunOptions, load, open_dataset, write_report
from gpgc_dask.core.errors import CorruptedError, InputError
from gpgc_dask.data.subsets import take_photos
from gpgc_dask.models.review import leave_out_values, predict_and_review
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.export import export

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
