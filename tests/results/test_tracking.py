"""Fits in MLflow: what a run has, with the real library and stores in local files."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

from gpgc_dask import MarginSVM, ingest, load, open_dataset, rank, train
from gpgc_dask.core.errors import MissingDependencyError, NotReviewedError
from gpgc_dask.models.review import count_confusions
from gpgc_dask.results.ranking import is_suspect, to_csv
from gpgc_dask.results.tracking import fit_metrics, log_to_mlflow
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

mlflow = pytest.importorskip("mlflow")

DATABASE = pytest.mark.skipif(
    not all(map(find_spec, ("alembic", "sqlalchemy", "flask"))),
    reason="mlflow-skinny has no databases",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("tracking")
    photos, masks = save_pairs(place, 30)
    ingest(photos, masks, place / "horses.zarr", recipe=QUICK)
    train(place / "horses.zarr", place / "model.zarr")
    return place


@pytest.fixture(params=["file", pytest.param("sqlite", marks=DATABASE)])
def store(request, tmp_path, monkeypatch):
    """A store in local files, by MLflow's own environment variable."""
    monkeypatch.chdir(tmp_path)  # a database keeps artifacts in the current folder
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address = {"file": f"file:{tmp_path}/runs", "sqlite": f"sqlite:///{tmp_path}/runs.db"}
    return _use(monkeypatch, address[request.param])


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return _use(monkeypatch, f"file:{tmp_path}/runs")


def _use(monkeypatch, address):
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    return mlflow.MlflowClient(address)


def artifact(client, run_id, name, folder):
    return client.download_artifacts(run_id, name, str(folder))


def test_one_flag(run, place, store, tmp_path):
    target = tmp_path / "model.zarr"
    code, out, err = run(
        "fit", place / "horses.zarr", "-o", target, "--mlflow", "masks", "--rounds", 1, "--json"
    )
    assert code == 0, err
    outcome = json.loads(out)
    model, dataset = load(target), open_dataset(place / "horses.zarr")
    (logged,) = store.search_runs([store.get_experiment_by_name("masks").experiment_id])
    assert outcome["mlflow"]["run_id"] == logged.info.run_id
    assert logged.info.status == "FINISHED"
    assert logged.data.tags["gpgc.model"] == str(target)
    assert logged.data.tags["gpgc.dataset"] == str(place / "horses.zarr")

    params, metrics = logged.data.params, logged.data.metrics
    assert (params["method"], params["rounds"], params["backbone"]) == ("GPGC", "1", "colour")
    assert params["classes"] == "background, foreground"
    ranking = rank(model.review_)
    assert metrics["log_evidence"] == pytest.approx(model.log_evidence_)
    assert metrics["reads"] == model.n_reads_
    assert metrics["redundancy"] == pytest.approx(model.redundancy_)
    assert metrics["bad_masks"] == outcome["bad"]["estimate"]
    assert metrics["suspect_masks"] == is_suspect(ranking).sum()
    assert metrics["quality_q25"] == pytest.approx(np.quantile(ranking["quality"], 0.25))
    confused = count_confusions(model, dataset)
    own = confused.loc["foreground", "foreground"] / confused.loc["foreground"].sum()
    assert metrics["class_agreement/foreground"] == pytest.approx(own)
    curve = store.get_metric_history(logged.info.run_id, "log_evidence")
    assert [point.value for point in curve[:-1]] == [e["log_evidence"] for e in model.history_]

    table = artifact(store, logged.info.run_id, "ranking.csv", tmp_path)
    with open(table, encoding="utf-8") as file:
        assert file.read() == to_csv(ranking)
    names = {item.path for item in store.list_artifacts(logged.info.run_id)}
    assert names == {"ranking.csv", "objects.csv", "report.html"}
    page = artifact(store, logged.info.run_id, "report.html", tmp_path)
    with open(page, encoding="utf-8") as file:
        assert "have a quality below 0.5" in file.read()


