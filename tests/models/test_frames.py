"""Dataframes of features, dask's and pandas': every result is that of the fit on NumPy arrays."""

from __future__ import annotations

import warnings

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from gpgc_dask import GP, GPGC, MarginSVM
from gpgc_dask.models.frames import to_array
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
        kept=True,
    )


@pytest.fixture(scope="module")
def parquet(table, tmp_path_factory):
    """A folder of five files, and one more of rows that a filter takes away."""
    path = tmp_path_factory.mktemp("parquet")
    more = pd.concat([table[:120].assign(kept=False), table], ignore_index=True)
    dd.from_pandas(more, npartitions=6).to_parquet(path / "more")
    dd.from_pandas(table, npartitions=5).to_parquet(path / "plain")
    return path


def frame_of(kind, table, parquet):
    """A dask dataframe of the table's rows, in their order."""
    if kind == "parquet":
        return dd.read_parquet(parquet / "plain")
    if kind == "filtered":  # partitions of unknown length, one of them empty
        more = dd.read_parquet(parquet / "more")
        return more[more["kept"]]
    return dd.from_pandas(table, npartitions=5)


KINDS = ["memory", "parquet", "filtered"]


def in_arrays(model, table, **given):
    groups = table["annotator"].to_numpy(dtype=object)
    return clone(model).fit(DATA.X, table["label"].to_numpy(dtype=object), groups=groups, **given)


def assert_same_model(found, expected):
    assert found.feature_names_in_.tolist() == FEATURES
    assert found.classes_.tolist() == expected.classes_.tolist() == ["cat", "dog"]
    assert found.groups_.tolist() == expected.groups_.tolist()
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-5, atol=1e-7)
    for name in ("noise_variance_", "group_margin_"):
        if hasattr(expected, name):
            np.testing.assert_allclose(
                getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-7
            )


def refuse(*_, **__):
    raise AssertionError("something was computed")


# -- fits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_fits_are_those_of_arrays(model, kind, table, parquet, small_tasks):
    frame = frame_of(kind, table, parquet)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clone(model).fit(
            frame[FEATURES],
            frame["label"],
            groups=frame["annotator"],
            sample_weight=frame["weight"],
        )
    assert_same_model(found, in_arrays(model, table, sample_weight=table["weight"].to_numpy()))


@pytest.mark.parametrize(
    "lend",
    [
        lambda s: s.compute(),
        lambda s: s.to_dask_array(lengths=True),
        lambda s: s.astype("category"),
        lambda s: s.astype(object),
        lambda s: s.compute().tolist(),
    ],
    ids=["pandas", "dask array", "category", "object", "list"],
)
def test_labels_and_groups_of_any_kind(lend, table):
    frame = frame_of("memory", table, None)
    found = GPGC().fit(frame[FEATURES], lend(frame["label"]), groups=lend(frame["annotator"]))
    assert_same_model(found, in_arrays(GPGC(), table))


def test_labels_in_a_frame_of_their_own(table):
    frame = frame_of("memory", table, None)
    with pytest.warns(UserWarning, match="column-vector"):
        found = GPGC().fit(frame[FEATURES], frame[["label"]], groups=frame["annotator"])
    assert_same_model(found, in_arrays(GPGC(), table))


def test_lazy_vectors_beside_arrays_in_memory(table):
    frame = frame_of("memory", table, None)
    found = GPGC().fit(table[FEATURES], frame["label"], groups=frame["annotator"])
    assert_same_model(found, in_arrays(GPGC(), table))


@pytest.mark.parametrize("persisted", [True, False])
def test_on_a_cluster(persisted, table, parquet, client):
    frame = frame_of("parquet", table, parquet)
    frame = frame.persist() if persisted else frame
    found = GPGC().fit(frame[FEATURES], frame["label"], groups=frame["annotator"])
    expected = in_arrays(GPGC(), table)
    assert_same_model(found, expected)
    predicted = found.predict(frame[FEATURES])
    np.testing.assert_array_equal(predicted.compute(), expected.predict(DATA.X))
    values, agreement = found.leave_group_out(
        frame[FEATURES], frame["label"], frame["annotator"], return_agreement=True
    )
    own, told = expected.leave_group_out(
        DATA.X, table["label"].tolist(), table["annotator"].tolist(), return_agreement=True
    )
    np.testing.assert_allclose(values, own, atol=1e-5)
    np.testing.assert_allclose(agreement.iou, told.iou)


def test_plans_count_the_rows(table, parquet):
    frame = frame_of("filtered", table, parquet)
    found = GPGC().plan(frame[FEATURES], groups=frame["annotator"])
    array = da.from_array(DATA.X, chunks=(120, -1))
    expected = GPGC().plan(array, groups=table["annotator"].to_numpy())
    assert found.reads == expected.reads
    assert found.shape.n_rows == 600


# -- predictions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_predictions_are_lazy_and_those_of_arrays(model, kind, table, parquet):
    expected = in_arrays(model, table)
    fitted = clone(model).fit(table[FEATURES], table["label"], groups=table["annotator"])
    frame = frame_of(kind, table, parquet)
    with dask.config.set(scheduler=refuse):
        labels, values = (
            getattr(fitted, name)(frame[FEATURES]) for name in ("predict", "decision_function")
        )
        if model is not MODELS[-1]:
            _, std = fitted.decision_function(frame[FEATURES], return_std=True)
            probability = fitted.predict_proba(frame[FEATURES])
    assert labels.numblocks == (frame.npartitions,)
    np.testing.assert_array_equal(labels, expected.predict(DATA.X))
    np.testing.assert_allclose(values, expected.decision_function(DATA.X), atol=1e-9)
    if model is not MODELS[-1]:
        own = expected.decision_function(DATA.X, return_std=True)[1]
        np.testing.assert_allclose(std, own, atol=1e-9)
        np.testing.assert_allclose(probability, expected.predict_proba(DATA.X), atol=1e-9)
    assigned = frame.assign(predicted=labels).compute()
    assert (assigned["predicted"].to_numpy(dtype=object) == expected.predict(DATA.X)).all()
    assert (assigned["annotator"].to_numpy() == table["annotator"].to_numpy()).all()


