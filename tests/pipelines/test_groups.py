"""Groups and annotators in datasets, and how reviews respect groups."""

from __future__ import annotations

import numpy as np
import pytest

from gpgc_dask import GPGC, ImageInfo, RunOptions, open_dataset
from gpgc_dask.core.errors import PipelineError
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.quality.predictions import FOLDS, Evidence
from tests.support.ingesting import QUICK

GROUPED = ImageInfo(group=r"(\d)\.jpg$", annotator=r"_(\d)")
"""The last digit of photo_012.jpg is its group, the first one its annotator."""


@pytest.fixture(scope="module")
def grouped(folders, tmp_path_factory):
    target = tmp_path_factory.mktemp("grouped") / "data.zarr"
    ingest(*folders, target, recipe=QUICK, info=GROUPED)
    return target


def test_images_are_in_the_order_of_their_groups(grouped, reference):
    data, plain = open_dataset(grouped), open_dataset(reference)
    names = data["image_name"].values.tolist()
    assert data["group"].values.tolist() == [name[-5] for name in names]
    assert names == sorted(names, key=lambda name: (name[-5], name))
    assert data["annotator"].values.tolist() == ["0"] * 30
    assert plain["group"].values.tolist() == plain["image_name"].values.tolist()
    assert plain["annotator"].values.tolist() == [""] * 30
    there = {name: number for number, name in enumerate(plain["image_name"].values)}
    for number in (0, 7, 29):
        own = data["features"].values[data["image"].values == number]
        same = plain["features"].values[plain["image"].values == there[names[number]]]
        np.testing.assert_array_equal(own, same)


def test_other_groups_are_another_dataset(grouped, folders):
    run = RunOptions(resume=True)
    assert ingest(*folders, grouped, recipe=QUICK, info=GROUPED, run=run).resumed == 30
    with pytest.raises(PipelineError, match="groups or annotators"):
        ingest(*folders, grouped, recipe=QUICK, run=run)


def test_groups_may_change_before_the_end(folders, tmp_path, monkeypatch):
    """A resumed ingest with other groups keeps the staged images."""
    target = tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        patch.setattr("gpgc_dask.pipelines.ingest.assemble.finish", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ingest(*folders, target, recipe=QUICK)
    ingest(*folders, target, recipe=QUICK, info=GROUPED, run=RunOptions(resume=True))
    assert open_dataset(target)["group"].values[0] == "0"


def test_a_review_leaves_whole_groups_out(grouped):
    data = open_dataset(grouped)
    model = GPGC(redundancy=1.0, rounds=0).fit(data)
    table = model.review(data)
    group = data["group"].values[data["image"].values].astype(str)
    expected = model.leave_group_out(
        data["features"].values,
        data["label"].values,
        data["image_name"].values[data["image"].values].astype(str),
        sample_weight=data["weight"].values,
        together=group,
    )
    np.testing.assert_allclose(model.leave_out.values, expected, rtol=1e-4, atol=1e-5)
    assert table["group"].tolist() == data["group"].values.tolist()
    assert table["usual_agreement"].between(0, 1).all()


def test_folds_are_of_whole_groups():
    noise, empty = np.ones(12), np.empty(0)
    unit = np.repeat(np.arange(4), 3)
    both = (Evidence(empty, empty, empty, empty, noise, empty, each) for each in (None, unit))
    plain, fold = (evidence.fold for evidence in both)
    assert plain.tolist() == (np.arange(12) % FOLDS).tolist()
    assert fold.tolist() == unit.tolist()
