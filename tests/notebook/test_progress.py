"""Progress and interrupts in a real Jupyter kernel, and the names of tasks on a real cluster."""

from __future__ import annotations

import json
import re
import sys
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import SchedulerPlugin
from distributed.utils import key_split, key_split_group
from sklearn.exceptions import ConvergenceWarning

from gpgc_dask import GPGC, open_dataset
from gpgc_dask.core.threads import map_threads
from gpgc_dask.execution.cancel import cancel_futures
from gpgc_dask.gp.oracle.kernels import Arithmetic
from gpgc_dask.gp.oracle.numpy import NumpySweeps
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.notebook.progress import Line
from gpgc_dask.pipelines.ingest import RunOptions, ingest
from gpgc_dask.pipelines.predict import predict_masks
from tests.gp.test_oracle import rows_of
from tests.support.images import tree_bytes
from tests.support.ingesting import QUICK
from tests.support.notebook import Notebook
from tests.support.problems import classification
from tests.support.superpixels import write_dataset

pytestmark = pytest.mark.newest

N, K = 50_000, 256

PREPARED = """
import json, time
from pathlib import Path
import dask, numpy as np
import gpgc_dask.gp.oracle.dask
from gpgc_dask import GPGC, open_dataset
from gpgc_dask.gp.checkpoint import parse_checkpoint
from gpgc_dask import PhotoFormat, Recipe, RunOptions, ingest
from tests.support.problems import classification
from tests.notebook.test_progress import in_memory

gpgc_dask.gp.oracle.dask.count_tasks = lambda n_rows, n_features, n_threads: 24
small = classification(3000, 20, 60)
lazy = dask.array.from_array(small.X, chunks=(500, -1))

def fit(path, checkpoint, progress, memory):
    given = in_memory(open_dataset(path)) if memory else {"X": open_dataset(path)}
    return GPGC(checkpoint=checkpoint, progress=progress).fit(**given)

def resume(path, checkpoint, memory):
    kept, seen = parse_checkpoint(Path(checkpoint).read_bytes())[1], []
    model = fit(path, checkpoint, seen.append, memory)
    print(json.dumps({
        "converged": bool(model.converged_), "evidence": model.log_evidence_,
        "noise": model.noise_variance_.tolist(), "left": Path(checkpoint).exists(),
        "entries kept": len(kept.entries), "reads kept": kept.reads,
        "first told": seen[0]["iteration"], "reads": model.n_reads_,
    }))
"""

