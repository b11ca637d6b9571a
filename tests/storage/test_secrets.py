"""Credentials stay where they are: no log, report, model, checkpoint, task or error holds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from contextlib import contextmanager

import dask
import pytest

from gpgc_dask.cli import main
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.retries import hide_secrets
from tests.support.ingesting import QUICK
from tests.support.object_store import object_store
from tests.support.processes import SPAWNED

pytestmark = pytest.mark.newest

MARKS = {
    "AWS_ACCESS_KEY_ID": "AKIAmarkedkeyid",
    "AWS_SECRET_ACCESS_KEY": "marked/secret+key",
    "AWS_SESSION_TOKEN": "marked-session-token==",
}
TOKEN = MARKS["AWS_SESSION_TOKEN"]
GIVEN = {"key": "AKIAmarkedgiven", "secret": "marked/given+secret", "token": "marked-given-token"}

STOPPED_FIT = """
import json, logging, sys
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from gpgc_dask import RunOptions, open_dataset
from gpgc_dask.pipelines.train import train

class Keys(SchedulerPlugin):
    seen = set()
    def transition(self, key, start, finish, *args, **kwargs):
        self.seen.add(f"{key} {start} {finish}")

def main(data, target, options, found):
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("gpgc_dask").setLevel(logging.DEBUG)
    options = json.loads(options) or None
    dataset = open_dataset(data, options)
    print(dataset, dataset.attrs, dataset.encoding, dataset["features"].encoding)
    print(dataset["features"].data, list(dataset["features"].data.__dask_graph__()))
    print(dataset.variables["segments"])

    def stop(entry):
        print(entry)
        if entry["iteration"] == 1:
            raise RuntimeError("stopped")

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        keys = Keys()
        cluster.scheduler.add_plugin(keys)
        with Client(cluster) as client:
            try:
                train(data, target, run=RunOptions(progress=stop), storage_options=options)
            except RuntimeError as error:
                assert str(error) == "stopped", error
            print(client.get_scheduler_logs(), client.get_worker_logs(), client)
        assert len(keys.seen) > 10
        with open(found, "w") as file:
            file.write("\\n".join(keys.seen))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.fixture(scope="module")
def proxy(folders):
    """A store with a dataset in its bucket."""
    s3fs = pytest.importorskip("s3fs")
    with object_store() as proxy:
        proxy.options = {"key": "k", "secret": "s", "endpoint_url": proxy.url}
        ingest(*folders, "s3://bucket/data.zarr", storage_options=proxy.options, recipe=QUICK)
        yield proxy
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(params=["environment", "file"])
def keys(request, proxy, monkeypatch, tmp_path_factory):
    """Marked credentials in the environment, for obstore; or in the standard file, for s3fs."""
    import s3fs

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    if request.param == "environment":
        pytest.importorskip("obstore")
        for name, mark in MARKS.items():
            monkeypatch.setenv(name, mark)
    else:
        file = tmp_path_factory.mktemp("aws") / "credentials"
        lines = [f"{name.lower()} = {mark}" for name, mark in MARKS.items()]
        file.write_text("\n".join(["[default]", *lines, ""]))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    s3fs.S3FileSystem.clear_instance_cache()
    with dask.config.set(SPAWNED):
        yield request.param


def assert_unmarked(content: bytes | str, where: str) -> None:
    text = content.decode(errors="replace") if isinstance(content, bytes) else content
    for name, mark in {**MARKS, **GIVEN}.items():
        assert mark not in text, f"{name} is in {where}: {text[:2000]}"


