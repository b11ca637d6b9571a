"""NaN in stored features: the error names rows and images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from gpgc_dask import GP, GPGC, MarginSVM, open_dataset
from tests.support.corruption import images_of_rows

pytestmark = pytest.mark.newest


def store_nan(data: Path, row: int) -> None:
    zarr.open_group(data, mode="r+")["features"][row, 3] = np.nan


@pytest.mark.parametrize("kind", [GPGC, GP, MarginSVM])
def test_nan_in_one_chunk_names_rows_and_images(data, kind):
    store_nan(data, 70)
    (image,) = images_of_rows(data, 70, 70)
    with pytest.raises(ValueError, match=rf"NaN or infinity in row\(s\) 70.*group\(s\) {image}"):
        kind().fit(open_dataset(data))


def test_nan_on_a_cluster_names_rows_and_images(client, data):
    store_nan(data, 130)
    (image,) = images_of_rows(data, 130, 130)
    with pytest.raises(ValueError, match=rf"row\(s\) 130, column\(s\) 3, group\(s\) {image}"):
        GPGC().fit(open_dataset(data))


def test_rows_are_those_of_the_dataset_where_images_are_left_out(data):
    found = open_dataset(data)
    rows = np.flatnonzero(found["image"].values > 0)
    found["weight"] = found["weight"] * (found["image"] > 0)
    store_nan(data, int(rows[5]))
    with (
        pytest.warns(UserWarning, match=r"left out of the fit: photo_000\.jpg"),
        pytest.raises(ValueError, match=rf"row\(s\) {rows[5]}, .*group\(s\) photo_001\.jpg"),
    ):
        GPGC().fit(found)


def test_nan_has_no_class(sound, data):
    model = GPGC(redundancy=1.0).fit(open_dataset(sound))
    store_nan(data, 70)
    (image,) = images_of_rows(data, 70, 70)
    found = open_dataset(data)
    with pytest.raises(ValueError, match=r"NaN or infinity in row\(s\) 70:"):
        model.predict(found).compute()
    with pytest.raises(ValueError, match=rf"row\(s\) 70.*group\(s\) {image}"):
        model.leave_group_out(found, return_agreement=True)


def test_groups_of_arrays_are_named(tmp_path):
    X = np.random.default_rng(0).standard_normal((40, 3))
    y, groups = np.arange(40) % 2, np.repeat(["a", "b", "c", "d"], 10)
    X[25, 1] = np.inf
    with pytest.raises(ValueError, match=r"row\(s\) 25, column\(s\) 1, group\(s\) c: drop"):
        GPGC().fit(X, y, groups=groups)