CLUSTER = """
from dask.distributed import Client, LocalCluster
cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
client = Client(cluster)

def state():
    running = [task for tasks in client.call_stack().values() for task in tasks]
    processing = [task for tasks in client.processing().values() for task in tasks]
    return {
        "running": len(running), "processing": len(processing),
        "known": len(cluster.scheduler.tasks),
        "workers": [nanny.pid for nanny in cluster.workers.values()],
    }
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    started = Notebook(tmp_path_factory.mktemp("jupyter"))
    try:
        assert started.run(PREPARED).error is None
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def on_cluster(notebook):
    cell = notebook.run(CLUSTER)
    assert cell.error is None, cell
    yield notebook
    notebook.run("client.close(); cluster.close()")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("data") / "data.zarr", N, K, 900)


def in_memory(dataset):
    names = {"X": "features", "y": "label", "groups": "image", "feature_groups": "feature_group"}
    return {name: dataset[of].values for name, of in names.items()}


@pytest.fixture(scope="module")
def undisturbed(data):
    return GPGC().fit(open_dataset(data))


@pytest.fixture(scope="module")
def undisturbed_in_memory(data):
    return GPGC().fit(**in_memory(open_dataset(data)))


@pytest.fixture(scope="module")
def lazy():
    """What a fit on a dask array takes."""
    data = classification(6000, 20, 200)
    return {"X": da.from_array(data.X, chunks=(500, -1)), "y": data.y, "groups": data.groups}


def told(cell):
    """The one line of a cell: all that it said, the last word at the end."""
    assert cell.error is None, cell
    assert cell.stderr == ""
    assert len({number for number, _ in cell.shown}) == 1
    return cell.lines


# -- the live line -----------------------------------------------------------------------------


def test_a_fit_in_a_notebook_is_one_line(notebook):
    cell = notebook.run("model = GPGC(progress=True).fit(small.X, small.y, groups=small.groups)")
    lines = told(cell)
    assert lines[0] == "[------------] fit  reading the data"
    assert re.fullmatch(
        r"✓ fit  converged after [\d.]+ reads in \d+ s  log evidence -?[\d.]+", lines[-1]
    )
    pages = [bundle["text/html"] for _, bundle in cell.shown]
    assert '<progress max="1"' in pages[0]
    assert "converged after" in pages[-1]
    assert "<progress" not in pages[-1]


def test_the_line_tells_how_far_a_read_is(notebook):
    """By threads of the kernel, a task at a time; then the evidence and the distance."""
    fit = "model = GPGC(progress=True).fit(lazy, small.y, groups=small.groups)"
    often = "gpgc_dask.notebook.progress.MIN_SECONDS"
    lines = told(notebook.run(f"{often}, usual = 0, {often}\n{fit}\n{often} = usual"))
    shares = re.findall(r"reading the data  (?:survey|sweep)-1 (\d+)%", "\n".join(lines))
    assert len(set(shares)) > 2
    assert any(
        re.match(r"\[#*-*\] fit  fixed-point  reads [\d.]+  log evidence .* tolerance", line)
        for line in lines
    )


def test_a_fit_that_fails_says_so(notebook):
    broken = "dask.array.where(lazy == lazy[7, 3], np.nan, lazy)"
    cell = notebook.run(f"GPGC(progress=True).fit({broken}, small.y, groups=small.groups)")
    assert cell.error == "NotFiniteError"
    assert cell.lines[-1].startswith("✗ fit  failed at  reading the data")


def test_a_fit_that_does_not_settle_says_so(notebook):
    model = "GPGC(progress=True, max_iter=1)"
    cell = notebook.run(
        f"import warnings; warnings.simplefilter('ignore')\n"
        f"{model}.fit(small.X, small.y, groups=small.groups)"
    )
    assert told(cell)[-1].startswith("■ fit  stopped before it converged after ")


def test_an_ingest_in_a_notebook_is_one_line(notebook, folders, tmp_path):
    images, masks = (str(folder) for folder in folders)
    target = str(tmp_path / "data.zarr")
    options = f"recipe={QUICK!r}, run=RunOptions(progress=True)"
    cell = notebook.run(f"ingest({images!r}, {masks!r}, {target!r}, {options})")
    lines = told(cell)
    assert any(re.match(r"\[#+-*\] images  \d+/30", line) for line in lines)
    assert re.fullmatch(r"✓ writing  (\d+)/\1  [\d.]+/s  done in \d+ s", lines[-1])


def test_names_are_no_markup():
    line = Line("<b>a</b>", "x & y", 0.25)
    assert "<b>&lt;b&gt;a&lt;/b&gt;</b>  x &amp; y" in line.html()
    assert line.text() == "[###---------] <b>a</b>  x & y"


def test_elsewhere_there_are_lines(folders, tmp_path, capsys):
    ingest(*folders, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(progress=True))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "images 0/30"
    assert any(line.startswith("images 30/30  ") for line in lines)
    with pytest.raises(TypeError, match="progress must be True, False, None or a callable"):
        ingest(*folders, tmp_path / "more.zarr", recipe=QUICK, run=RunOptions(progress="bar"))


def fit_with_progress(lazy):
    GPGC(progress=True).fit(np.asarray(lazy["X"]), lazy["y"], groups=lazy["groups"])
    return "IPython" in sys.modules


def test_no_notebook_is_looked_for_where_there_is_none(lazy, client):
    """In a worker, say."""
    assert not client.submit(fit_with_progress, lazy).result(timeout=60)


class Hearing:
    """Somebody's own listener."""

    def __init__(self):
        self.entries, self.reads = [], []

    def __call__(self, entry):
        self.entries.append(entry)

    def reading(self, progress):
        self.reads.append(progress)


def test_whoever_listens_may_hear_of_reads(lazy):
    hearing = Hearing()
    model = GPGC(progress=hearing).fit(**lazy)
    assert hearing.entries == model.history_
    assert {one.phase.partition("-")[0] for one in hearing.reads} <= {
        "sweep",
        "survey",
        "residuals",
        "leave",
        "gram",
    }
    assert {one.phase.partition("-")[2] for one in hearing.reads} >= {"1", "2", "3"}
    assert all(0 <= one.done <= one.total for one in hearing.reads)


