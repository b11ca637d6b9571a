"""DataFrames of features: pandas' are taken as they are, dask's are rejected with the way out."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpgc_dask import GP, GPGC, MarginSVM
from gpgc_dask.core.errors import InputTypeError
from tests.support.problems import classification

DATA = classification(600, 12, 60)
FEATURES = [f"f{number:02d}" for number in range(12)]
MODELS = [GPGC(), GP(), MarginSVM(C=0.1)]


@pytest.fixture(scope="module")
def table():
    """Features, labels and annotators of 600 rows."""
    frame = pd.DataFrame(DATA.X, columns=FEATURES)
    return frame.assign(
        label=np.array(["cat", "dog"])[DATA.y],
        annotator=[f"worker {group:02d}" for group in DATA.groups],
        weight=np.linspace(0.5, 1.5, 600),
    )


def fit_on_arrays(model, table, **options):
    groups = table["annotator"].to_numpy(dtype=object)
    labels = table["label"].to_numpy(dtype=object)
    return clone(model).fit(DATA.X, labels, groups=groups, **options)


def assert_same_model(model, expected):
    assert model.classes_.tolist() == expected.classes_.tolist() == ["cat", "dog"]
    assert model.groups_.tolist() == expected.groups_.tolist()
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-5, atol=1e-7)
    for name in ("group_noise", "group_margin"):
        if getattr(expected, name) is not None:
            np.testing.assert_allclose(
                getattr(model, name), getattr(expected, name), rtol=1e-4, atol=1e-7
            )


# -- pandas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_fits_and_predictions_are_those_of_arrays(model, table):
    fitted = clone(model).fit(
        table[FEATURES], table["label"], groups=table["annotator"], sample_weight=table["weight"]
    )
    expected = fit_on_arrays(model, table, sample_weight=table["weight"].to_numpy())
    assert fitted.feature_names_in_.tolist() == fitted.feature_names.tolist() == FEATURES
    assert expected.feature_names is None
    assert_same_model(fitted, expected)
    np.testing.assert_array_equal(fitted.predict(table[FEATURES]), expected.predict(DATA.X))
    score = expected.score(DATA.X, table["label"].to_numpy(dtype=object))
    assert fitted.score(table[FEATURES], table["label"]) == score


@pytest.mark.parametrize(
    "convert",
    [
        lambda s: da.from_array(s.to_numpy(dtype=object), chunks=100),
        lambda s: s.astype("category"),
        lambda s: s.astype(object),
        lambda s: s.tolist(),
    ],
    ids=["dask array", "category", "object", "list"],
)
def test_labels_and_groups_of_any_kind(convert, table):
    fitted = GPGC().fit(
        table[FEATURES], convert(table["label"]), groups=convert(table["annotator"])
    )
    assert_same_model(fitted, fit_on_arrays(GPGC(), table))


def test_labels_in_a_frame_of_their_own(table):
    with pytest.warns(UserWarning, match="column-vector"):
        fitted = GPGC().fit(table[FEATURES], table[["label"]], groups=table["annotator"])
    assert_same_model(fitted, fit_on_arrays(GPGC(), table))


def test_scores_of_dask_arrays(table):
    fitted = fit_on_arrays(GPGC(), table)
    right = fitted.predict(DATA.X) == table["label"].to_numpy(dtype=object)
    weight = table["weight"].to_numpy()
    labels = da.from_array(table["label"].to_numpy(dtype=object), chunks=100)
    score = fitted.score(da.from_array(DATA.X, chunks=(100, -1)), labels, weight)
    assert score == pytest.approx(right @ weight / weight.sum())


def test_names_of_columns_are_checked(table):
    model = GPGC().fit(table[FEATURES], table["label"], groups=table["annotator"])
    other = table[FEATURES[::-1]]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(other)
    with pytest.raises(ValueError, match="feature names should match"):
        model.leave_group_out(other, table["label"], table["annotator"])
    with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
        model.predict(table[FEATURES[:-1]])


@pytest.mark.parametrize(
    "types",
    [
        dict.fromkeys(FEATURES, "Float64"),
        {"f00": "int64", "f01": "bool", "f02": "Int64", "f03": "boolean"},
        dict.fromkeys(FEATURES, object),
    ],
    ids=["nullable", "whole numbers", "objects"],
)
def test_numbers_of_any_kind(types, table):
    numbers = table[FEATURES].copy()
    whole = [name for name, dtype in types.items() if str(dtype).lower() in ("int64", "bool")]
    whole += [name for name, dtype in types.items() if dtype == "boolean"]
    numbers[whole] = (numbers[whole] > 1).astype(float)
    expected = GPGC().fit(numbers.to_numpy(), DATA.y)
    np.testing.assert_allclose(GPGC().fit(numbers.astype(types), DATA.y).coef_, expected.coef_)


def test_missing_values_are_named(table):
    corrupted = table[FEATURES].astype("Float64")
    corrupted.iloc[[3, 407], 2] = pd.NA
    message = "NaN or infinity in row.s. 3, 407, column.s. 2, group.s. "
    with pytest.raises(ValueError, match=message):
        GPGC().fit(corrupted, table["label"], groups=table["annotator"])


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (lambda t: t["annotator"].astype("category"), r"'who' \(category\)"),
        (lambda t: t["annotator"], r"'who' \((str|string|object)\)"),
        (lambda t: pd.Series(pd.Timestamp("2026-01-01"), t.index), r"'who' \(datetime64.*\)"),
        (lambda t: pd.Series(1j, t.index), r"'who' \(complex128\)"),
    ],
    ids=["category", "text", "date", "complex"],
)
def test_columns_that_are_no_numbers_are_named(column, named, table):
    X = table[FEATURES].assign(who=column(table))
    with pytest.raises(ValueError, match=f"X has column.s. that hold no numbers: {named}; leave"):
        GPGC().fit(X, table["label"])


# -- dask ------------------------------------------------------------------------------------------


def test_dask_dataframes_are_rejected_with_the_way_out(table):
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(table, npartitions=3)
    for model in MODELS:
        with pytest.raises(InputTypeError, match=r"X\.to_dask_array\(lengths=True\)"):
            clone(model).fit(frame[FEATURES], table["label"])
        fitted = fit_on_arrays(model, table)
        with pytest.raises(InputTypeError, match=r"X\.to_dask_array\(lengths=True\)"):
            fitted.predict(frame[FEATURES])
    with pytest.raises(InputTypeError, match=r"X\.to_dask_array\(lengths=True\)"):
        GPGC().plan(frame[FEATURES])
    way_out = frame[FEATURES].to_dask_array(lengths=True)
    found = GPGC().fit(way_out, frame["label"].compute(), groups=table["annotator"])
    assert_same_model(found, fit_on_arrays(GPGC(), table))


def test_dask_series_are_rejected_with_the_way_out(table):
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(table, npartitions=3)
    with pytest.raises(InputTypeError, match=r"y is a dask series: pass y\.compute\(\)"):
        GPGC().fit(DATA.X, frame["label"])
    with pytest.raises(InputTypeError, match=r"groups is a dask series: pass groups\.compute\(\)"):
        GPGC().fit(DATA.X, DATA.y, groups=frame["annotator"])
    with pytest.raises(InputTypeError, match="sample_weight is a dask series"):
        GPGC().fit(DATA.X, DATA.y, sample_weight=frame["weight"])
    fitted = GPGC().fit(DATA.X, DATA.y, groups=DATA.groups)
    with pytest.raises(InputTypeError, match="groups is a dask series"):
        fitted.leave_group_out(DATA.X, DATA.y, frame["annotator"])


def test_blocks_of_unknown_size(table):
    """Predictions need no sizes; NaN is reported by its row within the block."""
    fitted = fit_on_arrays(GPGC(), table)
    X = DATA.X.copy()
    X[[3, 407], 2] = np.nan
    lazy = da.from_array(X, chunks=(150, -1))
    unknown = lazy[da.from_array(np.ones(600, dtype=bool), chunks=150)]
    with pytest.raises(ValueError, match=r"row.s. (3 of block 0|107 of block 2)"):
        fitted.predict(unknown).compute()
    whole = da.from_array(DATA.X, chunks=(150, -1))[da.from_array(np.ones(600, bool), chunks=150)]
    np.testing.assert_array_equal(fitted.predict(whole), fitted.predict(DATA.X))
