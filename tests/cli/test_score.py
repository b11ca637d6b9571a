"""``gpgc score``: columns, exit code and JSON."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def words(documented, tmp_path):
    """The arguments, with masks of which the first is wrong."""
    masks = tmp_path / "masks"
    shutil.copytree(documented / "true-masks", masks)
    first = min(masks.iterdir())
    Image.fromarray(255 - np.array(Image.open(first))).save(first)
    return ["score", *(documented / name for name in ("model.zarr", "new-photos")), masks]


def test_a_file_of_scores(run, words, tmp_path):
    code, out, err = run(*words, "-o", tmp_path / "scores.csv")
    assert code == 0, err
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    head = "rank,image,quality,quality_low,quality_high,agreement,confidence,noise_variance,flags"
    assert lines[0] == head
    assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "3"]
    assert "All of them" in out
    code, out, _ = run(*words)
    assert (code, out.splitlines()) == (0, lines)


def test_the_exit_code_of_a_gate(run, words):
    code, _, err = run(*words, "--min-quality", "0.3")
    assert code == 3
    assert "1 of 3 masks have a quality below 0.3" in err
    code, _, _ = run(*words, "--min-quality", "0")
    assert code == 0
    code, _, err = run(*words, "--min-quality", "50")
    assert code == 2
    assert "between 0 and 1" in err


def test_json(run, words):
    code, out, _ = run(*words, "--json", "--min-quality", "0.3")
    result = json.loads(out)
    assert code == 3
    assert len(result["masks"]) == 3
    assert result["below"] == 1
    assert result["skipped"] == []
    assert result["masks"][0]["rank"] == 1
