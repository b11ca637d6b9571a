"""Ingests that are killed, stopped or changed in between, and go on."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import open_dataset
from gpgc_dask.core.errors import PipelineError
from gpgc_dask.pipelines.ingest import Recipe, RunOptions, assemble, ingest, work
from tests.support.images import save_pair, save_pairs, tree_bytes
from tests.support.ingesting import COMMAND, QUICK, CrashError, crash_after

pytestmark = pytest.mark.newest


def test_killed_three_times_it_ends_bit_for_bit_the_same(tmp_path):
    images, masks = save_pairs(tmp_path, 96, height=90, width=120)
    command = [*COMMAND, images, masks, "--backbone", "colour", "--workers", "2", "--resume"]
    rng = random.Random(0)
    target = tmp_path / "data.zarr"
    parts = sorted(rng.sample(range(1, 11), 2))
    moments = [lambda: len(list(target.rglob("*.rows"))) >= parts[0]]
    moments += [lambda: len(list(target.rglob("*.rows"))) >= parts[1]]
    moments += [lambda: (target / ".ingest/assembly").exists()]
    for moment in moments:
        assert killed([*command, "-o", target], moment, rng.uniform(0, 0.05))
    subprocess.run([*command, "-o", target], check=True, capture_output=True)
    ingest(images, masks, tmp_path / "whole.zarr", recipe=Recipe(backbone="colour"))
    assert tree_bytes(target) == tree_bytes(tmp_path / "whole.zarr")


def killed(command: list, moment: Callable[[], bool], delay: float) -> bool:
    """Run a command and SIGKILL it some time after a moment; whether it lived to see that."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not moment():
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        *(("part", calls) for calls in (0, 1, 3)),
        *(("chunk", calls) for calls in (0, 1, 6, 12)),
        *(("finish", calls) for calls in (0, 7, 14)),
    ],
)
def test_stopped_anywhere_it_resumes(folders, tmp_path, monkeypatch, small_chunks, step, calls):
    whole, target = tmp_path / "whole.zarr", tmp_path / "data.zarr"
    ingest(*folders, whole, recipe=QUICK)
    owner, name = {
        "part": (work, "write_part"),
        "chunk": (assemble.ChunkTask, "run"),
        "finish": (assemble, "write_array"),
    }[step]
    with monkeypatch.context() as patch:
        crash_after(patch, owner, name, calls)
        with pytest.raises(CrashError):
            ingest(*folders, target, recipe=QUICK)
    with pytest.raises(ValueError, match="is not finished"):
        open_dataset(target)
    ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    assert tree_bytes(target) == tree_bytes(whole)


def test_what_is_done_is_not_done_again(folders, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 0)
        with pytest.raises(CrashError):
            ingest(*folders, tmp_path / "data.zarr", recipe=QUICK)
    monkeypatch.setattr(work, "describe", None)
    report = ingest(*folders, tmp_path / "data.zarr", recipe=QUICK, run=RunOptions(resume=True))
    assert report.resumed == 30
    assert report.images == 30


@pytest.mark.parametrize("step", ["part", "chunk"])
def test_what_another_version_has_staged_is_staged_again(
    folders, reference, tmp_path, monkeypatch, step
):
    target = tmp_path / "data.zarr"
    owner, name = {"part": (work, "write_part"), "chunk": (assemble.ChunkTask, "run")}[step]
    with monkeypatch.context() as patch:
        patch.setattr(work, "FORMAT_VERSION", 2)
        crash_after(patch, owner, name, 1)
        with pytest.raises(CrashError):
            ingest(*folders, target, recipe=QUICK)
    for path in target.rglob("*.mask"):  # which parts of that version did not have
        path.unlink()
    report = ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    assert report.resumed == 0
    assert tree_bytes(target) == tree_bytes(reference)


def test_files_left_by_killed_writers_are_removed(folders, reference, tmp_path, monkeypatch):
    target = tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, assemble.ChunkTask, "run", 1)
        with pytest.raises(CrashError):
            ingest(*folders, target, recipe=QUICK)
    (target / "features/c/0").mkdir(parents=True, exist_ok=True)
    (target / "features/c/0/0.abc.partial").write_bytes(b"half")
    ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
    assert tree_bytes(target) == tree_bytes(reference)


@pytest.mark.parametrize("stage", ["part", "chunk"])
def test_images_that_change_between_runs(tmp_path, monkeypatch, small_chunks, stage):
    """One removed, one added, one mask redrawn after the stop: as if it had always been so."""
    images, masks = save_pairs(tmp_path, 30)
    target = tmp_path / "data.zarr"
    owner, name, calls = {
        "part": (work, "write_part", 2),
        "chunk": (assemble.ChunkTask, "run", 9),
    }[stage]
    with monkeypatch.context() as patch:
        crash_after(patch, owner, name, calls)
        with pytest.raises(CrashError):
            ingest(images, masks, target, recipe=QUICK)
    (images / "photo_003.jpg").unlink()
    (masks / "photo_003.png").unlink()
    save_pair(tmp_path, "aaa", 77)
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(masks / "photo_005.png")
    ingest(images, masks, target, recipe=QUICK, run=RunOptions(resume=True))
    ingest(images, masks, tmp_path / "whole.zarr", recipe=QUICK)
    assert tree_bytes(target) == tree_bytes(tmp_path / "whole.zarr")
    found = open_dataset(target)
    assert found["image_name"].values[0] == "aaa.jpg"
    assert "photo_003.jpg" not in found["image_name"].values
    assert found["flags"].values[5] == "empty mask"


def test_resuming_in_another_way_is_rejected(folders, tmp_path, monkeypatch):
    target = tmp_path / "data.zarr"
    with monkeypatch.context() as patch:
        crash_after(patch, work, "write_part", 1)
        with pytest.raises(CrashError):
            ingest(*folders, target, recipe=QUICK)
    with pytest.raises(
        PipelineError, match=r"with other settings: recipe .*20.* there, .*30.* here"
    ):
        ingest(
            *folders,
            target,
            recipe=Recipe(backbone="colour", superpixels=30),
            run=RunOptions(resume=True),
        )
    ingest(*folders, target, recipe=QUICK, run=RunOptions(resume=True))
