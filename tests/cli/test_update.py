"""``gpgc update``: its output, its options and its errors."""

from __future__ import annotations

import json
import shutil

import pytest

from gpgc_dask.pipelines.ingest import ingest
from tests.support.images import save_pair, save_pairs
from tests.support.ingesting import QUICK


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    images, masks = save_pairs(folder, 4)
    ingest(images, masks, folder / "data.zarr", recipe=QUICK)
    return folder


def test_result_on_stdout(made, tmp_path, run):
    folder = shutil.copytree(made, tmp_path / "set")
    words = ["update", folder / "data.zarr", folder / "images", folder / "masks", "--workers", 1]
    save_pair(folder, "zzz", 50)
    (folder / "images/photo_001.jpg").unlink()
    code, out, err = run(*words, "--json")
    assert code == 0, err
    report = json.loads(out)
    assert (report["new"], report["relabelled"], report["unchanged"]) == (1, 0, 3)
    assert [one["name"] for one in report["vanished"]] == ["photo_001.jpg"]
    code, out, err = run(*words)
    assert code == 0
    assert "nothing has changed; 4 unchanged" in out
    assert "1 images without photo or mask (kept; --prune removes them)" in out
    code, out, err = run(*words, "--prune")
    assert code == 0
    assert "4 images; 0 new, 0 relabelled, 4 unchanged, 1 removed" in out
    assert "gpgc fit" in out
    assert "Traceback" not in err


def test_wrong_input_starts_no_cluster(made, run, monkeypatch):
    monkeypatch.setattr("gpgc_dask.clusters.local.LocalCluster", None, raising=False)
    folders = made / "images", made / "masks"
    for words, message in (
        ([made / "nothing.zarr", *folders], "does not exist: make a dataset"),
        ([made / "data.zarr", made / "nothing", made / "masks"], "is not a folder"),
        ([made / "data.zarr", *folders, "--annotator", "none.csv"], "none.csv does not exist"),
        ([made / "data.zarr", *folders, "--group", "("], "is neither a regular expression"),
        ([made / "data.zarr", *folders, "--answers", "a.csv"], "answers: not an option of masks"),
    ):
        code, out, err = run("update", *words)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    code, _, err = run("update", made / "data.zarr", *folders, "--wrong")
    assert code == 2
