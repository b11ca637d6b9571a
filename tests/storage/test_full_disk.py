"""Full disks: what was there is kept, and nothing is half written."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import load, open_dataset
from gpgc_dask.imaging.painting import write_masks
from gpgc_dask.models.review import rank
from gpgc_dask.results.report import write_report
from gpgc_dask.results.selection import write_folder
from gpgc_dask.storage.location import write_whole
from tests.support.images import tree_bytes

pytestmark = pytest.mark.newest


@pytest.fixture
def disk(tmp_path):
    """A file system of 512 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path, spare: int = 0) -> None:
    """Leave so many bytes free."""
    there = os.statvfs(disk)
    (disk / "filler").write_bytes(bytes(there.f_bavail * there.f_bsize - spare))


def use(disk: Path) -> dict[str, bytes]:
    return {name: body for name, body in tree_bytes(disk).items() if name != "filler"}


def test_a_full_disk_keeps_the_older_model(fitted, disk):
    model = load(fitted)
    write_whole(disk / "small", b"x")
    shutil.copytree(fitted, disk / "model.zarr", copy_function=shutil.copyfile)
    fill(disk)
    before = use(disk)
    with pytest.raises(OSError, match=r"no space is left: free some.*model\.zarr"):
        model.save(disk / "model.zarr")
    assert use(disk) == before
    np.testing.assert_array_equal(load(disk / "model.zarr").coef_, model.coef_)


def test_a_full_disk_has_no_half_of_anything(sound, fitted, disk, run):
    dataset, model = open_dataset(sound), load(fitted)
    fill(disk)
    for make in (
        lambda: model.save(disk / "new.zarr"),
        lambda: write_report(dataset, model, disk / "report.html"),
        lambda: write_masks(dataset, dataset["label"].values, disk / "masks"),
        lambda: write_folder(
            rank(model.review_), model.dataset_["source"], disk / "clean", copy=True
        ),
    ):
        with pytest.raises(OSError, match=r"(?i)no space (is )?left.*disk/"):
            make()
    for command, out in (("rank", "rank.csv"), ("select", "keep.txt")):
        top = ["--top", "50%"] if command == "select" else []
        code, _, err = run(command, fitted, *top, "-o", disk / out)
        assert code == 1
        assert "no space is left: free some" in err
        assert str(disk / out) in err
    code, _, err = run("predict", fitted, sound.parent / "images", "-o", disk / "predicted")
    assert code == 1
    assert f"no space is left at {disk / 'predicted'}" in err
    assert [path for path in disk.rglob("*") if path.is_file()] == [disk / "filler"]


def test_a_disk_that_fills_up_half_way(sound, fitted, disk):
    """What was written before is whole, and there is nothing else."""
    dataset, model = open_dataset(sound), load(fitted)
    fill(disk, spare=16384)
    with pytest.raises(OSError, match="no space is left"):
        write_masks(dataset, dataset["label"].values, disk / "masks")
    written = [path for path in disk.rglob("*") if path.is_file() and path.name != "filler"]
    assert written
    for path in written:
        assert Image.open(path).size == (80, 60)
        path.unlink()
    with pytest.raises(OSError, match="no space is left"):
        model.save(disk / "new.zarr")
    assert [path for path in disk.rglob("*") if path.is_file()] == [disk / "filler"]
