"""MarginSVM against scikit-learn's LinearSVC and margins written out."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import gpgc_dask.models._hinge as hinge
import gpgc_dask.models.svm as svm
import gpgc_dask.models.svm_memory as memory
from gpgc_dask import MarginSVM, open_dataset
from tests.support.problems import classification

pytestmark = pytest.mark.filterwarnings("ignore:the best C is the")

NO_INTERCEPT = {
    "check_class_weight_classifiers": "expects an intercept; here the constant is a column of X, "
    "and the check's X has none",
}
FOLDS_OF_ROWS = {
    "check_sample_weight_equivalence_on_dense_data": "copies of a row are in several folds where "
    "C is chosen without groups; a given C passes",
}
SOME = 2.0 ** np.arange(-14, -5, 2)


def expected_failures(estimator):
    return NO_INTERCEPT | (FOLDS_OF_ROWS if estimator.C == "auto" else {})


@parametrize_with_checks([MarginSVM(), MarginSVM(C=0.01)], expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore")
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.fixture
def some(monkeypatch):
    """A short grid."""
    monkeypatch.setattr(svm, "GRID", SOME)


def scattered(n_classes=2, n=600, n_groups=20, seed=0):
    """A problem whose groups are not adjacent, with a best C well inside the grid."""
    data = classification(n, 8, n_groups, seed, n_classes=n_classes)
    order = np.random.default_rng(seed).permutation(n)
    return 8 * data.X[order], data.y[order], data.groups[order]


def linear_svc(C, **options):
    return LinearSVC(C=C, dual=False, fit_intercept=False, tol=1e-9, max_iter=10_000, **options)


def balanced(y, weights):
    total = {label: weights[y == label].sum() for label in np.unique(y[weights > 0])}
    return {label: sum(total.values()) / (len(total) * part) for label, part in total.items()}


# -- the model and its C ---------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_linear_svc_with_folds_by_group(n_classes):
    X, y, groups = scattered(n_classes)
    model = MarginSVM().fit(X, y, groups=groups)
    scores = [
        balanced_accuracy_score(
            y,
            cross_val_predict(
                linear_svc(C, class_weight="balanced"), X, y, groups=groups, cv=GroupKFold(5)
            ),
        )
        for C in 2.0 ** np.arange(-20, 0)
    ]
    np.testing.assert_allclose(model.cv_scores_, scores, rtol=1e-12)
    np.testing.assert_array_equal(model.C_grid_, 2.0 ** np.arange(-20, 0))
    assert 2.0 ** (np.argmax(scores) - 20) == model.C_
    wanted = linear_svc(model.C_, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(model.predict(X), wanted.predict(X))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_count_in_training_and_in_scores(some, n_classes):
    X, y, groups = scattered(n_classes)
    weights = np.random.default_rng(1).integers(0, 4, y.size).astype(float)
    model = MarginSVM(n_folds=4).fit(X, y, groups=groups, sample_weight=weights)
    with_weight = weights > 0
    X, y, groups, weights = (a[with_weight] for a in (X, y, groups, weights))
    scores = []
    for C in SOME:
        predicted = np.empty_like(y)
        for kept, held in GroupKFold(4).split(X, y, groups):
            own = linear_svc(C, class_weight=balanced(y[kept], weights[kept]))
            own.fit(X[kept], y[kept], sample_weight=weights[kept])
            predicted[held] = own.predict(X[held])
        scores.append(balanced_accuracy_score(y, predicted, sample_weight=weights))
    np.testing.assert_allclose(model.cv_scores_, scores, rtol=1e-12)
    assert SOME[np.argmax(scores)] == model.C_
    wanted = linear_svc(model.C_, class_weight=balanced(y, weights))
    wanted.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-4, atol=1e-6)
    assert model.class_weight_.tolist() == pytest.approx(list(balanced(y, weights).values()))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_newton_finds_the_optimum_of_liblinear(scale):
    """Also with columns that are copies of each other, of any size, and with more than rows."""
    X, y, _ = scattered(n=60, n_groups=6)
    X = np.column_stack([X] * 9) * scale
    signs, cost = np.where(y == 1, 1.0, -1.0), np.linspace(0.5, 2.0, y.size)
    grid = np.array([1e-3, 1.0]) / scale**2
    for C, (values, converged) in zip(
        grid, hinge.newton_path(X, signs, cost, grid, tol=1e-8, max_iter=200), strict=True
    ):
        wanted = linear_svc(C).fit(X, y, sample_weight=cost)
        assert converged
        np.testing.assert_allclose(values, wanted.decision_function(X), atol=1e-4)


def test_of_equal_scores_the_smaller_cost(monkeypatch):
    """Classes are separated at any cost but the first."""
    monkeypatch.setattr(svm, "GRID", np.array([1e-6, 1e-2, 1e-1, 1.0]))
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = np.column_stack([2.0 * y - 1 + rng.uniform(-0.5, 0.5, 200), np.ones(200)])
    X[:, 0] += 3.0
    model = MarginSVM(class_weight={0: 1.0, 1: 9.0}).fit(X, y, groups=np.arange(200) // 10)
    assert model.cv_scores_[0] < 1
    assert model.cv_scores_[2:].tolist() == [1, 1]
    assert svm.GRID[np.argmax(model.cv_scores_ == 1)] == model.C_


@pytest.mark.parametrize("end", ["smallest", "largest"])
def test_a_cost_at_the_end_of_the_grid_is_reported(monkeypatch, end):
    X, y, groups = scattered()
    best = MarginSVM().fit(X, y, groups=groups)
    assert 2.0**-20 < best.C_ < 2.0**-1
    beyond = best.C_ * np.array([1.0, 2.0, 4.0] if end == "smallest" else [0.25, 0.5, 1.0])
    monkeypatch.setattr(svm, "GRID", beyond)
    with pytest.warns(UserWarning, match=f"best C is the {end}.*pass C=") as caught:
        model = MarginSVM().fit(X, y, groups=groups)
    assert caught[0].filename == __file__
    assert model.C_ == best.C_


def test_a_given_cost_is_taken(recwarn):
    X, y, groups = scattered()
    model = MarginSVM(C=0.25).fit(X, y, groups=groups)
    assert model.C_ == 0.25
    assert model.cv_scores_.size == model.C_grid_.size == 0
    assert not recwarn.list


def test_threads_change_nothing(some):
    X, y, groups = scattered(3)
    one, three = (MarginSVM(n_jobs=n).fit(X, y, groups=groups) for n in (1, 3))
    np.testing.assert_array_equal(one.cv_scores_, three.cv_scores_)
    np.testing.assert_array_equal(one.coef_, three.coef_)


# -- folds -----------------------------------------------------------------------------------


def test_fewer_groups_than_folds(some):
    X, y, groups = scattered(n_groups=3)
    five, three = (MarginSVM(n_folds=n).fit(X, y, groups=groups) for n in (5, 3))
    np.testing.assert_array_equal(five.cv_scores_, three.cv_scores_)


def test_one_group_needs_a_cost():
    X, y, _ = scattered()
    with pytest.raises(ValueError, match=r"one group only.*pass C="):
        MarginSVM().fit(X, y, groups=np.zeros(y.size))
    assert MarginSVM(C=0.1).fit(X, y, groups=np.zeros(y.size)).group_margin_.shape == (1,)


def test_without_groups_folds_are_of_rows(some):
    X, y, _ = scattered()
    model = MarginSVM().fit(X, y)
    fold = np.empty(y.size, dtype=int)
    fold[np.argsort(y, kind="stable")] = np.arange(y.size) % 5
    named = MarginSVM().fit(X, y, groups=fold)
    np.testing.assert_array_equal(model.cv_scores_, named.cv_scores_)
    assert model.groups_.tolist() == ["all"]


def test_a_class_that_a_fold_lacks(some):
    """Its rows are all in one group: held out, none of them can be right."""
    X, y, groups = scattered(3)
    rare = (y == 2) & (groups != 4)
    X, y, groups = X[~rare], y[~rare], groups[~rare]
    model = MarginSVM(n_folds=4).fit(X, y, groups=groups)
    predicted = cross_val_predict(
        linear_svc(SOME[2], class_weight="balanced"), X, y, groups=groups, cv=GroupKFold(4)
    )
    assert not (predicted[y == 2] == 2).any()
    assert model.cv_scores_[2] == pytest.approx(balanced_accuracy_score(y, predicted), rel=1e-12)
    assert model.coef_.shape == (3, 8)


def test_folds_of_one_class(some):
    X, y, groups = scattered(n_groups=2)
    y = np.where(groups == 0, "a", "b")
    with pytest.warns(UserWarning, match="smallest"):
        model = MarginSVM().fit(X, y, groups=groups)
    assert (model.cv_scores_ == 0).all()
    assert SOME[0] == model.C_


# -- margins ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_margins_of_small_examples(n_classes):
    X, y, groups = scattered(n_classes)
    names = np.array([f"photo {number}" for number in groups])
    weights = np.random.default_rng(2).integers(0, 3, y.size).astype(float)
    weights[groups == 5] = 0.0
    model = MarginSVM(C=0.01).fit(X, y, groups=names, sample_weight=weights)
    total, count = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for x, label, name, weight in zip(X, y, names, weights, strict=True):
        f = model.coef_ @ x
        if n_classes == 2:
            margin = f[0] if label == 1 else -f[0]
        else:
            margin = f[label] - max(f[other] for other in range(3) if other != label)
        total[name] += weight * margin
        count[name] += weight
    assert model.groups_.tolist() == sorted(count)
    for name, margin in zip(model.groups_, model.group_margin_, strict=True):
        if name == "photo 5":
            assert np.isnan(margin)
        else:
            assert margin == pytest.approx(total[name] / count[name], rel=1e-9)


def test_rows_without_weight_are_not_there(some):
    X, y, groups = scattered()
    gone = np.random.default_rng(3).random(y.size) < 0.3
    wrong = np.where(gone, "void", np.array(["horse", "sky"])[y])
    model = MarginSVM().fit(X * (1 + gone[:, None]), wrong, groups=groups, sample_weight=~gone)
    without = MarginSVM().fit(X[~gone], wrong[~gone], groups=groups[~gone])
    assert model.classes_.tolist() == ["horse", "sky"]
    np.testing.assert_array_equal(model.coef_, without.coef_)
    np.testing.assert_array_equal(model.group_margin_, without.group_margin_)
    np.testing.assert_array_equal(model.rows_used_, np.flatnonzero(~gone))


def test_corrupted_groups_have_small_margins():
    data = classification(4000, 20, 40, corrupted=0.2)
    model = MarginSVM().fit(data.X, data.y, groups=data.groups)
    unreliable = data.flip_rate > 0.1
    assert model.group_margin_[unreliable].max() < model.group_margin_[~unreliable].min()


# -- dask and datasets -----------------------------------------------------------------------


@pytest.mark.parametrize("max_rows", [None, 300])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_dask_is_numpy(some, dtype, max_rows):
    X, y, groups = scattered(3)
    X = X.astype(dtype)
    lazy = da.from_array(X, chunks=((7, 200, 0, 393), -1))
    weights = np.where(np.arange(y.size) % 11, 1.0, 0.0)
    given = {"groups": groups, "sample_weight": weights}
    numpy = MarginSVM(max_rows=max_rows).fit(X, y, **given)
    dask = MarginSVM(max_rows=max_rows).fit(lazy, da.from_array(y), **given)
    np.testing.assert_array_equal(dask.rows_used_, numpy.rows_used_)
    np.testing.assert_array_equal(dask.coef_, numpy.coef_)
    np.testing.assert_allclose(dask.group_margin_, numpy.group_margin_, rtol=1e-12)
    assert dask.n_reads_ == numpy.n_reads_ == (1 if max_rows is None else 2)
    values, labels = dask.decision_function(lazy), dask.predict(lazy)
    assert isinstance(values, da.Array)
    assert isinstance(labels, da.Array)
    np.testing.assert_allclose(values, numpy.decision_function(X), rtol=1e-12)
    np.testing.assert_array_equal(labels, numpy.predict(X))


def test_on_a_cluster(client):
    X, y, groups = scattered()
    lazy = da.from_array(X, chunks=(150, -1))
    model = MarginSVM(C=0.01, max_rows=300).fit(lazy, y, groups=groups)
    local = MarginSVM(C=0.01, max_rows=300).fit(X, y, groups=groups)
    np.testing.assert_allclose(model.group_margin_, local.group_margin_, rtol=1e-12)


def test_a_dataset_brings_all(some, reference):
    dataset = open_dataset(reference)
    model = MarginSVM().fit(dataset, feature_groups=None)
    arrays = MarginSVM().fit(
        dataset["features"].values,
        dataset["label"].values,
        groups=[str(name) for name in dataset["image_name"].values[dataset["image"].values]],
        sample_weight=dataset["weight"].values,
    )
    np.testing.assert_array_equal(model.groups_, arrays.groups_)
    np.testing.assert_allclose(model.group_margin_, arrays.group_margin_, rtol=1e-12)
    np.testing.assert_array_equal(
        model.predict(dataset), arrays.predict(dataset["features"].values)
    )
    assert model.dataset_["images"] == 30
    assert not hasattr(model.fit(*scattered()[:2]), "dataset_")


def test_bad_numbers_in_dask_rows_are_named():
    X, y, groups = scattered()
    X[[17, 400], 3] = np.nan
    lazy = da.from_array(X, chunks=(100, -1))
    weights = np.ones(y.size)
    weights[:10] = 0.0
    with pytest.raises(ValueError, match=r"NaN or infinity in row\(s\) 17, 400"):
        MarginSVM(C=0.1).fit(lazy, y, groups=groups, sample_weight=weights)
    spare = MarginSVM(max_rows=300).fit(np.nan_to_num(X), y, groups=groups).rows_used_
    assert np.setdiff1d([17, 400], spare).size, "one of them is not in the sample"
    with pytest.raises(ValueError, match="NaN or infinity in row"):
        MarginSVM(C=0.1, max_rows=300).fit(lazy, y, groups=groups)


# -- memory ----------------------------------------------------------------------------------


def test_memory_is_three_times_the_data():
    model = MarginSVM(n_jobs=2)
    n, k = 1_000_000, 489
    assert model.memory_bytes(n, k) == pytest.approx(3 * 8 * n * k, rel=0.05)
    assert model.memory_bytes(1000, 4000) > 2 * 3 * 8 * 4000**2
    assert model.memory_bytes(1000, 4000, n_classes=9) > model.memory_bytes(1000, 4000)
    assert MarginSVM(C=1.0).memory_bytes(1000, 4000) < model.memory_bytes(1000, 4000)


def test_not_enough_memory_is_reported_before(monkeypatch):
    X, y, groups = scattered(n=5000)
    needed = MarginSVM(C=0.1).memory_bytes(*X.shape)
    monkeypatch.setattr(memory, "available_bytes", lambda: needed - 1000)
    model = MarginSVM(C=0.1)
    with pytest.raises(MemoryError, match=r"needs .* available: .* all 5,000 rows"):
        model.fit(X.astype("float32"), y, groups=groups)
    assert not hasattr(model, "coef_")
    model.fit(X.astype("float32"), y, groups=groups, force=True)
    monkeypatch.setattr(
        memory, "available_bytes", lambda: int(needed / memory.USABLE_SHARE) - 10_000
    )
    with pytest.raises(MemoryError, match="max_rows=") as caught:
        model.fit(X.astype("float32"), y, groups=groups)
    fitting = int(str(caught.value).split("max_rows=")[1].split(")")[0])
    assert 4000 < fitting < 5000
    clone(model).set_params(max_rows=fitting).fit(X, y, groups=groups)
    # What is float64 in memory already need not be there twice.
    model.fit(np.ascontiguousarray(X), y, groups=groups)


def test_memory_of_this_machine():
    assert 1 << 20 < memory.available_bytes() < 1 << 50


def test_more_than_liblinear_can_count(monkeypatch):
    X, y, groups = scattered()
    monkeypatch.setattr(memory, "MAX_NODES", 300 * 9)
    with pytest.raises(ValueError, match=r"takes 300 rows of 8 features, not 600.*max_rows"):
        MarginSVM(C=0.1).fit(X, y, groups=groups, force=True)
    assert MarginSVM(C=0.1, max_rows=300).fit(X, y, groups=groups).rows_used_.size <= 300


# -- samples ---------------------------------------------------------------------------------


def test_a_sample_is_of_whole_groups(some):
    X, y, groups = scattered(n_groups=40)
    model = MarginSVM(max_rows=200).fit(X, y, groups=groups)
    taken = np.unique(groups[model.rows_used_])
    assert 150 < model.rows_used_.size <= 200
    np.testing.assert_array_equal(model.rows_used_, np.flatnonzero(np.isin(groups, taken)))
    own = MarginSVM().fit(X[model.rows_used_], y[model.rows_used_], groups=groups[model.rows_used_])
    np.testing.assert_array_equal(model.coef_, own.coef_)
    signs = np.where(y == 1, 1.0, -1.0)
    margins = signs * model.decision_function(X)
    wanted = [margins[groups == group].mean() for group in range(40)]
    np.testing.assert_allclose(model.group_margin_, wanted)


def test_the_seed_decides_the_sample():
    X, y, groups = scattered(n_groups=40)

    def rows(seed, **options):
        model = MarginSVM(C=0.1, max_rows=200, random_state=seed)
        return model.fit(X, y, **options).rows_used_.tolist()

    assert rows(0, groups=groups) == rows(0, groups=groups) != rows(1, groups=groups)
    assert len(rows(0)) == 200
    assert rows(0) == rows(0) != rows(1)
    everything = MarginSVM(C=0.1, max_rows=600).fit(X, y, groups=groups)
    assert everything.rows_used_.size == 600
    assert everything.n_reads_ == 1


def test_rows_without_weight_are_not_drawn():
    X, y, groups = scattered(n_groups=40)
    weights = np.arange(600) % 2
    model = MarginSVM(C=0.1, max_rows=200).fit(X, y, groups=groups, sample_weight=weights)
    assert (model.rows_used_ % 2 == 1).all()
    assert 150 < model.rows_used_.size <= 200


def test_too_small_a_sample():
    X, y, groups = scattered()
    with pytest.raises(ValueError, match=r"max_rows=5 is too small.* 0 rows.*0, 1"):
        MarginSVM(max_rows=5).fit(X, y, groups=groups)
    drawn = MarginSVM(C=0.1, max_rows=90).fit(X, y, groups=groups).rows_used_
    elsewhere = np.setdiff1d(groups, groups[drawn])[0]
    three = np.where(groups == elsewhere, 2, y)
    with pytest.raises(ValueError, match=r"max_rows=90 is too small.*class\(es\) 2; raise it"):
        MarginSVM(max_rows=90).fit(X, three, groups=groups)
    with pytest.raises(ValueError, match=r"one group only.*a larger max_rows"):
        MarginSVM(max_rows=35).fit(X, y, groups=groups)


# -- wrong uses ------------------------------------------------------------------------------


def test_one_class_only():
    X, y, groups = scattered()
    with pytest.raises(ValueError, match="one class only"):
        MarginSVM().fit(X, np.zeros(y.size), groups=groups)
    with pytest.raises(ValueError, match="one class only"):
        MarginSVM().fit(X, y, groups=groups, sample_weight=y == 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"C": "best"}, "C must be one of 'auto'"),
        ({"C": -1.0}, "C must be positive"),
        ({"n_folds": 1}, "n_folds must be a whole number of at least 2"),
        ({"max_rows": 1.5}, "max_rows must be a whole number"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"class_weight": "even"}, "class_weight must be"),
        ({"class_weight": {7: 1.0}}, "class_weight names"),
    ],
)
def test_wrong_parameters(wrong, message):
    X, y, groups = scattered()
    with pytest.raises(ValueError, match=message):
        MarginSVM(**wrong).fit(X, y, groups=groups)


def test_fits_that_do_not_converge_are_reported_once(some):
    X, y, groups = scattered()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = MarginSVM(max_iter=1, tol=1e-12).fit(X, y, groups=groups)
    assert [one.category for one in caught].count(ConvergenceWarning) == 1
    assert not model.converged_
    assert MarginSVM().fit(X, y, groups=groups).converged_