def test_a_finished_fit_is_logged_again(run, place, files, tmp_path):
    words = ["fit", place / "horses.zarr", "-o", tmp_path / "m.zarr", "--mlflow", "masks"]
    assert run(*words)[0] == 0
    code, _, err = run(*words, "--resume")
    assert code == 0
    found = files.search_runs([files.get_experiment_by_name("masks").experiment_id])
    assert len(found) == 2
    assert found[0].info.run_id in err


def test_a_store_that_fails_does_not_lose_the_fit(run, place, files, tmp_path):
    (tmp_path / "in-the-way").write_text("a file")
    files.create_experiment("masks", artifact_location=f"file:{tmp_path}/in-the-way/artifacts")
    words = ["fit", place / "horses.zarr", "-o", tmp_path / "model.zarr", "--mlflow", "masks"]
    code, out, err = run(*words)
    assert code == 1
    assert "Worst images" in out
    assert "model.zarr is complete, but MLflow cannot store the run" in err
    assert "--resume" in err
    assert len(load(tmp_path / "model.zarr").review_) == 30
    (failed,) = files.search_runs([files.get_experiment_by_name("masks").experiment_id])
    assert failed.info.status == "FAILED"
    assert "log_evidence" in failed.data.metrics  # numbers are logged before files


def test_a_server_that_does_not_answer_is_found_before_the_fit(run, place, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    words = ["fit", place / "horses.zarr", "-o", tmp_path / "model.zarr", "--mlflow", "masks"]
    code, _, err = run(*words)
    assert code == 1
    assert "MLflow cannot store the run at http://127.0.0.1:1" in err
    assert not (tmp_path / "model.zarr").exists()


def test_in_python(place, files, monkeypatch):
    model, dataset = load(place / "model.zarr"), open_dataset(place / "horses.zarr")
    with mlflow.start_run() as active:
        mlflow.log_param("mine", 1)
        logged = log_to_mlflow(model, dataset, report=False)
    assert logged.run_id == active.info.run_id
    assert logged.experiment == "Default"
    kept = files.get_run(logged.run_id)
    assert kept.data.params["mine"] == "1"
    assert kept.data.params["method"] == "GPGC"
    assert "report.html" not in {item.path for item in files.list_artifacts(logged.run_id)}
    assert mlflow.active_run() is None
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "nightly")
    assert log_to_mlflow(model, dataset, report=False).experiment == "nightly"
    with mlflow.start_run():
        other = log_to_mlflow(model, dataset, experiment="other", report=False)
        assert files.get_run(other.run_id).info.run_id != mlflow.active_run().info.run_id


def test_models_without_evidence_and_classes_with_odd_names(tmp_path, files):
    photos, masks = save_pairs(tmp_path, 12)
    ingest(photos, masks, tmp_path / "data.zarr", recipe=QUICK)
    dataset = open_dataset(tmp_path / "data.zarr")
    dataset.attrs["classes"] = ["..", "a:b/ä"]
    model = MarginSVM().fit(dataset)
    with pytest.raises(NotReviewedError):
        log_to_mlflow(model, dataset)
    model.review(dataset)
    logged = log_to_mlflow(model, dataset, report=False)
    metrics = files.get_run(logged.run_id).data.metrics
    assert {"class_agreement/_", "class_agreement/a_b_ä", "C"} <= set(metrics)
    assert "log_evidence" not in metrics


def test_unknown_numbers_are_left_out(place):
    model, dataset = load(place / "model.zarr"), open_dataset(place / "horses.zarr")
    review = model.review_.copy()
    review["quality"] = review["bad_probability"] = np.nan
    model.review_ = pd.DataFrame(review)
    metrics = fit_metrics(model, dataset)
    assert not [name for name in metrics if name.startswith(("quality", "bad"))]
    assert all(map(np.isfinite, metrics.values()))


@pytest.mark.skipif(find_spec("alembic") is not None, reason="all of MLflow is installed")
def test_databases_need_more_than_the_extra(place, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    model, dataset = load(place / "model.zarr"), open_dataset(place / "horses.zarr")
    with pytest.raises(MissingDependencyError, match="pip install mlflow"):
        log_to_mlflow(model, dataset)