def test_how_far_a_read_on_a_cluster_is(lazy, client, monkeypatch):
    monkeypatch.setattr("gpgc_dask.execution.compute.WATCH_SECONDS", 0.05)
    monkeypatch.setattr("gpgc_dask.execution.task_progress.MAX_POLLED", 20)
    monkeypatch.setattr("gpgc_dask.gp.oracle.dask.count_tasks", lambda *shape: 60)

    hearing = Hearing()
    GPGC(progress=hearing).fit(**lazy)
    shares = {one.done / one.total for one in hearing.reads}
    assert 0 in shares
    assert len([share for share in shares if 0 < share <= 1]) > 2


# -- interrupts --------------------------------------------------------------------------------


def check_resumed(cell, undisturbed):
    """It went on where it was, reading nothing again, to the same optimum."""
    assert cell.error is None, cell
    found = json.loads(cell.stdout)
    assert found["converged"]
    assert abs(found["evidence"] - undisturbed.log_evidence_) <= 1e-6 * N
    np.testing.assert_allclose(found["noise"], undisturbed.noise_variance_, rtol=0.02)
    assert not found["left"], "the checkpoint of a finished fit"
    assert found["reads kept"] >= 1
    assert found["first told"] == found["entries kept"]
    assert found["reads"] <= undisturbed.n_reads_ + 1


def after_an_entry(cell):
    """Whether the first entry of a fit is there, and the next read under way."""
    return bool(cell.lines) and "log evidence" in cell.lines[-1]


def test_an_interrupted_fit_leaves_nothing_running_and_goes_on(
    on_cluster, data, undisturbed, tmp_path
):
    """On a LocalCluster as anybody starts it, whose workers the interrupt reaches, too."""
    given = f"{str(data)!r}, {str(tmp_path / 'fit.npz')!r}"
    before = json.loads(on_cluster.run("print(json.dumps(state()))").stdout)
    cell = on_cluster.run(f"fit({given}, True, memory=False)", interrupt=after_an_entry)
    assert cell.error == "KeyboardInterrupt", cell
    assert cell.lines[-1].startswith("■ fit  stopped; fit again to resume from  fixed-point  reads")
    after = json.loads(on_cluster.run("print(json.dumps(state()))").stdout)
    assert (after["running"], after["processing"], after["known"]) == (0, 0, 0)
    assert after["workers"] == before["workers"], "the interrupt killed workers"
    cell = on_cluster.run(f"resume({given}, memory=False)")
    check_resumed(cell, undisturbed)
    assert "Traceback" not in cell.stderr


def test_an_interrupted_ingest_leaves_nothing_running_and_goes_on(
    on_cluster, folders, reference, tmp_path
):
    images, masks = (str(folder) for folder in folders)
    target = tmp_path / "data.zarr"
    given = f"{images!r}, {masks!r}, {str(target)!r}, recipe={QUICK!r}"
    # A listener that dawdles: the interrupt finds the driver there, not in Dask's hands.
    cell = on_cluster.run(
        "def dawdle(progress):\n    print(progress.done, flush=True)\n    time.sleep(1)\n"
        f"ingest({given}, run=RunOptions(progress=dawdle))",
        interrupt=lambda cell: "8" in cell.stdout.split(),
    )
    assert cell.error == "KeyboardInterrupt", cell
    after = json.loads(on_cluster.run("print(json.dumps(state()))").stdout)
    assert (after["running"], after["processing"]) == (0, 0)
    cell = on_cluster.run(f"print(ingest({given}, run=RunOptions(resume=True)).resumed)")
    assert cell.error is None, cell
    assert int(cell.stdout) >= 8
    assert tree_bytes(target) == tree_bytes(reference)


@pytest.mark.parametrize("memory", [False, True])
def test_an_interrupted_fit_without_a_cluster_goes_on(
    notebook, data, undisturbed, undisturbed_in_memory, tmp_path, memory
):
    checkpoint = tmp_path / "fit.npz"
    given = f"{str(data)!r}, {str(checkpoint)!r}"
    threads = "with dask.config.set(scheduler='threads'):"
    cell = notebook.run(
        f"{threads} fit({given}, True, {memory})", interrupt=lambda cell: checkpoint.exists()
    )
    assert cell.error == "KeyboardInterrupt", cell
    assert cell.lines[-1].startswith("■ fit  stopped")
    cell = notebook.run(f"{threads} resume({given}, {memory})")
    check_resumed(cell, undisturbed_in_memory if memory else undisturbed)


