"""Masks that cannot be read stop an ingest before anything is started, and leave nothing."""

from __future__ import annotations

import shlex

import distributed
import numpy as np
import onnxruntime
import pytest
from PIL import Image

from gpgc_dask import RunOptions, ingest, open_dataset
from gpgc_dask.core.errors import PipelineError
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK, truncate

COLOURS = np.array([[0, 0, 0], [128, 64, 128]], dtype=np.uint8)


@pytest.fixture
def started(monkeypatch):
    """Names of the clusters and networks that were started."""
    names = []
    for kind in (distributed.LocalCluster, distributed.Client, onnxruntime.InferenceSession):

        def start(self, *args, _own=kind.__init__, _name=kind.__name__, **kwargs):
            names.append(_name)
            return _own(self, *args, **kwargs)

        monkeypatch.setattr(kind, "__init__", start)
    return names


def rewrite(masks, make):
    for path in sorted(masks.iterdir()):
        image = make((np.asarray(Image.open(path)) > 0).astype(np.uint8))
        path.unlink()
        image.save(path.with_suffix(".png"))


BAD = {
    "colours": (lambda c: Image.fromarray(COLOURS[c]), "--write-classes classes.csv"),
    "values": (
        lambda c: Image.fromarray(c * 13 + (c == 0) * np.uint8(4)),
        "--classes 4=background",
    ),
    "shades": (
        lambda c: Image.fromarray((c * 180 + np.arange(80)).astype(np.uint8)),
        "Use: --threshold 0.5",
    ),
    "size": (lambda c: Image.fromarray(c[:50]), "must have the size of its photo, or its shape"),
}


@pytest.mark.parametrize("kind", BAD)
def test_nothing_is_started_and_nothing_left(run, tmp_path, started, kind):
    images, masks = save_pairs(tmp_path, 12)
    make, fix = BAD[kind]
    rewrite(masks, make)
    code, out, err = run("ingest", images, masks, "-o", tmp_path / "data.zarr", "--workers", 1)
    assert (code, out) == (2, "")
    assert sum(fix in line for line in err.splitlines()) == 1
    assert "photo_000.jpg" in err
    assert "photo_001.jpg, photo_002.jpg and 9 more" in err
    assert "Found: 12 masks" in err
    assert started == []
    assert not (tmp_path / "data.zarr").exists()


def test_the_message_leads_to_the_dataset(run, tmp_path, started):
    """Colour pictures: the suggested file, and then a dataset that equals that of plain PNGs."""
    images, masks = save_pairs(tmp_path, 12)
    ingest(images, masks, tmp_path / "plain.zarr", recipe=QUICK)
    rewrite(masks, BAD["colours"][0])
    started.clear()
    command = ["ingest", images, masks, "-o", tmp_path / "data.zarr"]
    command += ["--backbone", "colour", "--superpixels", 20]
    _, _, err = run(*command)
    use = next(line for line in err.splitlines() if line.startswith("Use: "))
    option = shlex.split(use.removeprefix("Use: ").partition(",")[0])[0]
    file = tmp_path / "classes.csv"
    code, out, _ = run(*command, option, file)
    assert (code, started) == (0, [])
    assert f"--classes {file}" in " ".join(out.split())
    assert file.read_text() == "r,g,b,name\n0,0,0,background\n128,64,128,colour_804080\n"
    code, out, _ = run(*command, "--classes", file, "--workers", 1)
    assert code == 0, out
    assert "Found: 12 masks (12 PNG colour)" in out
    made, plain = (open_dataset(tmp_path / f"{name}.zarr") for name in ("data", "plain"))
    for name in ("label", "weight", "mask"):
        np.testing.assert_array_equal(made[name].values, plain[name].values)
    assert list(made.attrs["classes"]) == ["background", "colour_804080"]


def test_an_ingest_without_a_finished_image_leaves_nothing(tmp_path):
    images, masks = save_pairs(tmp_path, 1)
    truncate(images / "photo_000.jpg", 1500)
    with pytest.raises(PipelineError, match="corrupted or truncated"):
        ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK)
    assert not (tmp_path / "data.zarr").exists()


def test_unusable_masks_are_skipped_unless_all_are(tmp_path):
    images, masks = save_pairs(tmp_path, 3)
    Image.fromarray(COLOURS[np.eye(60, 80, dtype=int)]).save(masks / "photo_001.png")
    skip = RunOptions(on_error="skip")
    report = ingest(images, masks, tmp_path / "data.zarr", recipe=QUICK, run=skip)
    assert [problem.name for problem in report.skipped] == ["photo_001.jpg"]
    rewrite(masks, BAD["size"][0])
    with pytest.raises(PipelineError, match="none of the images could be used"):
        ingest(images, masks, tmp_path / "none.zarr", recipe=QUICK, run=skip)
    assert not (tmp_path / "none.zarr").exists()