def test_scores(table, parquet):
    fitted = in_arrays(GPGC(), table)
    frame = frame_of("filtered", table, parquet)
    right = fitted.predict(DATA.X) == table["label"].to_numpy(dtype=object)
    with pytest.warns(UserWarning, match="valid feature names|fitted without feature names"):
        assert fitted.score(frame[FEATURES], frame["label"]) == right.mean()
    weight = table["weight"].to_numpy()
    found = fitted.score(da.from_array(DATA.X, chunks=(100, -1)), table["label"], weight)
    assert found == pytest.approx(right @ weight / weight.sum())


def test_pandas_and_dask_mix(table):
    """What was fitted on the one predicts the other, by the same names."""
    frame = frame_of("memory", table, None)
    lazy = GPGC().fit(frame[FEATURES], frame["label"], groups=frame["annotator"])
    now = GPGC().fit(table[FEATURES], table["label"], groups=table["annotator"])
    assert isinstance(lazy.predict(table[FEATURES]), np.ndarray)
    np.testing.assert_array_equal(lazy.predict(table[FEATURES]), now.predict(frame[FEATURES]))
    for model in (lazy, now):
        for other in (frame[FEATURES[::-1]], table[FEATURES[::-1]]):
            with pytest.raises(ValueError, match="feature names should match"):
                model.predict(other)
            with pytest.raises(ValueError, match="feature names should match"):
                model.leave_group_out(other, table["label"], table["annotator"])
        for other in (frame[FEATURES[:-1]], table[FEATURES[:-1]]):
            with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
                model.predict(other)


def test_in_dask_mls_wrapper(table):
    wrappers = pytest.importorskip("dask_ml.wrappers")
    frame = frame_of("memory", table, None)
    model = wrappers.ParallelPostFit(GPGC())
    model.fit(table[FEATURES], table["label"], groups=table["annotator"])
    found = model.predict(frame[FEATURES])
    expected = in_arrays(GPGC(), table)
    np.testing.assert_array_equal(np.asarray(found), expected.predict(DATA.X))


# -- columns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({}, "float64"),
        (dict.fromkeys(FEATURES, "float32"), "float32"),
        (dict.fromkeys(FEATURES, "float32") | {"f00": "float64"}, "float64"),
        (dict.fromkeys(FEATURES, "Float32"), "float32"),
        (dict.fromkeys(FEATURES, "double[pyarrow]"), "float64"),
        ({"f00": "int64", "f01": "bool", "f02": "Int64", "f03": "boolean"}, "float64"),
    ],
    ids=str,
)
def test_numbers_of_any_kind(types, expected, table):
    whole = [name for name, dtype in types.items() if "float" not in dtype.lower()]
    numbers = table[FEATURES].copy()
    numbers[whole] = (numbers[whole] > 1).astype(float)
    lazy = dd.from_pandas(numbers, npartitions=3).astype(types)
    array = to_array(lazy)
    assert array.dtype == expected
    np.testing.assert_allclose(array, numbers.to_numpy(), rtol=1e-6)


def test_what_is_missing_is_told(table):
    spoilt = table[FEATURES].astype("Float64")
    spoilt.iloc[[3, 407], 2] = pd.NA
    frame = dd.from_pandas(spoilt, npartitions=4)
    message = "NaN or infinity in row.s. 3, 407, column.s. 2, group.s. "
    with pytest.raises(ValueError, match=message):
        GPGC().fit(frame, table["label"], groups=table["annotator"])
    fitted = GPGC().fit(table[FEATURES], table["label"])
    with pytest.raises(ValueError, match=r"row.s. (3 of partition 0|107 of partition 2)"):
        fitted.predict(frame).compute()


@pytest.mark.parametrize("lazy", [True, False])
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
def test_columns_that_are_no_numbers_are_named(column, named, lazy, table):
    X = table[FEATURES].assign(who=column(table))
    X = dd.from_pandas(X, npartitions=2) if lazy else X
    with pytest.raises(ValueError, match=f"X has column.s. that hold no numbers: {named}; leave"):
        GPGC().fit(X, table["label"])


def test_numbers_in_objects(table):
    """In memory they can be looked at; in a dask dataframe somebody must say so."""
    X = table[FEATURES].astype(object)
    np.testing.assert_array_equal(GPGC().fit(X, DATA.y).coef_, GPGC().fit(DATA.X, DATA.y).coef_)
    with dask.config.set({"dataframe.convert-string": False}):
        lazy = dd.from_pandas(X, npartitions=2)
    with pytest.raises(ValueError, match=r"'f00' \(object\), 'f01' \(object\).*12 in all"):
        GPGC().fit(lazy, DATA.y)


def test_lengths_that_do_not_fit(table):
    frame = frame_of("memory", table, None)
    few = frame[frame["weight"] < 1]
    with pytest.raises(ValueError, match="y has 300 values but X has 600 rows"):
        GPGC().fit(frame[FEATURES], few["label"])
    with pytest.raises(ValueError, match="0 sample"):
        GPGC().fit(frame[frame["weight"] > 9][FEATURES], few["label"])
    with pytest.raises(ValueError, match="0 feature"):
        GPGC().fit(frame[[]], frame["label"])