def test_threads_stop_when_one_has_failed(monkeypatch):
    data = classification(40_000, 100, 400)
    sweeps = NumpySweeps(data.X, rows_of(data), Arithmetic(np.dtype(np.float64)))
    begun, done, stops = threading.Event(), [], []

    def observed(function, items, stop):
        stops.append(stop)
        return map_threads(function, items, stop)

    def work(batches, rows, first):
        for batch in batches:
            if first == 0:
                assert begun.wait(60)
                raise RuntimeError("the first thread fails")
            begun.set()
            assert stops[0].wait(60)
            done.append(batch)

    monkeypatch.setattr("gpgc_dask.gp.oracle.numpy.blas_threads", lambda: 3)
    monkeypatch.setattr("gpgc_dask.gp.oracle.numpy.map_threads", observed)
    with pytest.raises(RuntimeError, match="the first thread fails"):
        sweeps._map(work, whole_groups=True)
    assert len(done) <= 2, "the other two threads end with the batch that they had begun"


def test_what_is_stopped_at_once_does_not_begin_later(client, monkeypatch, caplog):
    """Not even if the scheduler was still unpacking the graph."""
    monkeypatch.setattr("gpgc_dask.execution.cancel.STOP_SECONDS", 60.0)
    tasks = [dask.delayed(time.sleep)(0.02, dask_key_name=("wait", n)) for n in range(1000)]
    for pause in (0.0, 0.3):
        futures = client.compute([dask.delayed(list)(tasks)])
        time.sleep(pause)
        cancel_futures(client, futures)
        assert not [record for record in caplog.records if record.name == "gpgc_dask"]
        time.sleep(0.3)
        assert not client.cluster.scheduler.tasks
        assert not any(client.call_stack().values())


# -- names -------------------------------------------------------------------------------------


class Seen(SchedulerPlugin):
    """The keys of all tasks that a scheduler has handed out."""

    name = "seen"

    def __init__(self):
        self.keys = []

    def transition(self, key, start, finish, *args, **kwargs):
        if finish == "processing":
            self.keys.append(key)

    def take(self):
        """({prefix}, {group}) of those since the last time."""
        keys, self.keys = self.keys, []
        return {key_split(key) for key in keys}, {key_split_group(key) for key in keys}


@pytest.fixture
def seen(client):
    plugin = Seen()
    client.cluster.scheduler.add_plugin(plugin)
    yield plugin
    client.cluster.scheduler.remove_plugin("seen")


def test_tasks_of_a_fit_have_names_that_people_know(lazy, client, seen, monkeypatch):
    monkeypatch.setattr("gpgc_dask.gp.oracle.dask.count_tasks", lambda *shape: 6)
    model = GPGC().fit(**lazy)
    prefixes, groups = seen.take()
    reads = {"survey", "sweep", "residuals", "leave-out", "gram"}
    assert prefixes - reads == {"sample", "source", "constants", "merge"}
    assert "sweep" in prefixes
    numbers = sorted(int(group.rpartition("-")[2]) for group in groups if key_split(group) in reads)
    assert numbers == list(range(1, len(numbers) + 1)), "each read has the next number"
    merged = {number for number in numbers if f"leave-out-{number}" not in groups}
    assert len(merged) == len(numbers) - 1  # later rounds predict and sum in one read
    assert {f"merge-{number}" for number in merged} <= groups

    with pytest.warns(ConvergenceWarning):
        GPGC(solver="lbfgs", max_iter=2).fit(**lazy)
    assert {"gram", "residuals"} <= seen.take()[0]

    model.leave_group_out(**lazy, return_agreement=True)
    prefixes, _ = seen.take()
    dasks_own = {name for name in prefixes if name.startswith("finalize")}
    assert prefixes - dasks_own == {"leave-out", "source", "constants"}


def test_tasks_on_photos_have_names_that_people_know(folders, client, seen, tmp_path):
    target = tmp_path / "data.zarr"
    ingest(*folders, target, recipe=QUICK, run=RunOptions(client=client))
    _, groups = seen.take()
    assert {"ingest", "write"} <= groups
    # What is read of the dataset to tell of it.
    arrays = ("label", "weight", "pixels", "image", "finalize")
    assert all(any(name in group for name in arrays) for group in groups - {"ingest", "write"})
    dataset = open_dataset(target)
    with dask.config.set(scheduler="threads"):
        model = GPGC().fit(dataset)
        labels = model.predict(dataset).compute()
    predict_masks(model, folders[0], tmp_path / "predicted", run=RunOptions(client=client))
    assert seen.take()[1] == {"predict", "predict-recipe"}
    write_masks(dataset, labels, tmp_path / "painted")
    assert "paint" in seen.take()[1]
