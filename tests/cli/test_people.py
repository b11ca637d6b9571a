"""Annotators, answers and groups, from ingest to lists and folders."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from gpgc_dask import ImageInfo, MaskOptions, load, open_dataset
from gpgc_dask.core.errors import InputError
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.answers import best_answers, write_consensus
from tests.support.answers import save_answers
from tests.support.images import draw
from tests.support.ingesting import QUICK

N = 15


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """answers.zarr and answers-model.zarr of 15 photos with three masks each."""
    place = tmp_path_factory.mktemp("answers")
    images, masks = save_answers(place, N)
    ingest(
        images,
        masks,
        place / "answers.zarr",
        recipe=QUICK,
        masks_as=MaskOptions(format="answers"),
        info=ImageInfo(annotator="/(.+)$"),
    )
    train(place / "answers.zarr", place / "answers-model.zarr")
    return place


def test_people(run, place, tmp_path):
    model = place / "answers-model.zarr"
    code, out, err = run("rank", model, "--people")
    assert code == 0, err
    lines = [line.split(",") for line in out.splitlines()]
    assert lines[0] == ["annotator", "masks", "suspect", "quality", "noise_variance"]
    assert lines[1][0] == "carl"
    assert {line[1] for line in lines[1:]} == {str(N)}
    code, out, _ = run("rank", model, "--people", "-o", tmp_path / "people.csv")
    assert code == 0
    assert "3 annotators, worst first" in out
    assert pd.read_csv(tmp_path / "people.csv")["annotator"].tolist() == [
        line[0] for line in lines[1:]
    ]
    _, out, _ = run("rank", model, "--people", "--json")
    assert json.loads(out)[0]["excess"] < 0
    run("rank", model, "--people", "-o", tmp_path / "people.json")
    assert json.loads((tmp_path / "people.json").read_text()) == json.loads(out)


def test_people_need_annotators(run, place, tmp_path):
    images, masks = place / "images", place / "masks"
    options = MaskOptions(format="answers")
    ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, masks_as=options)
    train(tmp_path / "data.zarr", tmp_path / "model.zarr", parameters={"rounds": 0})
    code, _, err = run("rank", tmp_path / "model.zarr", "--people")
    assert code == 2
    assert "gpgc ingest --annotator" in err


def test_answers_are_judged_without_their_photo(place):
    """The review leaves out all answers of a photo, whose features are the same."""
    model, dataset = load(place / "answers-model.zarr"), open_dataset(place / "answers.zarr")
    photo = dataset["photo_name"].values[dataset["image"].values]
    values = np.asarray(model.leave_group_out(dataset))
    np.testing.assert_allclose(values, model.leave_out.values, rtol=1e-5, atol=1e-5)
    own = dataset["image"].values
    np.testing.assert_allclose(values[own == 0], values[own == 2], rtol=1e-6)
    alone = model.leave_group_out(dataset, together=dataset["image_name"].values[own])
    assert not np.allclose(np.asarray(alone)[own == 0], np.asarray(alone)[own == 2])
    assert (photo[own == 0] == photo[own == 2]).all()


def test_answers_are_compared_with_the_others(place):
    table = load(place / "answers-model.zarr").review_.set_index("annotator")
    consensus = table["consensus"].groupby(level=0).mean()
    assert consensus["carl"] < consensus["bert"]
    assert table["photo_name"].nunique() == N


def test_best_answers(run, place, tmp_path):
    model = place / "answers-model.zarr"
    chosen = best_answers(load(model).review_)
    assert chosen["photo_name"].is_monotonic_increasing
    assert len(chosen) == N
    assert (chosen["annotator"] == "carl").mean() < 0.2
    given = ["--best-answer", "--folder", tmp_path / "best", "-o", tmp_path / "best.txt"]
    code, _, err = run("select", model, *given, "--consensus", tmp_path / "agreed")
    assert code == 0, err
    assert len(list((tmp_path / "best/images").iterdir())) == N
    assert len(list((tmp_path / "best/masks").rglob("*.png"))) == N
    assert (tmp_path / "best.txt").read_text().splitlines() == chosen["image"].tolist()
    agreed = np.asarray(Image.open(tmp_path / "agreed/photo_000.png"))
    truth = draw(0)[1]
    assert agreed.shape == truth.shape
    assert set(np.unique(agreed)) == {0, 255}
    assert ((agreed > 0) & truth).sum() / ((agreed > 0) | truth).sum() > 0.6


def test_a_consensus_needs_an_empty_folder(place, tmp_path):
    model = load(place / "answers-model.zarr")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="not an empty folder"):
        write_consensus(model.review_, model.dataset_["source"], tmp_path)


def test_answers_are_needed(run, place, tmp_path, folders):
    table = load(place / "answers-model.zarr").review_.drop(columns="consensus")
    with pytest.raises(InputError, match="one mask each"):
        best_answers(table)


def test_reports_and_exports_of_answers(run, place, tmp_path):
    given = [place / "answers.zarr", place / "answers-model.zarr"]
    assert run("report", *given, "-o", tmp_path / "report.html")[0] == 0
    given = [place / "answers-model.zarr", "--to", "fiftyone", "-o", tmp_path / "out.json"]
    code, _, err = run("export", *given, "--data", place / "answers.zarr")
    assert code == 0, err


def test_wrong_groups_stop_before_any_work(run, folders, tmp_path):
    for option, value, message in (
        ("--group", "nothing", "matches nothing in 30 of 30 images"),
        ("--annotator", tmp_path / "no.csv", "does not exist"),
    ):
        given = ["ingest", *folders, "-o", tmp_path / "data.zarr", option, value]
        code, _, err = run(*given, "--workers", 1)
        assert code == 2
        assert message in err
        assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "data.zarr").exists()
