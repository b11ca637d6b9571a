"""Datasets, models and checkpoints in an object store: whole, resumed, slow, failing, gone."""

from __future__ import annotations

import errno
import json
import logging
import pickle
import sys
import time
from contextlib import contextmanager

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from gpgc_dask import GP, GPGC, load, open_dataset
from gpgc_dask.core.errors import StoreError
from gpgc_dask.pipelines.ingest import RunOptions, ingest
from gpgc_dask.pipelines.train import checkpoint_path, train
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.retries import is_transient, with_retries
from tests.support.images import tree_bytes
from tests.support.ingesting import QUICK, CrashError, crash_after
from tests.support.object_store import object_store
from tests.support.problems import classification
from tests.support.processes import SPAWNED

pytestmark = pytest.mark.newest

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
PAPER = {"redundancy": 1.0}  # the optimum is then that of one function, to many digits
HASTY = {"gpgc.store.wait": 0.03, "gpgc.store.tries": 5, "gpgc.store.seconds": 60}


@pytest.fixture(scope="module", params=["s3fs", "obstore"])
def s3(request, tmp_path_factory):
    """The proxy. s3fs takes its keys from a file, obstore from the environment."""
    import s3fs

    if request.param == "obstore":
        pytest.importorskip("obstore")
    file = tmp_path_factory.mktemp("aws") / "credentials"
    file.write_text("[default]\naws_access_key_id = k\naws_secret_access_key = s\n")
    settings = dask.config.set(HASTY | SPAWNED)
    with object_store() as proxy, pytest.MonkeyPatch.context() as patch, settings:
        for name in (*KEYS, "AWS_PROFILE", "AWS_MAX_ATTEMPTS"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
        if request.param == "obstore":
            for name, value in KEYS.items():
                patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        proxy.kind = request.param
        yield proxy
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def proxy(s3):
    s3.heal()
    yield s3
    s3.heal()


@pytest.fixture(scope="module")
def stored(s3, folders):
    """The URL of a dataset of 30 images in a dozen chunks."""
    url = "s3://bucket/data.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpgc_dask.data.writing.CHUNK_BYTES", 64 * 31 * 4)
        ingest(*folders, url, recipe=QUICK)
    return url


@pytest.fixture(scope="module")
def local_model(stored, tmp_path_factory):
    """Of the same dataset, fitted by threads of this process with nothing going wrong."""
    return train(stored, tmp_path_factory.mktemp("local") / "model.zarr", parameters=PAPER)


