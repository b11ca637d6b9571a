"""Updates that are stopped anywhere, and readers that have the dataset open meanwhile."""

from __future__ import annotations

import shutil
import threading
from functools import cache

import numpy as np
import pytest
from PIL import Image

import gpgc_dask.data.replacement as replacement
from gpgc_dask import open_dataset, update
from gpgc_dask.core.errors import ChangedError, PipelineError
from gpgc_dask.data import writing
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.update import lock as update_lock
from gpgc_dask.pipelines.update import run as update_run
from gpgc_dask.storage.location import Location
from tests.support.images import save_pair, save_pairs, tree_bytes
from tests.support.ingesting import QUICK, CrashError, crash_after
from tests.support.updating import contents, killed_update

pytestmark = pytest.mark.newest

KILLS = 10


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A dataset, its folders after many changes, and the contents before and after an update."""
    folder = tmp_path_factory.mktemp("changed")
    images, masks = save_pairs(folder, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "CHUNK_BYTES", 64 * 31 * 4)
        patch.setattr(writing, "SEGMENT_BYTES", 4 * 2 * 60 * 80)
        ingest(images, masks, folder / "old.zarr", recipe=QUICK)
        for name in ("aaa", "zzz"):
            save_pair(folder, name, ord(name[0]))
        save_pair(folder, "photo_008", 99)
        Image.fromarray(np.eye(60, 80, dtype=np.uint8)).save(masks / "photo_002.png")
        for kind in (images, masks):
            next(kind.glob("photo_010.*")).unlink()
        shutil.copytree(folder / "old.zarr", folder / "new.zarr")
        update(folder / "new.zarr", images, masks, prune=True)
        ingest(images, masks, folder / "fresh.zarr", recipe=QUICK)
    assert contents(folder / "new.zarr") == contents(folder / "fresh.zarr")
    return folder


def check_state(target, folder):
    """The dataset is in its old or its new state, or a clear error says what to do."""
    try:
        found = contents(target)
    except ChangedError as error:
        assert "finish it with the same gpgc update" in str(error)  # noqa: PT017
        return "between"
    (state,) = (name for name in ("old", "new") if known_contents(folder, name) == found)
    return state


@cache
def known_contents(folder, name):
    return contents(folder / f"{name}.zarr")


def test_killed_at_any_write_it_ends_the_same(changed, tmp_path, small_chunks):
    folders = changed / "images", changed / "masks"
    target = tmp_path / "data.zarr"
    shutil.copytree(changed / "old.zarr", target)
    total = killed_update(tmp_path, 10**9, target, *folders)
    states = []
    for limit in np.linspace(1, total, KILLS).astype(int).tolist():
        shutil.rmtree(target)
        shutil.copytree(changed / "old.zarr", target)
        assert killed_update(tmp_path, limit, target, *folders) is None
        states.append(check_state(target, changed))
        report = update(target, *folders, prune=True)
        # At the last moments it was finished, only its folder was not removed.
        done = (3, 1, 1) if report.changed else (0, 0, 0)
        assert (report.new, report.relabelled, report.removed) == done
        assert report.changed or states[-1] == "new"
        assert check_state(target, changed) == "new"
        assert tree_bytes(target) == tree_bytes(changed / "new.zarr")
    assert states[0] == "old"
    assert set(states) >= {"old", "between"}
    assert states == sorted(states, key=["old", "between", "new"].index)


@pytest.fixture(scope="module")
def committed(changed, tmp_path_factory):
    """A dataset whose update was stopped right after its commit."""
    target = tmp_path_factory.mktemp("committed") / "data.zarr"
    shutil.copytree(changed / "old.zarr", target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "CHUNK_BYTES", 64 * 31 * 4)
        patch.setattr(writing, "SEGMENT_BYTES", 4 * 2 * 60 * 80)
        crash_after(patch, update_run, "finish_replacement", 0)
        with pytest.raises(CrashError):
            update(target, changed / "images", changed / "masks", prune=True)
    return target


def test_every_step_of_a_replacement_can_be_the_last(
    changed, committed, tmp_path, monkeypatch, small_chunks
):
    """Two steps at a time would hide what one of them has done, so they run one by one."""
    monkeypatch.setattr(replacement, "MAX_CONCURRENT", 1)
    states = []
    for calls in range(200):
        target = tmp_path / f"{calls}.zarr"
        shutil.copytree(committed, target)
        with monkeypatch.context() as patch:
            for name in ("move", "remove"):
                count_steps(patch, name, calls)
            try:
                replacement.finish_replacement(Location.of(target), lambda: None)
                break
            except CrashError:
                pass
        states.append(check_state(target, changed))
        if replacement.is_committed(Location.of(target)):
            replacement.finish_replacement(Location.of(target), lambda: None)
        shutil.rmtree(target / ".update")
        assert tree_bytes(target) == tree_bytes(changed / "new.zarr")
        shutil.rmtree(target)
    assert len(states) > 20
    assert states == sorted(states, key=["old", "between", "new"].index)
    assert set(states) == {"old", "between", "new"}


def count_steps(patch, name, calls):
    """Make ``Location.move`` and ``remove`` raise a CrashError after a number of calls of both."""
    original = getattr(Location, name)

    def failing(self, *keys):
        Location.steps = getattr(Location, "steps", 0) + 1
        if Location.steps > calls:
            raise CrashError
        return original(self, *keys)

    patch.setattr(Location, "steps", 0, raising=False)
    patch.setattr(Location, name, failing)


def test_readers_notice_an_update(changed, committed, tmp_path, small_chunks):
    target = tmp_path / "data.zarr"
    shutil.copytree(committed, target)
    before = open_dataset(target)
    half = open_dataset(target)
    expected = open_dataset(changed / "old.zarr")
    np.testing.assert_array_equal(before["mask"].values, expected["mask"].values)
    (target / "zarr.json").rename(tmp_path / "root")
    with pytest.raises(ChangedError, match="is being updated or created again: open it again"):
        half["label"].compute()
    with pytest.raises(ChangedError, match=r"an update of .* is not finished"):
        open_dataset(target)
    (tmp_path / "root").rename(target / "zarr.json")
    update(target, changed / "images", changed / "masks", prune=True)
    for name in ("features", "label", "mask", "segments", "image", "object_id"):
        with pytest.raises(ChangedError, match="has been updated since it was opened: open it"):
            before[name].compute()
    assert before["flags"].values.tolist() == expected["flags"].values.tolist()
    assert contents(target) == contents(changed / "new.zarr")


def test_readers_beside_an_update_get_one_state(changed, committed, tmp_path, small_chunks):
    """They open the dataset and read it again and again while it is being replaced."""
    target = tmp_path / "data.zarr"
    shutil.copytree(committed, target)
    states = [contents(changed / f"{name}.zarr") for name in ("old", "new")]
    seen, stop = [], threading.Event()

    def read():
        while not stop.is_set() or len(seen) < 3:
            try:
                seen.append(states.index(contents(target)))
            except ChangedError:
                seen.append(None)
            except Exception as error:
                seen.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        update(target, changed / "images", changed / "masks", prune=True)
    finally:
        stop.set()
        reader.join()
    assert set(seen) <= {0, 1, None}, seen
    assert contents(target) == states[1]


def test_locks_of_object_stores(monkeypatch, tmp_path):
    location = Location.of("memory://locked.zarr")
    monkeypatch.setitem(update_lock.config.DEFAULTS, "update.stale-after", 0.5)
    with update_lock.update_lock(location) as lock:
        lock.check()
        with pytest.raises(PipelineError, match=r"another gpgc update of .* is running"):
            update_lock.update_lock(location).__enter__()
        location.write(update_lock.KEY, b"other 0")
        with pytest.raises(PipelineError, match=r"works on .* now, so this one stops"):
            lock.check()
    assert location.read(update_lock.KEY) == b"other 0"
    with update_lock.update_lock(location):  # the other one has died
        pass
    assert not location.exists(update_lock.KEY)
