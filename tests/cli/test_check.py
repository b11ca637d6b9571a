"""``gpgc check``: exit codes, the summary and JUnit's XML."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from gpgc_dask import ingest, load, rank, train
from gpgc_dask.core.errors import InputError
from gpgc_dask.results.limits import check_limits
from gpgc_dask.results.ranking import is_suspect
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

ROOT = Path(__file__).parents[2]

WRONG = 3


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A dataset with wrong masks, and its model."""
    place = tmp_path_factory.mktemp("check")
    photos, masks = save_pairs(place, 12)
    for path in sorted(masks.iterdir())[:WRONG]:
        Image.fromarray(255 - np.array(Image.open(path))).save(path)
    ingest(photos, masks, place / "horses.zarr", recipe=QUICK)
    train(place / "horses.zarr", place / "model.zarr")
    return place


@pytest.fixture
def words(place):
    return ["check", place / "horses.zarr", place / "model.zarr"]


def test_limits_are_kept_or_missed(run, words, place, tmp_path):
    ranking = rank(load(place / "model.zarr").review_)
    suspect = int(is_suspect(ranking).sum())
    assert suspect >= WRONG - 1  # otherwise this test shows nothing
    code, out, err = run(*words, "--max-suspect", suspect, "--junit", tmp_path / "kept.xml")
    assert (code, err) == (0, "")
    assert out.startswith("## Masks of horses.zarr: passed\n")
    assert f"| suspect masks | at most {suspect} | {suspect} of {len(ranking)} (" in out
    assert ElementTree.parse(tmp_path / "kept.xml").getroot().get("failures") == "0"

    missed = suspect - 1
    code, out, err = run(*words, "--max-suspect", missed, "--junit", tmp_path / "missed.xml")
    assert code == 3
    assert "**failed**" in out
    assert ranking["image"].iloc[0] in out.replace("\\", "")
    assert f"{suspect} of {len(ranking)}" in err
    root = ElementTree.parse(tmp_path / "missed.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("1", "1")
    named = root.findtext("testsuite/testcase/failure").split("\n")
    assert named == ranking["image"][is_suspect(ranking)].tolist()


def test_quality_of_every_mask(run, words, place):
    ranking = rank(load(place / "model.zarr").review_)
    limit = float(ranking["quality"].median())
    code, out, _ = run(*words, "--min-quality", limit, "--json")
    result = json.loads(out)
    assert (code, result["passed"]) == (3, False)
    below = ranking["image"][ranking["quality"] < limit].tolist()
    assert result["limits"][0]["images"] == below
    assert [row["image"] for row in result["worst"]] == below
    code, _, _ = run(*words, "--min-quality", 0)
    assert code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-suspect", "some"], "a share such as 5%"),
        (["--max-suspect=-1"], "a share such as 5%"),
        (["--max-suspect", "101%"], "a share such as 5%"),
        (["--max-suspect", "nan%"], "a share such as 5%"),
        (["--min-quality", "50"], "between 0 and 1"),
        (["--min-quality", "nan"], "between 0 and 1"),
    ],
)
def test_wrong_limits(run, words, options, message):
    code, out, err = run(*words, *options)
    assert (code, out) == (2, "")
    assert message in err


def test_a_check_that_cannot_be_made(run, words, documented, place, tmp_path):
    code, _, err = run(*words[:2], tmp_path / "none.zarr")
    assert code == 2
    assert "none.zarr" in err
    code, _, err = run("check", documented / "test.zarr", words[2])
    assert code == 2
    assert "fitted on another dataset" in err
    masks, data = tmp_path / "masks", tmp_path / "horses.zarr"
    shutil.copytree(place / "masks", masks)
    shutil.copytree(place / "horses.zarr", data)
    changed, other = sorted(masks.iterdir())[:2]
    shutil.copy(other, changed)
    assert run("update", data, place / "images", masks)[0] == 0
    code, _, err = run("check", data, words[2])
    assert code == 2
    assert "updated since the model was fitted" in err


def make_ranking(names, quality):
    quality = np.array(quality)
    bad = np.where(quality < 0.5, 0.99, 0.01)
    columns = {"image": names, "quality": quality, "quality_low": quality - 0.1}
    columns |= {"quality_high": quality + 0.1, "bad_probability": bad, "flags": ""}
    return pd.DataFrame(columns).sort_values("quality")


def test_names_cannot_break_the_formats():
    names = ["a|b.png", "<script>.png", "line\nbreak.png", "bell\x07.png", "ok.png"]
    report = check_limits(make_ranking(names, [0.1, 0.2, 0.3, 0.4, 0.9]), "d", max_suspect="0")
    rows = [line for line in report.to_markdown().splitlines() if ".png" in line]
    assert len(rows) == 4
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)
    assert "<script>" not in report.to_markdown().replace("\\<", "")
    failure = ElementTree.fromstring(report.to_junit()).findtext("testsuite/testcase/failure")
    assert failure.split("\n") == ["a|b.png", "<script>.png", "line", "break.png", "bell\ufffd.png"]


def test_limits_of_shares_are_inclusive():
    quality = np.where(np.arange(100) < 7, 0.1, 0.9)
    ranking = make_ranking([f"{n}.png" for n in range(100)], quality)
    assert check_limits(ranking, "d", max_suspect="7%").passed
    assert not check_limits(ranking, "d", max_suspect="6.9%").passed
    assert not check_limits(ranking, "d").passed
    both = check_limits(ranking, "d", max_suspect="10%", min_quality=0.5)
    assert [limit.passed for limit in both.limits] == [True, False]
    assert len(both.worst) == 7
    assert check_limits(ranking.iloc[:0], "d").passed
    with pytest.raises(InputError, match="between 0 and 1"):
        check_limits(ranking, "d", min_quality=-0.1)


def test_the_steps_of_the_action(place, tmp_path):
    """All steps but the installation, as GitHub's runner runs them."""
    shutil.copytree(place / "images", tmp_path / "photos")
    shutil.copytree(place / "masks", tmp_path / "masks")
    action = yaml.safe_load((ROOT / "examples/check-masks.yml").read_text())
    (job,) = action["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]
    assert steps.pop(0) == "pip install gpgc_dask"
    (tmp_path / "gpgc").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpgc_dask "$@"\n')
    (tmp_path / "gpgc").chmod(0o755)
    env = os.environ | {"GITHUB_STEP_SUMMARY": "summary.md"}
    env |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    codes = [
        subprocess.run(["bash", "-e", "-c", step], cwd=tmp_path, env=env, check=False).returncode
        for step in steps
    ]
    assert codes == [0, 0, 0, 3]
    assert "## Masks of masks.zarr: failed" in (tmp_path / "summary.md").read_text()
    uploaded = job["steps"][-1]["with"]["path"].split()
    assert all((tmp_path / name).exists() for name in uploaded)
