"""Wrong uses end with one line that says what to do, an exit code of 2, and nothing lost."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from gpgc_dask import GPGC
from gpgc_dask.pipelines.ingest import Recipe, ingest
from gpgc_dask.pipelines.train import train
from tests.support.images import save_pairs, tree_bytes
from tests.support.ingesting import QUICK

pytestmark = pytest.mark.newest

MISSING, TEXT = "missing", "text.txt"
OUT = "out"
BELOW_A_FILE = f"{TEXT}/out"
"""Unwritable for everybody, also for root."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders, datasets and models to be misused."""
    place = tmp_path_factory.mktemp("made")
    images, masks = save_pairs(place, 12)
    ingest(images, masks, place / "data.zarr", recipe=QUICK)
    ingest(images, masks, place / "finer.zarr", recipe=Recipe(backbone="colour", superpixels=30))
    train(place / "data.zarr", place / "model.zarr")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    GPGC().fit(X, X[:, 0] > 0, groups=np.arange(200) // 10).save(place / "arrays.zarr")
    (place / TEXT).write_text("no image, no dataset\n")
    names = sorted(path.name for path in images.iterdir())
    rows = "".join(f"{name},10,5,60,50\n" for name in names)
    (place / "boxes.csv").write_text("image,x,y,width,height\n" + rows)
    (place / "texts").mkdir()
    (place / "texts/photo_000.png").write_text("not an image")
    return place


@pytest.fixture
def place(made, tmp_path, monkeypatch):
    here = tmp_path / "here"
    shutil.copytree(made, here)
    monkeypatch.chdir(here)
    return here


IM = ["images", "masks"]

WRONG = {
    "demo": [
        ["--out", TEXT],
        ["--out", BELOW_A_FILE],
        ["--out", "masks"],
        ["--images", "3"],
        ["--out", OUT, "--backbone", MISSING],
    ],
    "ingest": [
        [MISSING, "masks", "-o", OUT],
        [TEXT, "masks", "-o", OUT],
        ["images", "--coco", TEXT, "-o", OUT],
        [*IM, "-o", "model.zarr", "--overwrite"],
        [*IM, "-o", "data.zarr", "--resume", "--overwrite"],
        [*IM, "-o", "data.zarr", "--resume"],
        [*IM, "-o", BELOW_A_FILE],
        [*IM, "-o", OUT, "--backbone", "missing.onnx", "--layer", "x"],
    ],
    "info": [[MISSING], [TEXT], ["images"], ["model.zarr"], []],
    "plan": [
        [MISSING],
        [TEXT],
        ["model.zarr"],
        ["data.zarr", "--memory-limit", "much"],
        ["data.zarr", "--memory-limit", "-4GB"],
        ["data.zarr", "--redundancy", "-1"],
        ["data.zarr", "--workers", "0"],
    ],
    "fit": [
        [MISSING, "-o", OUT],
        [TEXT, "-o", OUT],
        ["model.zarr", "-o", OUT],
        ["data.zarr", "-o", "model.zarr"],
        ["finer.zarr", "-o", "model.zarr", "--resume"],
        ["data.zarr", "-o", "arrays.zarr", "--resume"],
        ["data.zarr", "-o", "images", "--overwrite"],
        ["data.zarr", "-o", OUT, "--resume", "--overwrite"],
        ["data.zarr", "-o", BELOW_A_FILE],
        ["data.zarr", "-o", OUT, "--method", "magic"],
        ["data.zarr", "-o", OUT, "--workers", "1", "--scheduler", "tcp://127.0.0.1:9"],
        ["data.zarr", "-o", OUT, "--scheduler", "tcp://127.0.0.1:9"],
        ["data.zarr", "-o", "s3://nowhere/model.zarr"],
    ],
    "rank": [
        [MISSING],
        [TEXT],
        ["data.zarr"],
        ["arrays.zarr"],
        ["model.zarr", "-o", BELOW_A_FILE],
        ["model.zarr", "-o", "images"],
        ["model.zarr", "--by", "beauty"],
    ],
    "select": [
        [MISSING, "--top", "3"],
        [TEXT, "--top", "3"],
        ["data.zarr", "--top", "3"],
        ["arrays.zarr", "--top", "3"],
        ["model.zarr"],
        ["model.zarr", "--top", "3", "--min-score", "0.5"],
        ["model.zarr", "--top", "0%"],
        ["model.zarr", "--min-score", "nan"],
        ["model.zarr", "--top", "3", "-o", "s3://bucket/keep.txt"],
        ["model.zarr", "--top", "many"],
        ["model.zarr", "--top", "3", "-o", BELOW_A_FILE],
        ["model.zarr", "--top", "3", "--folder", "images"],
        ["model.zarr", "--top", "3", "--folder", TEXT],
        ["model.zarr", "--top", "3", "--coco", "out.json"],
        ["model.zarr", "--top", "3", "--copy"],
    ],
    "report": [
        [MISSING, "model.zarr", "-o", OUT],
        ["data.zarr", MISSING, "-o", OUT],
        [TEXT, "model.zarr", "-o", OUT],
        ["data.zarr", "data.zarr", "-o", OUT],
        ["finer.zarr", "model.zarr", "-o", OUT],
        ["data.zarr", "arrays.zarr", "-o", OUT],
        ["data.zarr", "model.zarr", "-o", BELOW_A_FILE],
        ["data.zarr", "model.zarr", "-o", "images"],
        ["data.zarr", "model.zarr", "-o", "s3://bucket/report.html"],
    ],
    "predict": [
        [MISSING, "images", "-o", OUT],
        ["model.zarr", MISSING, "-o", OUT],
        [TEXT, "images", "-o", OUT],
        ["model.zarr", "texts", "-o", OUT],
        ["arrays.zarr", "images", "-o", OUT],
        ["model.zarr", "images", "-o", "masks"],
        ["model.zarr", "images", "-o", OUT, "--resume", "--overwrite"],
        ["model.zarr", "images", "-o", BELOW_A_FILE],
        ["model.zarr", "images", "-o", OUT, "--backbone", "missing.onnx"],
    ],
    "autoseg": [
        [MISSING, "boxes.csv", "-o", OUT],
        ["images", MISSING, "-o", OUT],
        ["images", TEXT, "-o", OUT],
        ["images", "images", "-o", OUT],
        [TEXT, "boxes.csv", "-o", OUT],
        ["images", "boxes.csv", "-o", "masks"],
        ["images", "boxes.csv", "-o", OUT, "--resume", "--overwrite"],
        ["images", "boxes.csv", "-o", BELOW_A_FILE],
        ["images", "boxes.csv", "-o", OUT, "--jitter", "2"],
    ],
    "compare": [
        [MISSING, "--test", "data.zarr"],
        ["data.zarr", "--test", MISSING],
        ["data.zarr", "--test", "model.zarr"],
        ["data.zarr", "--test", "finer.zarr"],
        ["data.zarr"],
        ["data.zarr", "--test", "data.zarr", "-o", BELOW_A_FILE],
        ["data.zarr", "--test", "data.zarr", "--truth", MISSING],
        ["data.zarr", "--test", "data.zarr", "--truth", "texts"],
    ],
    "evaluate": [
        [MISSING, "masks"],
        ["masks", MISSING],
        [TEXT, "masks"],
        ["masks", "texts"],
        ["images", "masks"],
        ["masks", "masks"],
        ["texts", "masks"],
    ],
}


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param(command, arguments, id=" ".join([command, *arguments]))
        for command, uses in WRONG.items()
        for arguments in uses
    ],
)
def test_one_line_and_nothing_lost(run, place, command, arguments, monkeypatch):
    monkeypatch.setattr("gpgc_dask.clusters.remote.CONNECT_SECONDS", 1)
    before = tree_bytes(place)
    code, out, err = run(command, *arguments)
    # A scheduler that does not answer may answer later.
    may_pass = arguments[-1:] == ["tcp://127.0.0.1:9"] and "--workers" not in arguments
    assert code == (1 if may_pass else 2), err
    assert out == ""
    assert "Traceback" not in err
    last = [line for line in err.splitlines() if not line.startswith(("images 0/", "fit "))]
    assert len(last) == 1 or "texts" in arguments, err
    assert last[0].startswith("gpgc: ")
    assert len(last[0]) > 30
    assert tree_bytes(place) == before


def test_all_commands_are_misused():
    assert all(len(uses) >= 5 for uses in WRONG.values())
