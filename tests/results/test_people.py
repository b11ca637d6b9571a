"""Annotators are compared at equal difficulty, and few masks prove little."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from gpgc_dask.core.errors import InputError
from gpgc_dask.results.columns import PEOPLE_COLUMNS
from gpgc_dask.results.people import people_records, people_to_csv, rank_people

pytestmark = pytest.mark.quick


def make_table(levels, masks=30, hard=(), seed=0, slope=0.5):
    """A review in which quality is a level per person plus a share of the ease of the image."""
    rng = np.random.default_rng(seed)
    parts = []
    for name, level in levels.items():
        ease = rng.uniform(0.2, 0.5, masks) if name in hard else rng.uniform(0.6, 0.95, masks)
        quality = np.clip(level + slope * ease + 0.05 * rng.standard_normal(masks), 0, 1)
        parts.append(pd.DataFrame({"annotator": name, "usual_agreement": ease, "quality": quality}))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(
        image=[f"{number}.jpg" for number in range(len(table))],
        bad_probability=(table["quality"] < 0.5).astype(float),
        noise_variance=1.0,
        superpixels=10,
        annotated="",
    )


def test_hard_images_do_not_make_a_careless_annotator():
    table = make_table(
        {"careless": 0.3, "careful": 0.45, "other": 0.45, "third": 0.45}, hard=["careful"]
    )
    people = rank_people(table).set_index("annotator")
    assert people["quality"]["careful"] < people["quality"]["careless"]  # the photos are hard
    assert people.index[0] == "careless"
    assert people["excess"]["careless"] == pytest.approx(-0.15, abs=0.04)
    assert people["excess"]["careful"] == pytest.approx(0, abs=0.04)
    assert people["expected_quality"]["careful"] == pytest.approx(
        people["quality"]["careful"], abs=0.04
    )


def test_few_masks_prove_little():
    many = make_table({"a": 0.45, "b": 0.45, "c": 0.45, "many": 0.2})
    few = make_table({"few": 0.2}, masks=1, seed=1)
    people = rank_people(pd.concat([many, few], ignore_index=True)).set_index("annotator")
    assert people["excess"]["many"] < people["excess"]["few"] < -0.05
    width = people["quality_high"] - people["quality_low"]
    assert width["few"] > 2 * width["many"]


def test_numbers():
    table = make_table({"a": 0.5, "b": 0.1}, masks=4)
    table["noise_variance"] = [1.0, 1.0, 3.0, np.nan, 2.0, 2.0, 2.0, 2.0]
    table["superpixels"] = [10, 10, 20, 50, 10, 10, 10, 10]
    people = rank_people(table).set_index("annotator")
    assert people["masks"].tolist() == [4, 4]
    assert people["suspect"]["b"] == (table["quality"][4:] < 0.5).sum() > 0
    assert people["quality"]["a"] == pytest.approx(table["quality"][:4].mean())
    assert people["noise_variance"]["a"] == pytest.approx((10 + 10 + 60) / 40)
    assert people["trend"].isna().all()


def test_masks_without_annotator_or_quality_do_not_count():
    table = make_table({"a": 0.5, "b": 0.2, "": 0.0}, masks=5)
    table.loc[0, ["quality", "bad_probability"]] = np.nan
    people = rank_people(table).set_index("annotator")
    assert sorted(people.index) == ["a", "b"]
    assert people["masks"]["a"] == 5
    assert people["quality"]["a"] == pytest.approx(table["quality"][1:5].mean())


def test_trends():
    table = make_table({"worse": 0.5, "same": 0.4, "undated": 0.4}, masks=20, slope=0.0)
    days = pd.date_range("2024-01-01", periods=20, freq="3D").strftime("%Y-%m-%dT%H:%M:%S")
    table["annotated"] = [*days, *days, *[""] * 20]
    table.loc[:19, "quality"] -= 0.01 * np.arange(20)
    trend = rank_people(table).set_index("annotator")["trend"]
    assert trend["worse"] == pytest.approx(-0.1, abs=0.03)
    assert trend["same"] == pytest.approx(0, abs=0.04)
    assert np.isnan(trend["undated"])


def test_one_person_is_typical():
    people = rank_people(make_table({"a": 0.4}))
    assert people["excess"][0] == 0


def test_files():
    people = rank_people(make_table({"a": 0.5, "b": 0.1}))
    lines = people_to_csv(people).splitlines()
    assert lines[0] == "annotator,masks,suspect,quality,noise_variance"
    assert lines[1].startswith("b,30,")
    records = json.loads(json.dumps(people_records(people)))
    assert list(records[0]) == [column.name for column in PEOPLE_COLUMNS]
    assert records[0]["trend"] is None


def test_without_annotators():
    for table in (make_table({"": 0.4}), make_table({"a": 0.4}).drop(columns="annotator")):
        with pytest.raises(InputError, match="no annotators: name them at ingest"):
            rank_people(table)
