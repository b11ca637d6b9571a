"""Fits from disk to disk: what is in the way, and what a stop leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold
from sklearn.svm import LinearSVC

from gpgc_dask import MarginSVM, RunOptions, load, open_dataset
from gpgc_dask.core.progress import seconds_left
from gpgc_dask.pipelines.train import checkpoint_path, train
from tests.support.images import tree_bytes
from tests.support.ingesting import CrashError, crash_after
from tests.support.interrupts import interrupt_after

pytestmark = pytest.mark.newest


def stop_at(iteration):
    def listener(entry):
        if entry["iteration"] == iteration:
            raise CrashError

    return listener


def test_a_stopped_fit_resumes(reference, tmp_path):
    whole = train(reference, tmp_path / "whole.zarr")
    target = tmp_path / "model.zarr"
    with pytest.raises(CrashError):
        train(reference, target, run=RunOptions(progress=stop_at(2)))
    assert checkpoint_path(target).exists()
    assert not target.exists()
    with pytest.raises(FileExistsError, match=r"unfinished fit.*--resume.*--overwrite"):
        train(reference, target)
    seen = []
    model = train(reference, target, run=RunOptions(resume=True, progress=seen.append))
    # The listener is told of a read before the step after it is kept.
    assert seen[0]["iteration"] == 2
    assert not checkpoint_path(target).exists()
    np.testing.assert_allclose(model.noise_variance_, whole.noise_variance_, rtol=1e-2)
    assert len(load(target).review_) == 30


def test_a_fit_that_died_before_its_review(reference, tmp_path, monkeypatch):
    """What took so long is kept, and the review is made up for."""
    target = tmp_path / "model.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, sys.modules["gpgc_dask.models.base"], "review", 0)
        with pytest.raises(CrashError):
            train(reference, target)
    assert not hasattr(load(target), "review_")
    stages = []
    model = train(reference, target, announce=stages.append, run=RunOptions(resume=True))
    assert stages == ["review"]
    assert len(model.review_) == 30
    before = tree_bytes(target)
    train(reference, target, announce=stages.append, run=RunOptions(resume=True))
    assert stages == ["review"]
    assert tree_bytes(target) == before


def test_a_model_that_cannot_be_saved_costs_no_fit(reference, tmp_path, monkeypatch):
    target = tmp_path / "model.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, sys.modules["gpgc_dask.models.persistence"], "_write", 0)
        with pytest.raises(CrashError):
            train(reference, target)
    assert checkpoint_path(target).exists()
    seen = []
    train(reference, target, run=RunOptions(resume=True, progress=seen.append))
    assert len(seen) <= 2
    assert not checkpoint_path(target).exists()


def test_overwriting_restarts(reference, tmp_path):
    target = tmp_path / "model.zarr"
    with pytest.raises(CrashError):
        train(reference, target, run=RunOptions(progress=stop_at(2)))
    seen = []
    train(reference, target, run=RunOptions(overwrite=True, progress=seen.append))
    assert seen[0]["iteration"] == 0
    with pytest.raises(FileExistsError, match="--overwrite"):
        train(reference, target)
    model = train(reference, target, method="gp", run=RunOptions(overwrite=True))
    assert type(model).__name__ == "GP"


def test_resuming_something_else_is_rejected(reference, tmp_path):
    target = tmp_path / "model.zarr"
    train(reference, target, parameters={"redundancy": 1.0})
    with pytest.raises(ValueError, match=r"redundancy \(1.0 there, auto here\)"):
        train(reference, target, run=RunOptions(resume=True))
    with pytest.raises(ValueError, match=r"method \(GPGC there, GP here\)"):
        train(
            reference,
            target,
            method="gp",
            parameters={"redundancy": 1.0},
            run=RunOptions(resume=True),
        )


def test_ctrl_c_says_how_to_continue(reference, tmp_path):
    target = tmp_path / "model.zarr"
    command = ["fit", str(reference), "-o", str(target)]
    code, err = interrupt_after(tmp_path, "gpgc_dask.gp.checkpoint:Checkpoint.save", command)
    assert code == 130, err
    assert "the same command with --resume continues it" in err
    assert "Traceback" not in err
    assert checkpoint_path(target).exists()
    done = subprocess.run(
        [sys.executable, "-m", "gpgc_dask", *command, "--resume", "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["converged"]
    assert found["images"] == 30


def test_on_workers(run, reference, tmp_path):
    code, out, err = run(
        "fit", reference, "-o", tmp_path / "m.zarr", "--workers", 1, "--json", "--redundancy", "1"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["redundancy"] == 1.0
    alone = train(reference, tmp_path / "alone.zarr", parameters={"redundancy": 1.0})
    assert found["log_evidence"] == pytest.approx(alone.log_evidence_, rel=1e-6)


def test_the_svm_goes_the_same_way(run, reference, tmp_path, folders):
    """Fit, rank, report and predict by the baseline; its agreement is out of fold."""
    target = tmp_path / "svm.zarr"
    code, out, err = run("fit", reference, "-o", target, "--method", "svm", "--json")
    assert code == 0, err
    assert json.loads(out)["images"] == 30
    model = load(target)
    dataset = open_dataset(reference)
    same = MarginSVM().fit(dataset)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    np.testing.assert_array_equal(model.group_margin_, same.group_margin_)
    assert model.review_["agreement"].between(0, 1).all()
    order = np.argsort(same.group_margin_)
    assert np.all(np.diff(model.confidence_[order]) >= 0)
    code, out, _ = run("rank", target, "--by", "confidence")
    assert out.splitlines()[1].split(",")[1] == same.groups_[order[0]]
    assert run("report", reference, target, "-o", tmp_path / "r.html")[0] == 0
    given = [target, folders[0], "-o", tmp_path / "m", "--workers", 1]
    code, _, err = run("predict", *given, "--std", tmp_path / "s")
    assert code == 2
    assert "has no probabilities" in err
    assert run("predict", *given)[0] == 0
    assert len(list((tmp_path / "m").glob("*.png"))) == 30
    assert run("plan", reference, "--method", "svm")[0] == 0
    wrong = ("fit", reference, "-o", tmp_path / "x", "--method", "svm", "--redundancy", "1")
    assert run(*wrong)[0] == 2
    code, _, err = run(*wrong[:-2], "--rounds", "1")
    assert code == 2
    assert "--rounds is for gpgc and gp" in err


def test_rounds_and_class_weights(run, reference, tmp_path):
    target = tmp_path / "m.zarr"
    given = ("fit", reference, "-o", target)
    code, _, err = run(*given, "--rounds", 0, "--class-weight", "none")
    assert code == 0, err
    model = load(target)
    assert (model.rounds, model.class_weight) == (0, None)
    assert model.class_weight_.tolist() == [1.0, 1.0]
    code, _, err = run(*given, "--resume")
    assert code == 2
    assert "rounds (0 there, None here)" in err
    assert "class_weight (None there, auto here)" in err
    assert run(*given, "--resume", "--rounds", 0, "--class-weight", "none")[0] == 0
    assert run(*given, "--overwrite", "--class-weight", "equal")[0] == 2
    assert run(*given, "--overwrite")[0] == 0
    assert load(target).rounds is None
    assert load(target).row_weight_.size == open_dataset(reference).sizes["superpixel"]
    assert run(*given, "--overwrite", "--method", "gp")[0] == 0
    assert load(target).rounds == 0


def test_out_of_fold_predictions_of_an_svm():
    """By hand: groups shared out to folds, a machine without each."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 20)
    X = np.column_stack([rng.standard_normal((240, 4)), np.ones(240)])
    y = (X[:, 0] + 0.5 * rng.standard_normal(240) > 0).astype(int)
    model = MarginSVM(C=0.01).fit(X, y, groups=groups)
    values, agreement = model.leave_group_out(X, y, groups, return_agreement=True)
    expected = np.empty(240)
    for kept, held in GroupKFold(5).split(X, y, groups):
        machine = LinearSVC(
            C=0.01, dual=False, fit_intercept=False, class_weight=_balanced(y[kept]), tol=1e-6
        )
        expected[held] = machine.fit(X[kept], y[kept]).decision_function(X[held])
    np.testing.assert_allclose(values, expected, atol=1e-5)
    first = groups == 0
    both = ((values > 0) & (y == 1))[first].sum()
    assert agreement.iou[0] == both / ((values > 0) | (y == 1))[first].sum()


