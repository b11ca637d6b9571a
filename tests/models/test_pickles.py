"""Models that pickle, joblib and skops keep: the same model comes back."""

from __future__ import annotations

import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gpgc_dask import GP, GPGC, MarginSVM, open_dataset
from gpgc_dask.models.kept_predictions import KeptPredictions
from gpgc_dask.models.review import rank
from gpgc_dask.quality.calibration import Calibration
from gpgc_dask.quality.scorer import QualityScorer
from gpgc_dask.storage.location import Location
from tests.support.problems import classification

OURS = {
    GPGC: "gpgc_dask.models.gp.GPGC",
    GP: "gpgc_dask.models.gp.GP",
    MarginSVM: "gpgc_dask.models.svm.MarginSVM",
}
"""Types that a reader of a skops file is asked to trust."""


def by_pickle(model):
    return pickle.dumps(model), pickle.loads(pickle.dumps(model))


def by_joblib(model):
    content = io.BytesIO()
    joblib.dump(model, content)
    content.seek(0)
    return content.getvalue(), joblib.load(content)


def by_skops(model):
    content = skops.io.dumps(model)
    unknown = skops.io.get_untrusted_types(data=content)
    own = model[-1] if hasattr(model, "steps") else model
    assert unknown == [OURS[type(own)]]
    return content, skops.io.loads(content, trusted=unknown)


WAYS = [by_pickle, by_joblib, by_skops]


def assert_same(first, second):
    """All that was learned is the same, in value and in type."""
    ours, theirs = vars(first), vars(second)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        if isinstance(value, pd.DataFrame):
            pd.testing.assert_frame_equal(value, theirs[name])
        elif isinstance(value, KeptPredictions):
            assert value.rows == theirs[name].rows
            np.testing.assert_array_equal(value.values, theirs[name].values)
        elif isinstance(value, Calibration):
            np.testing.assert_array_equal(value.to_array(), theirs[name].to_array())
        elif isinstance(value, QualityScorer):
            np.testing.assert_equal(theirs[name].to_arrays(), value.to_arrays())
        else:
            assert type(value) is type(theirs[name]), name
            np.testing.assert_equal(theirs[name], value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", [GPGC(), GP(tol=1e-3), MarginSVM(C=0.1)], ids=repr)
def test_models_fitted_on_arrays(model, way):
    data = classification(300, 6, 15)
    y = np.array(["cat", "dog"])[data.y]
    frame = pd.DataFrame(data.X, columns=list("abcdef"))
    fitted = clone(model).fit(frame, y, groups=data.groups, feature_groups=["x"] * 5 + ["constant"])
    _, loaded = way(fitted)
    assert_same(fitted, loaded)
    np.testing.assert_array_equal(loaded.predict(frame), fitted.predict(frame))
    np.testing.assert_array_equal(loaded.decision_function(frame), fitted.decision_function(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[list("fedcba")])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", [GPGC(), GP(), MarginSVM(C=0.1)], ids=repr)
def test_models_fitted_on_a_dataset(model, way, reference):
    dataset = open_dataset(reference)
    fitted = clone(model).fit(dataset)
    fitted.review(dataset)
    _, loaded = way(fitted)
    assert_same(fitted, loaded)
    np.testing.assert_array_equal(loaded.predict(dataset), fitted.predict(dataset))
    assert rank(loaded.review_)["image"].tolist() == rank(fitted.review_)["image"].tolist()
    pd.testing.assert_frame_equal(loaded.review(dataset), fitted.review_)


@pytest.mark.parametrize("way", WAYS)
def test_models_in_a_pipeline(way):
    data = classification(300, 6, 15)
    pipeline = make_pipeline(StandardScaler(), GPGC(class_weight={0: 1.0, 1: 2.0}))
    pipeline.fit(data.X, data.y, gpgc__groups=data.groups)
    _, loaded = way(pipeline)
    assert_same(pipeline[-1], loaded[-1])
    np.testing.assert_array_equal(loaded.predict_proba(data.X), pipeline.predict_proba(data.X))


@pytest.mark.parametrize("way", WAYS)
def test_what_belongs_to_the_session_stays_there(way, tmp_path):
    """Callables cannot be kept, and credentials must not be."""
    data = classification(300, 6, 15)
    heard = []
    model = GPGC(progress=lambda entry: heard.append(entry), checkpoint=tmp_path / "fit.npz")
    model.fit(data.X, data.y, groups=data.groups)
    model.checkpoint = Location("s3://bucket/fit.npz", {"key": "me", "secret": "hush-hush"})
    content, loaded = way(model)
    assert heard
    assert loaded.progress is None
    assert loaded.checkpoint == "s3://bucket/fit.npz"
    assert b"hush-hush" not in content
    assert callable(model.progress)  # the one that was written is as it was
    assert model.checkpoint.options["secret"] == "hush-hush"
    np.testing.assert_array_equal(loaded.predict(data.X), model.predict(data.X))


def test_what_is_not_fitted_is_sent_as_it_is():
    """Workers of a grid search get copies that still report their progress."""
    import cloudpickle

    model = cloudpickle.loads(cloudpickle.dumps(GPGC(progress=lambda entry: entry)))
    assert callable(model.progress)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(GPGC(progress=lambda entry: entry))
