"""The README's code and commands run as they stand."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import s3fs

from gpgc_dask.cli import main
from tests.images import save_pairs
from tests.object_store import object_store

README = Path(__file__).parent.parent / "README.md"


def blocks(language):
    found = re.findall(rf"```{language}\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert found
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_pairs(tmp_path, 12)
    (tmp_path / "images").rename("photos")
    return tmp_path


def test_python_blocks_run(place):
    names: dict[str, object] = {}
    for block in blocks("python"):
        exec(block, names)
    assert len(list((place / "predicted").glob("*.png"))) == 12
    assert names["worst"]["rank"].tolist() == list(range(1, 13))
    assert (place / "report.html").exists()
    model, agreement = names["model"], names["agreement"]
    spoilt = ["photo_03.jpg", "photo_17.jpg"]
    assert sorted(model.groups_[np.argsort(model.confidence_)][:2]) == spoilt
    assert sorted(agreement.groups[np.argsort(agreement.iou)][:2]) == spoilt


@pytest.fixture
def bucket(monkeypatch):
    """What s3://bucket is."""
    with object_store() as store:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        s3fs.S3FileSystem.clear_instance_cache()
        yield
        s3fs.S3FileSystem.clear_instance_cache()


def test_the_tour_runs(place, bucket, capsys):
    """All of it, in order, on folders of somebody's own and in an object store."""
    images, masks = save_pairs(place / "new", 3)
    images.rename(place / "new-photos")
    masks.rename(place / "true-masks")
    own = [block for block in blocks("sh") if "--scheduler" not in block]
    lines = [line for block in own for line in block.splitlines()]
    tour = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("gpgc ")]
    assert len(tour) >= 8
    for arguments in tour:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert not ended.value.code, capsys.readouterr().err
    assert len(list((place / "clean/images").iterdir())) == 9
    assert len(list((place / "predicted").glob("*.png"))) == 3


def test_what_is_said_of_clusters_is_spelt_rightly(place, bucket, capsys):
    """No cluster is there: each command gets as far as to look for it, or for its data."""
    (block,) = (block for block in blocks("sh") if "--scheduler" in block)
    for line in block.replace("\\\n", "").splitlines():
        arguments = shlex.split(line, comments=True)[1:]
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        told = capsys.readouterr().err
        assert ended.value.code == (0 if arguments[0] == "certs" else 1), f"{line}: {told}"