def _balanced(y):
    return {c: len(y) / (2 * np.sum(y == c)) for c in (0, 1)}


def test_plan(run, reference):
    code, out, _ = run("plan", reference)
    assert code == 0
    assert "memory per worker" in out
    code, out, _ = run("plan", reference, "--json", "--workers", 20, "--memory-limit", "1GB")
    found = json.loads(out)
    assert found["resources"]["workers"] == 20
    assert found["fits"]
    assert found["reads"] == 9.0
    code, out, _ = run("plan", reference, "--json", "--rounds", 0)
    assert json.loads(out)["reads"] == 7.0
    code, out, _ = run("plan", reference, "--method", "gp", "--redundancy", "1", "--json")
    assert json.loads(out)["reads"] == 1.0
    code, out, _ = run("plan", "--images", 100, "--features", 50, "--json")
    assert json.loads(out)["shape"]["n_rows"] == 29_000
    assert run("plan", reference, "--images", 100)[0] == 2


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([1e4], None),
        ([1e4, 1e3], 6.0),
        ([1e4, 1e5], None),
        ([1e4, 1e-1], 0.0),
        ([1e6, 1e5, 1e4, 1e3, 1e2], 4.0),
        ([10.0, 10**0.5], 2.0),
    ],
)
def test_time_left(gains, expected):
    """By the decades that the last steps gained, of 2 s each."""
    entries = [{"predicted_gain": g, "gain_tolerance": 1.0, "seconds": {"sweep": 2}} for g in gains]
    assert seconds_left(entries) == expected
