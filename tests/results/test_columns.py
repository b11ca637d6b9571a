"""The columns of a ranking are declared once: a new one is in every file and on the page."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest

from gpgc_dask.models.review import rank
from gpgc_dask.results import columns
from gpgc_dask.results.columns import Column, column_names, markdown_table
from gpgc_dask.results.export import export
from gpgc_dask.results.ranking import records, to_csv
from gpgc_dask.results.report.page import page_content, render_page
from tests.support.exporting import make_job

pytestmark = pytest.mark.filterwarnings("ignore:1 image|1 of 13 groups")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return make_job(tmp_path_factory.mktemp("columns"))


@pytest.fixture
def review(job, monkeypatch):
    """The review of a model, with values for a column that was added to the list."""
    toy = Column("toy_score", "number", "a toy", format=".3g", higher_is_better=False)
    monkeypatch.setattr(columns, "COLUMNS", [*columns.COLUMNS, toy])
    values = np.arange(len(job.model.review_)) / 8
    values[2] = np.nan
    table = job.model.review_.assign(toy_score=values)
    monkeypatch.setattr(job.model, "review_", table)
    return table


def test_the_columns_that_programs_read():
    assert column_names() == [
        "rank", "image", "quality", "quality_low", "quality_high", "agreement", "confidence",
        "noise_variance", "flags",
    ]  # fmt: skip


def test_a_new_column_is_in_csv_and_json(review):
    ranking = rank(review)
    values = [None if value != value else value for value in ranking["toy_score"]]
    assert None in values
    assert [row["toy_score"] for row in records(ranking)] == values
    rows = csv.DictReader(io.StringIO(to_csv(ranking)))
    cells = [row["toy_score"] for row in rows]
    assert cells == ["" if value is None else str(value) for value in values]


def test_a_new_column_is_in_the_report(job, review):
    ranking = rank(review)
    page = render_page(page_content("toy", job.dataset, job.model, ranking), [None] * 13)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["images"]["toy_score"] == [
        None if value != value else value for value in ranking["toy_score"]
    ]
    (described,) = (column for column in data["columns"] if column["name"] == "toy_score")
    assert (described["title"], described["format"], described["kind"]) == (
        "toy score", ".3g", "number",
    )  # fmt: skip
    assert '<option value="-toy_score">toy score, highest first</option>' in page
    assert page.index('value="-toy_score"') < page.index('value="toy_score"')  # worst first


def test_a_new_column_is_exported(job, review, tmp_path):
    expected = [row["toy_score"] for row in records(rank(review))]
    export(job.model, tmp_path / "tasks.json", "label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["data"]["toy_score"] for task in tasks] == expected
    export(job.model, tmp_path / "dataset.json", "fiftyone")
    content = json.loads((tmp_path / "dataset.json").read_text())
    assert content["sample_fields"]["toy_score"] == "fiftyone.core.fields.FloatField"
    assert [sample["toy_score"] for sample in content["samples"]] == expected
    export(job.model, tmp_path / "worst.xml", "cvat")
    root = Xml.parse(tmp_path / "worst.xml").getroot()
    texts = [each.text or "" for each in root.findall("image/tag/attribute[@name='toy_score']")]
    assert texts == ["" if value is None else str(value) for value in expected]
    export(job.model, tmp_path / "scores.npz", "cleanlab")
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npz")["toy_score"], review.toy_score)


def test_a_new_column_is_printed(job, review, tmp_path, run, monkeypatch):
    monkeypatch.setattr("gpgc_dask.models.persistence.load", lambda path: job.model)
    _, out, _ = run("rank", tmp_path / "model.zarr")
    assert out.splitlines()[0].endswith(",flags,toy_score")


def test_the_documentation_lists_all_columns(run):
    _, text, _ = run("rank", "--help")
    for name in column_names():
        assert f"| `{name}` |" in markdown_table()
        assert name in text
        assert f"`{name}`" in (ROOT / "README.md").read_text() or name in ("rank", "image")
