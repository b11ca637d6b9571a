"""scikit-learn's conventions."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gpgc_dask import GP, GPGC
from tests.support.problems import classification

NOT_APPLICABLE = {
    "check_class_weight_classifiers": "expects an intercept; here the constant is a column of X, "
    "with a prior scale of its own, and the check's X has none",
}


@parametrize_with_checks([GPGC(), GP()], expected_failed_checks=lambda estimator: NOT_APPLICABLE)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator(estimator, check):
    check(estimator)


def test_clone_and_parameters():
    model = GPGC(solver="lbfgs", redundancy=2.0, noise_floor=1e-3)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(tol=1e-2).tol == 1e-2


def test_pipeline_passes_groups():
    data = classification(1000, 20, 40)
    pipeline = make_pipeline(StandardScaler(), GPGC())
    pipeline.fit(data.X, data.y, gpgc__groups=data.groups)
    assert pipeline[-1].noise_variance_.shape == (40,)
    assert pipeline.score(data.X, data.y) > 0.7


def test_grid_search_and_cross_validation():
    data = classification(600, 10, 30)
    search = GridSearchCV(GPGC(), {"redundancy": [1.0, 4.0]}, cv=GroupKFold(3))
    search.fit(data.X, data.y, groups=data.groups)
    assert search.best_score_ > 0.6
    assert cross_val_score(GP(), data.X, data.y, cv=3).min() > 0.6


def test_groups_are_routed_through_pipelines_folds_and_calibration():
    data = classification(600, 10, 30)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), GPGC().set_fit_request(groups=True))
        given = {"groups": data.groups}
        scores = cross_validate(
            pipeline, data.X, data.y, params=given, cv=GroupKFold(3), return_estimator=True
        )
        assert scores["test_score"].min() > 0.6
        assert [one[-1].groups_.size for one in scores["estimator"]] == [20, 20, 20]
        calibrated = CalibratedClassifierCV(pipeline, cv=GroupKFold(3))
        calibrated.fit(data.X, data.y, groups=data.groups)
    found = [one.estimator[-1].groups_.size for one in calibrated.calibrated_classifiers_]
    assert found == [20, 20, 20]
    np.testing.assert_allclose(calibrated.predict_proba(data.X).sum(1), 1)


def test_grid_search_routes_groups_to_the_fit():
    data = classification(600, 10, 12)
    with sklearn.config_context(enable_metadata_routing=True):
        model = GPGC().set_fit_request(groups=True)
        search = GridSearchCV(model, {"redundancy": [1.0, 4.0]}, cv=3)
        search.fit(data.X, data.y, groups=data.groups)
    assert search.best_estimator_.groups_.size == 12


def test_pandas_in_and_names_kept():
    pd = pytest.importorskip("pandas")
    data = classification(400, 4, 20)
    frame = pd.DataFrame(data.X, columns=list("abcd"))
    model = GPGC().fit(frame, pd.Series(data.y), groups=pd.Series(data.groups))
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("dcba")])


def test_class_weights_shift_the_decision():
    """What the check that is expected to fail looks for, on data with a constant column."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(0, 20, (400, 4)), np.ones(400)]
    y = rng.integers(0, 2, 400)
    for label in (0, 1):
        model = GP(class_weight={label: 1000.0, 1 - label: 1e-4}).fit(X, y)
        assert (model.predict(X) == label).mean() > 0.87


def test_several_classes_weigh_by_the_square_roots_of_their_totals():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(600, 3)), rng.choice(3, 600, p=[0.7, 0.25, 0.05])
    groups, weight = np.arange(600) // 20, rng.uniform(0.5, 1.5, 600)
    model = GPGC(rounds=0).fit(X, y, groups=groups, sample_weight=weight)
    totals = np.bincount(y, weight)
    ratio = model.class_weight_ * totals / totals**0.25
    assert ratio == pytest.approx(ratio[0])
    assert model.class_weight_ @ totals == pytest.approx(weight.sum())
    same = GPGC(rounds=0, class_weight="balanced").fit(X, y, groups=groups)
    assert np.ptp(same.class_weight_ * np.bincount(y)) < 1e-9 * 600


def test_balanced_weights_keep_the_total():
    data = classification(500, 5, 20)
    y = (data.X[:, 0] > np.quantile(data.X[:, 0], 0.9)).astype(int)
    model = GPGC(rounds=0).fit(data.X, y, groups=data.groups)
    counts = np.bincount(y)
    assert model.class_weight_ @ counts == pytest.approx(500)
    assert model.class_weight_[0] * counts[0] == pytest.approx(model.class_weight_[1] * counts[1])