def run_process(*command):
    """A program of its own; what it prints is looked through."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert_unmarked(done.stdout + done.stderr, f"output of {command}")
    assert done.returncode == 0, done.stderr


def look_through(proxy, folder) -> int:
    """How many objects and files there are, all of them without a mark."""
    place = Location.of("s3://bucket", proxy.options)
    for name in (names := place.files()):
        assert_unmarked(place.read(name), name)
    for path in (paths := [path for path in folder.rglob("*") if path.is_file()]):
        assert_unmarked(path.read_bytes(), path.name)
    return len(names) + len(paths)


def test_no_artefact_holds_a_credential(proxy, keys, tmp_path, run):
    """Output, logs, names of tasks, checkpoint, model, both reports; of a stopped, a resumed fit.

    s3fs is also given other keys by hand, for the first of the two.
    """
    given = GIVEN if keys == "file" else None
    data, target = "s3://bucket/data.zarr", f"s3://bucket/{keys}.zarr"
    script, tasks = tmp_path / "fit.py", tmp_path / "tasks.txt"
    script.write_text(STOPPED_FIT)
    run_process(script, data, target, json.dumps(given), tasks)
    assert "sweep" in tasks.read_text()
    assert Location.of(f"{target}.unfinished.npz", proxy.options).exists()
    look_through(proxy, tmp_path)
    fit = ["fit", data, "-o", target, "--workers", 1, "--resume"]
    page = tmp_path / "performance.html"
    run_process("-m", "gpgc_dask", "--debug", *fit, "--performance-report", page)
    assert page.exists()
    code, out, err = run("report", data, target, "-o", tmp_path / "report.html")
    assert_unmarked(out + err, "output of report")
    assert code == 0, err
    assert look_through(proxy, tmp_path) > 50


def failed(capsys, exit_code, *arguments):
    """All that a failing call of the program tells, with the traceback if there is one."""
    with pytest.raises((SystemExit, Exception)) as ended:
        main([str(argument) for argument in arguments])
    assert getattr(ended.value, "code", exit_code) == exit_code
    told = "".join([*traceback.format_exception(ended.value), *capsys.readouterr()])
    assert_unmarked(told, f"errors of {arguments}")
    return told


@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["plain", "debug"])
def test_errors_hold_no_credential(proxy, keys, debug, tmp_path, capsys, caplog):
    """A bucket that is not there; a store that repeats what it was sent, as Amazon's does."""
    data = "s3://bucket/data.zarr"
    told = failed(capsys, 2, *debug, "fit", data, "-o", "s3://nowhere/model.zarr")
    assert "at s3://nowhere/model.zarr" in told
    told = failed(capsys, 2, *debug, "info", "s3://nowhere/data.zarr")
    assert "s3://nowhere/data.zarr does not exist" in told
    hasty = {"gpgc.store.tries": 2, "gpgc.store.wait": 0.05}
    for status, exit_code, code, expected in (
        (403, 2, "ExpiredToken", "cannot be accessed with these credentials"),
        (400, 2 if keys == "file" else 1, "ExpiredToken", "data.zarr"),
        (500, 1, "InternalError", "could not be reached: tried 2 times"),
    ):
        parts = f"<Code>{code}</Code><Message>no</Message><Token-0>{TOKEN}</Token-0>"
        with dask.config.set(hasty), chunks_answer(proxy, status, f"<Error>{parts}</Error>"):
            told = failed(capsys, exit_code, *debug, "fit", data, "-o", tmp_path / "model.zarr")
        assert data in told
        assert expected in told
    assert_unmarked(caplog.text, "the log")


@contextmanager
def chunks_answer(proxy, status, content):
    """Whoever asks for an array's chunk gets this answer."""
    proxy.failing, proxy.answer = 1.0, (status, content.encode())
    proxy.wanted = lambda path: "/c/" in path
    try:
        yield
    finally:
        proxy.heal()


def test_hiding(monkeypatch):
    for name, mark in MARKS.items():
        monkeypatch.setenv(name, mark)
    hidden = hide_secrets("a marked/secret+key and marked-session-token== and more")
    assert hidden == "a [AWS_SECRET_ACCESS_KEY] and [AWS_SESSION_TOKEN] and more"
