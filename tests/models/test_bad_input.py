"""Bad input: an error that names the argument, the place and the way out; nothing is lost."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from gpgc_dask import GP, GPGC
from tests.support.problems import classification

DATA = classification(300, 6, 15)


def arguments(**changes):
    given = {"X": DATA.X.copy(), "y": DATA.y.copy(), "groups": DATA.groups.copy()}
    return {**given, **changes}


def spoil(value, rows=(7, 11), column=2):
    X = DATA.X.copy()
    X[list(rows), column] = value
    return X


def lone_group():
    groups = DATA.groups.copy()
    groups[100] = 99
    return groups


def weights(value, place=slice(3, 4)):
    w = np.ones(300)
    w[place] = value
    return w


BAD = {
    "nan": ({"X": spoil(np.nan)}, ValueError, r"X contains NaN.*row\(s\) 7, 11, column\(s\) 2"),
    "inf": ({"X": spoil(np.inf)}, ValueError, r"X contains NaN or infinity.*row\(s\) 7, 11"),
    "short y": ({"y": DATA.y[:-1]}, ValueError, "y has 299 values but X has 300 rows"),
    "short groups": ({"groups": DATA.groups[1:]}, ValueError, "groups has 299 values"),
    "short weights": ({"sample_weight": np.ones(5)}, ValueError, "sample_weight has 5 values"),
    "no y": ({"y": None}, ValueError, "y is missing"),
    "one class": ({"y": np.ones(300)}, ValueError, "y has one class only .*1.0"),
    "nan label": ({"y": np.r_[np.nan, DATA.y[1:]]}, ValueError, "NaN"),
    "one row": ({"groups": lone_group()}, ValueError, "groups 99 have one row with weight.*drop"),
    "no group": (
        {"groups": [None, *DATA.groups[1:]]},
        ValueError,
        r"groups has NaN or None at position\(s\) 0",
    ),
    "mixed groups": (
        {"groups": np.array(["a", *DATA.groups[1:]], dtype=object)},
        TypeError,
        r"groups mixes labels of types int.*, str",
    ),
    "constant": ({"X": np.ones((300, 3))}, ValueError, "X has constant features only"),
    "negative weight": (
        {"sample_weight": weights(-1.0)},
        ValueError,
        r"sample_weight is negative.*row\(s\) 3",
    ),
    "nan weight": ({"sample_weight": weights(np.nan)}, ValueError, r"row\(s\) 3"),
    "zero weights": ({"sample_weight": np.zeros(300)}, ValueError, "zero everywhere"),
    "weightless group": (
        {"sample_weight": weights(0.0, DATA.groups == 4)},
        ValueError,
        "groups 4 have no row with weight",
    ),
    "weightless class": (
        {"sample_weight": weights(0.0, DATA.y == 0)},
        ValueError,
        "one class only",
    ),
    "text weight": ({"sample_weight": np.full(300, "a")}, TypeError, "sample_weight must hold num"),
    "feature groups": ({"feature_groups": ["a"] * 5}, ValueError, "feature_groups has shape .5,."),
    "unknown feature group": (
        {"feature_groups": ["a", None, "b", "b", "b", "b"]},
        ValueError,
        r"unknown .* feature group at column\(s\) 1",
    ),
    "no rows": ({"X": np.empty((0, 6)), "y": [], "groups": []}, ValueError, "0 sample"),
    "no columns": ({"X": np.empty((300, 0))}, ValueError, "0 feature"),
    "one dimension": ({"X": DATA.X[:, 0]}, ValueError, "Expected 2D array"),
    "objects": ({"X": DATA.X.astype(str).astype(object) + "x"}, ValueError, "could not convert"),
    "continuous y": ({"y": DATA.X[:, 0]}, ValueError, "continuous"),
    "columns cut": (
        {"X": da.from_array(DATA.X, chunks=(100, 3))},
        ValueError,
        r"X is cut along its columns into 2 blocks.*rechunk\(\{1: -1\}\)",
    ),
    "dask objects": (
        {"X": da.from_array(DATA.X.astype(object), chunks=(100, -1))},
        TypeError,
        "X has dtype object",
    ),
    "dask nan": (
        {"X": da.from_array(spoil(np.nan, rows=(250,)), chunks=(100, -1))},
        ValueError,
        r"row\(s\) 250, column\(s\) 2",
    ),
    "dask unknown": (
        {"X": da.from_array(DATA.X, chunks=(100, -1))[da.from_array(DATA.y, chunks=100) >= 0]},
        ValueError,
        "compute_chunk_sizes",
    ),
    "dask vector": ({"X": da.zeros(300)}, ValueError, "X must be 2-D"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_data(name):
    changes, kind, message = BAD[name]
    model = GPGC()
    with pytest.raises(kind, match=message):
        model.fit(**arguments(**changes))
    with pytest.raises(NotFittedError):
        model.predict(DATA.X)


@pytest.mark.parametrize("name", ["nan", "one class", "dask nan", "constant"])
def test_a_failed_fit_leaves_the_old_one(name):
    changes, kind, _ = BAD[name]
    model = GPGC().fit(**arguments())
    before = model.decision_function(DATA.X)
    with pytest.raises(kind):
        model.fit(**arguments(**changes))
    np.testing.assert_array_equal(model.decision_function(DATA.X), before)
    assert model.n_features_in_ == 6


@pytest.mark.parametrize(
    ("parameter", "value", "kind"),
    [
        ("solver", "newton", ValueError),
        ("tol", 0.0, ValueError),
        ("tol", "small", TypeError),
        ("max_iter", 0, ValueError),
        ("max_iter", 2.5, ValueError),
        ("dtype", "float16", ValueError),
        ("redundancy", "automatic", ValueError),
        ("redundancy", -1.0, ValueError),
        ("redundancy", None, TypeError),
        ("noise_floor", -1e-3, ValueError),
        ("noise_floor", 1e5, ValueError),
        ("progress", "bar", TypeError),
        ("class_weight", "even", ValueError),
        ("class_weight", {7: 2.0}, ValueError),
        ("class_weight", {0: -2.0}, ValueError),
    ],
)
def test_bad_parameters(parameter, value, kind):
    model = GPGC(**{parameter: value})
    with pytest.raises(kind, match=parameter):
        model.fit(**arguments())


def test_one_row_groups_are_fine_where_noise_is_shared():
    assert GP().fit(DATA.X, DATA.y, groups=lone_group()).converged_


def test_a_row_of_weight_zero_is_a_row_left_out():
    w = weights(0.0, slice(0, 300, 7))
    left = GPGC().fit(**arguments(sample_weight=w))
    out = GPGC().fit(DATA.X[w > 0], DATA.y[w > 0], groups=DATA.groups[w > 0])
    np.testing.assert_allclose(left.noise_variance_, out.noise_variance_, rtol=1e-6)


def test_numbers_too_large_to_square():
    with pytest.raises(ValueError, match="scale them"):
        GPGC().fit(DATA.X * 1e200, DATA.y, groups=DATA.groups)


def test_some_constant_features_are_fine():
    X = np.c_[DATA.X, np.zeros(300), np.full(300, 5.0)]
    assert GPGC().fit(X, DATA.y, groups=DATA.groups).converged_


def test_prediction_input_is_checked_too():
    model = GPGC().fit(**arguments())
    with pytest.raises(ValueError, match="features"):
        model.predict(DATA.X[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        model.predict(spoil(np.nan))
    with pytest.raises(ValueError, match=r"label.*that the model was not fitted with"):
        model.leave_group_out(DATA.X, DATA.y + 5, DATA.groups)
    with pytest.raises(ValueError, match="groups has 5 values"):
        model.leave_group_out(DATA.X, DATA.y, DATA.groups[:5])
    for name in ("sample_weight", "area"):
        with pytest.raises(ValueError, match=rf"{name} is negative.*row\(s\) 3"):
            model.leave_group_out(DATA.X, DATA.y, DATA.groups, **{name: weights(-1.0)})


def test_lists_keep_their_labels():
    y = ["cat" if label else "dog" for label in DATA.y]
    with pytest.raises(ValueError, match=r"y has NaN or None at position\(s\) 0"):
        GPGC().fit(DATA.X, [float("nan"), *y[1:]], groups=DATA.groups)
    ids = [2**63 + int(group) for group in DATA.groups]
    assert GPGC().fit(DATA.X, y, groups=[-1 if i == ids[0] else i for i in ids]).groups_.size == 15
    assert GPGC().fit(DATA.X, np.array(DATA.y, dtype=object)).classes_.tolist() == [0, 1]


def test_a_path_is_not_an_array():
    with pytest.raises(TypeError, match="X must be an array, got the path"):
        GPGC().fit("features.npy", DATA.y, groups=DATA.groups)


def test_masked_arrays_are_rejected():
    with pytest.raises(ValueError, match="X is a masked array"):
        GPGC().fit(np.ma.masked_greater(DATA.X, 2), DATA.y, groups=DATA.groups)


def test_names_that_cannot_be_leave_nothing_behind():
    pd = pytest.importorskip("pandas")
    model = GPGC()
    with pytest.raises(TypeError, match="feature names"):
        model.fit(pd.DataFrame(DATA.X, columns=["a", "b", "c", "d", "e", 4]), DATA.y)
    assert not [name for name in vars(model) if name.endswith("_")]