@pytest.fixture(scope="module")
def _processes(s3):
    """Two processes that have this one's environment and settings of now."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def workers(_processes):
    with Client(_processes) as client:
        yield client


def stop_at(iteration):
    def listener(entry):
        if entry["iteration"] == iteration:
            raise CrashError

    return listener


def assert_same_optimum(model, expected):
    rows = int(expected.review_["superpixels"].sum())
    assert model.converged_
    assert model.log_evidence_ == pytest.approx(expected.log_evidence_, abs=1e-6 * rows)


def test_everything_is_in_the_store(proxy, stored, local_model, run, tmp_path):
    target = "s3://bucket/whole/model.zarr"
    code, out, err = run("fit", stored, "-o", target, "--workers", 2, "--json", "--redundancy", 1)
    assert code == 0, err
    assert json.loads(out)["model"] == target
    model = load(target)
    assert_same_optimum(model, local_model)
    assert model.dataset_["url"] == stored
    np.testing.assert_allclose(model.noise_variance_, local_model.noise_variance_, rtol=1e-2)
    code, ranking, err = run("rank", target)
    assert code == 0, err
    assert len(ranking.splitlines()) == 31
    code, out, _ = run("select", target, "--top", "5")
    assert len(out.split()) == 5
    for command in (
        ["report", stored, target, "-o", tmp_path / "report.html"],
        ["info", stored],
        ["plan", stored],
    ):
        code, _, err = run(*command)
        assert code == 0, err
    code, _, err = run("fit", stored, "-o", target)
    assert code == 2
    assert "exists: choose another path, or replace it" in err
    assert run("fit", stored, "-o", target, "--resume", "--redundancy", 1)[0] == 0


def test_exit_codes_at_a_store(proxy, stored, run):
    """A job that reads a missing dataset ends; one whose store is busy is tried again."""
    out = ("-o", "s3://bucket/never.zarr")
    for missing in ("s3://bucket/none.zarr", "s3://no-such-bucket/data.zarr"):
        code, _, err = run("fit", missing, *out)
        assert code == 2, err
        assert "Traceback" not in err
    proxy.failing, proxy.answer = 1.0, (503, b"<Error><Code>SlowDown</Code></Error>")
    code, _, err = run("fit", stored, *out)
    assert code == 1, err
    assert "could not be reached" in err


def test_few_requests(proxy, stored, local_model):
    """One for a chunk of each read, one for what describes an array, and some more."""

    def requests(call):
        proxy.heal()
        return call(), proxy.requests

    dataset, opening = requests(lambda: open_dataset(stored))
    assert opening <= len(dataset.variables) + 25
    model, fitting = requests(lambda: GPGC(redundancy=1.0).fit(dataset))
    chunks = sum(len(dataset[name].chunks[0]) for name in ("features", "label", "image", "weight"))
    assert fitting <= chunks * (model.n_reads_ + 1)
    _, saving = requests(lambda: local_model.save("s3://bucket/few.zarr"))
    files = len(Location.of("s3://bucket/few.zarr").files())
    assert saving <= files + 15
    assert requests(lambda: local_model.save("s3://bucket/few.zarr"))[1] <= files + 15
    loaded, loading = requests(lambda: load("s3://bucket/few.zarr"))
    assert loading <= files + 15
    np.testing.assert_array_equal(loaded.coef_, local_model.coef_)


def test_saved_again_nothing_of_the_old_model_is_left(proxy, local_model):
    target = Location.of("s3://bucket/again.zarr")
    local_model.save(target)
    target.write("C_grid_/zarr.json", b"{}")
    target.write("left/c/0", b"")
    names = target.files()
    local_model.save(target)
    assert names - target.files() == {"C_grid_/zarr.json", "left/c/0"}
    np.testing.assert_array_equal(load(target).coef_, local_model.coef_)


def test_who_serves_it(proxy, stored):
    """The faster client where it knows the keys; else, or with options of fsspec's, s3fs."""
    served = {"s3fs": "FsspecStore", "obstore": "ObjectStore"}[proxy.kind]
    assert type(Location.of(stored).store()._inner).__name__ == served
    given = Location.of(stored, {"key": "k", "secret": "s"})
    assert type(given.store()._inner).__name__ == "FsspecStore"
    assert open_dataset(stored, {"key": "k", "secret": "s"}).sizes["photo"] == 30


def test_a_stopped_fit_resumes(proxy, stored, local_model):
    target = "s3://bucket/stopped.zarr"
    with pytest.raises(CrashError):
        train(stored, target, parameters=PAPER, run=RunOptions(progress=stop_at(2)))
    assert Location.of(checkpoint_path(target)).exists()
    assert not Location.of(target).exists()
    with pytest.raises(FileExistsError, match=r"unfinished fit.*--resume.*--overwrite"):
        train(stored, target)
    seen = []
    model = train(
        stored, target, parameters=PAPER, run=RunOptions(resume=True, progress=seen.append)
    )
    assert seen[0]["iteration"] >= 2
    assert_same_optimum(model, local_model)
    assert_same_optimum(load(target), local_model)
    assert not Location.of(checkpoint_path(target)).exists()


def test_a_checkpoint_elsewhere(proxy, stored, run, tmp_path, monkeypatch):
    """Dataset and checkpoint in the store, the model here; keys given by hand."""
    options = {"key": "k", "secret": "s"}
    kept = "s3://bucket/elsewhere/fit.npz"
    given = {"checkpoint": kept, "storage_options": options}
    with pytest.raises(CrashError):
        train(stored, tmp_path / "model.zarr", **given, run=RunOptions(progress=stop_at(1)))
    assert Location.of(kept).exists()
    assert not list(tmp_path.iterdir())
    code, _, err = run(
        "fit", stored, "-o", tmp_path / "model.zarr", "--checkpoint", kept, "--resume"
    )
    assert code == 0, err
    assert not Location.of(kept).exists()


