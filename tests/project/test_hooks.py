"""The hooks of ``.pre-commit-hooks.yaml``, run by pre-commit before commits.

pre-commit would install this package into an environment of its own; here it uses this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

pytest.importorskip("pre_commit")

from gpgc_dask import RunOptions
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from tests.support.ingesting import QUICK

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
HOOKS = {hook["id"]: hook for hook in yaml.safe_load(MANIFEST.read_text())}


@pytest.fixture
def repository(documented, tmp_path, monkeypatch):
    """A repository with a model and masks that it has not seen; runs commands there."""
    place = tmp_path / "repository"
    place.mkdir()
    for name in ("new-photos", "true-masks", "model.zarr", "horses.zarr"):
        shutil.copytree(documented / name, place / name)
    program = tmp_path / "bin" / "gpgc"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpgc_dask "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "cache"))
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "anna")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "anna@example.org")

    def call(*words):
        return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)

    def configure(hook, **more):
        settings = HOOKS[hook] | {"language": "system"} | more
        config = {"repos": [{"repo": "local", "hooks": [settings]}]}
        (place / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
        call("git", "init", "-q")
        installed = call(sys.executable, "-m", "pre_commit", "install")
        assert installed.returncode == 0, installed.stderr
        call("git", "add", "-A")

    call.place, call.configure = place, configure
    return call


def commit(repository):
    done = repository("git", "commit", "-m", "masks")
    return done.returncode, done.stdout + done.stderr


def test_the_manifest():
    words = [sys.executable, "-m", "pre_commit", "validate-manifest", str(MANIFEST)]
    assert subprocess.run(words, check=False).returncode == 0
    assert set(HOOKS) == {"gpgc-score", "gpgc-check"}


def test_masks_are_scored_before_a_commit(repository):
    words = ["model.zarr", "new-photos", "true-masks", "--min-quality", "0.3"]
    repository.configure("gpgc-score", files="^(new-photos|true-masks)/", args=words)
    code, out = commit(repository)
    assert code == 0, out
    assert "Passed" in out
    mask = min((repository.place / "true-masks").iterdir())
    Image.fromarray(255 - np.array(Image.open(mask))).save(mask)
    repository("git", "add", "-A")
    code, out = commit(repository)
    assert code == 1
    assert "exit code: 3" in out
    assert "1 of 3 masks have a quality below 0.3" in out
    repository("git", "reset", "-q", "--hard")
    (repository.place / "note.txt").write_text("no mask")
    repository("git", "add", "-A")
    code, out = commit(repository)
    assert code == 0
    assert "Skipped" in out


def test_suspect_masks_stop_every_commit(repository, documented, tmp_path):
    masks = tmp_path / "masks"
    shutil.copytree(documented / "masks", masks)
    wrong = min(masks.iterdir())
    Image.fromarray(255 - np.array(Image.open(wrong))).save(wrong)
    data, model = (repository.place / name for name in ("horses.zarr", "model.zarr"))
    ingest(documented / "photos", masks, data, recipe=QUICK, run=RunOptions(overwrite=True))
    train(data, model, run=RunOptions(overwrite=True))
    repository.configure("gpgc-check", args=["horses.zarr", "model.zarr", "--min-quality", "0.5"])
    code, out = commit(repository)
    assert code == 1
    assert "exit code: 3" in out
    assert "## Masks of horses.zarr: failed" in out