def test_five_percent_of_requests_fail(proxy, stored, local_model, small_tasks, workers):
    """Busy answers, server errors and resets, at every request of a fit on processes."""
    proxy.failing = 0.05
    model = train(stored, "s3://bucket/flaky.zarr", parameters=PAPER)
    assert proxy.failed >= 5, f"of {proxy.requests} requests"
    assert_same_optimum(model, local_model)
    np.testing.assert_array_equal(load("s3://bucket/flaky.zarr").coef_, model.coef_)


def test_a_slow_store_and_an_outage(proxy, stored, local_model, caplog):
    """Four requests of rows in a row fail in the middle of the fit; each answer takes its time."""

    def listener(entry):
        proxy.delay, proxy.failing = 0.02, 1.0

    proxy.wanted = lambda path: "features/c" in path and proxy.failed < 4
    with caplog.at_level(logging.WARNING, "gpgc_dask"):
        model = train(
            stored, "s3://bucket/slow.zarr", parameters=PAPER, run=RunOptions(progress=listener)
        )
    assert_same_optimum(model, local_model)
    assert proxy.failed == 4
    told = [record.message for record in caplog.records if record.name == "gpgc_dask"]
    if proxy.kind == "obstore":  # s3fs repeats some requests by itself, and says nothing
        assert any("again in" in line and "s3://bucket/" in line for line in told), told


def test_a_store_that_is_gone(proxy, stored, local_model, small_tasks, workers):
    """A clear error in bounded time, and the fit goes on later from where it was."""
    target = "s3://bucket/gone.zarr"

    def listener(entry):
        if entry["iteration"] == 1:
            proxy.failing, proxy.wanted = 1.0, lambda path: "features/c" in path

    start = time.monotonic()
    with pytest.raises(StoreError, match=r"data.zarr/features/c/.*tried \d times.*--resume"):
        train(stored, target, parameters=PAPER, run=RunOptions(progress=listener))
    assert time.monotonic() - start < 40
    proxy.heal()
    seen = []
    model = train(
        stored, target, parameters=PAPER, run=RunOptions(resume=True, progress=seen.append)
    )
    assert seen[0]["iteration"] >= 1
    assert_same_optimum(model, local_model)


class FlakyRows:
    """Somebody's own store of rows: every seventh read fails."""

    def __init__(self, values):
        self.values, self.shape, self.dtype, self.ndim = values, values.shape, values.dtype, 2
        self.reads = 0

    def __getitem__(self, index):
        self.reads += 1
        if self.reads % 7 == 0:
            raise ConnectionResetError("reset")
        return self.values[index]


def test_blocks_of_any_store_are_read_again():
    data = classification(600, 20, 12)
    expected = GPGC(**PAPER).fit(data.X, data.y, groups=data.groups)
    rows = FlakyRows(data.X)
    X = da.from_array(rows, chunks=(100, -1), name=False)
    with dask.config.set(HASTY, scheduler="threads"):
        model = GPGC(**PAPER).fit(X, data.y, groups=data.groups)
    assert rows.reads > 7
    assert model.log_evidence_ == pytest.approx(expected.log_evidence_, abs=6e-4)


def test_a_model_is_whole_or_none(proxy, monkeypatch, tmp_path):
    """Replaced object by object: readers see the old one, none, the new one; no mixture."""
    target = "s3://bucket/replaced.zarr"
    data = classification(400, 20, 12)
    old = GPGC().fit(data.X, data.y, groups=data.groups)
    new = GP().fit(data.X, data.y, groups=data.groups)
    old.save(target)
    with monkeypatch.context() as patch:
        crash_after(patch, sys.modules["gpgc_dask.models.persistence"], "_write_array", 4)
        with pytest.raises(CrashError):
            new.save(target)
    assert type(load(target)) is GPGC
    with monkeypatch.context() as patch:
        crash_after(patch, Location, "write", 4)
        with pytest.raises(CrashError):
            new.save(target)
    with pytest.raises(ValueError, match=r"is not finished.*--resume"):
        load(target)
    new.save(target)
    found = load(target)
    new.save(tmp_path / "model.zarr")
    assert type(found) is GP
    np.testing.assert_array_equal(found.predict(data.X), new.predict(data.X))
    here = set(tree_bytes(tmp_path / "model.zarr"))
    assert Location.of(target).files() == here
    Location.of("s3://bucket/letters").write("a.txt", b"precious")
    with pytest.raises(FileExistsError, match="not a gpgc_dask model"):
        new.save("s3://bucket/letters")
    with pytest.raises(FileNotFoundError, match="s3://bucket/nothing does not exist"):
        load("s3://bucket/nothing")


def test_stores_travel_without_credentials(proxy, stored):
    """The graph of a dataset holds its URL; workers ask their own environment."""
    dataset = open_dataset(stored)
    X = dataset["features"].data
    travelling = pickle.dumps(dict(X.__dask_graph__()))
    assert b"bucket/data.zarr" in travelling
    assert b"AWS_" not in travelling
    for secret in (b"aws_secret", b"secret_access_key", proxy.url.encode()):
        assert secret not in travelling
    store = Location.of(stored, {"key": "k", "secret": "hidden"}).store()
    assert pickle.loads(pickle.dumps(store)) == store
    assert dask.base.tokenize(store) == dask.base.tokenize(pickle.loads(pickle.dumps(store)))
    assert "hidden" not in f"{store} {store!r} {Location.of(stored, {'secret': 'hidden'})!r}"


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:se/cret@bucket/data.zarr",
        "s3://key:1234@bucket/data.zarr",
        "https://me:hidden@host/data.zarr",
        "https://me:hidden@host:8080/data.zarr",
        "simplecache::s3://key:hidden@bucket/data.zarr",
    ],
)
def test_credentials_in_urls_are_rejected(url, run):
    for call in (
        ["fit", url, "-o", "model.zarr"],
        ["fit", "data.zarr", "-o", url],
        ["rank", url],
        ["report", "data.zarr", "model.zarr", "-o", url],
    ):
        code, _, err = run(*call)
        assert code == 2
        assert "URL holds credentials" in err
        assert "environment" in err
        assert not any(part in err for part in ("key:", "hidden", "cret@", "1234"))


@pytest.mark.parametrize("url", ["s3://arn:aws:s3:eu:123:accesspoint/x", "http://host:80/x"])
def test_urls_without_credentials_pass(url):
    assert Location.of(url).url == url


@contextmanager
def failing_with(error, times):
    count = iter(range(times))

    def call():
        if next(count, None) is not None:
            raise error
        return "done"

    yield call


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError("reset"), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (OSError(errno.EIO, "5xx of unknown kind"), True),
        (FileNotFoundError(), False),
        (PermissionError(), False),
        (OSError(errno.ENOSPC, "full"), False),
        (ValueError("damaged"), False),
        (StoreError("asked long enough"), False),
    ],
)
def test_which_errors_may_pass(error, passes):
    assert is_transient(error) is passes
    with dask.config.set(HASTY), failing_with(error, 2) as call:
        if passes:
            assert with_retries(call, "x") == "done"
        else:
            with pytest.raises(type(error)):
                with_retries(call, "x")


def test_patience_has_bounds():
    with failing_with(OSError("busy"), 100) as call:
        with (
            dask.config.set({"gpgc.store.tries": 3, "gpgc.store.wait": 0.01}),
            pytest.raises(StoreError, match=r"s3://b/x could not be reached: tried 3 times .*busy"),
        ):
            with_retries(call, "s3://b/x")
        with (
            dask.config.set({"gpgc.store.seconds": 0.5, "gpgc.store.wait": 1.1}),
            pytest.raises(StoreError, match="tried 1 times"),
        ):
            with_retries(call, "s3://b/x")


def test_patience_is_not_multiplied():
    """A request that was repeated is not repeated by whoever asked for it."""
    calls = []

    def call():
        calls.append(1)
        raise OSError("busy")

    with dask.config.set(HASTY), pytest.raises(StoreError, match="inner"):
        with_retries(lambda: with_retries(call, "inner"), "outer")
    assert len(calls) == HASTY["gpgc.store.tries"]
