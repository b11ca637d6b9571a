"""Files corrupted at random: an error that names the folder, or the right result."""

from __future__ import annotations

import faulthandler
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpgc_dask import GPGC, load, open_dataset
from gpgc_dask.cli import EXPECTED
from gpgc_dask.data.schema import MAPS

pytestmark = pytest.mark.newest

DATASET_TRIES, MODEL_TRIES = 500, 200
HANGS_AFTER = 60
"""Seconds for a try, which takes a tenth of one."""


def flip_bits(content: bytearray, rng: random.Random) -> bytearray | None:
    for _ in range(rng.choice([1, 1, 4])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def replace_bytes(content: bytearray, rng: random.Random) -> bytearray | None:
    start = rng.randrange(len(content))
    for place in range(start, min(start + rng.choice([1, 8, 64]), len(content))):
        content[place] = rng.randrange(256)
    return content


def zero_bytes(content: bytearray, rng: random.Random) -> bytearray | None:
    start, length = rng.randrange(len(content)), rng.choice([1, 16, 4096])
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


def cut_off(content: bytearray, rng: random.Random) -> bytearray | None:
    return content[: rng.randrange(len(content))]


def leave_out(content: bytearray, rng: random.Random) -> bytearray | None:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.choice([1, 5, 100]) :]


def add_bytes(content: bytearray, rng: random.Random) -> bytearray | None:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.randbytes(rng.choice([1, 5, 100])) + content[start:]


def delete(content: bytearray, rng: random.Random) -> bytearray | None:
    return None


SPOILS = (flip_bits, replace_bytes, zero_bytes, cut_off, leave_out, add_bytes, delete)


def spoilt_at_random(folder: Path, tries: int, judge) -> tuple[int, int]:
    """(complaints, right results) of ``judge`` on a folder with one file spoilt at a time.

    ``judge`` raises or returns whether all is as it should be. Anything but a foreseen complaint
    that names the folder, or the right result, fails the test, and so does a hang.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    rng = random.Random(0)
    complaints = 0
    for number in range(tries):
        path, spoil = rng.choice(files), rng.choice(SPOILS)
        content = path.read_bytes()
        spoilt = spoil(bytearray(content), rng)
        told = f"try {number}: {spoil.__name__} {path.relative_to(folder)}"
        path.unlink() if spoilt is None else path.write_bytes(spoilt)
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        try:
            outcome = judge()
        except Exception as error:
            outcome = error
        finally:
            faulthandler.cancel_dump_traceback_later()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if isinstance(outcome, Exception):
            complaints += 1
            assert isinstance(outcome, EXPECTED), f"{told}: unexpected {outcome!r}"
            assert str(folder) in str(outcome), f"{told}: {outcome!r} does not name it"
        else:
            assert outcome, f"{told}: another result, and no complaint"
    assert judge(), "the folder is not what it was"
    return complaints, tries - complaints


def test_a_dataset_corrupted_at_random(data, sync):
    def judge() -> bool:
        found = open_dataset(data)
        maps = [found[name].values for name in MAPS]
        model = GPGC(redundancy=1.0).fit(found)
        return (
            model.log_evidence_ == right.log_evidence_
            and np.array_equal(model.noise_variance_, right.noise_variance_)
            and all(map(np.array_equal, maps, right_maps))
        )

    dataset = open_dataset(data)
    right, right_maps = GPGC(redundancy=1.0).fit(dataset), [dataset[name].values for name in MAPS]
    complaints, _ = spoilt_at_random(data, DATASET_TRIES, judge)
    assert complaints > 0.9 * DATASET_TRIES


def test_a_model_corrupted_at_random(fitted, sound, tmp_path):
    def judge() -> bool:
        model = load(path)
        return (
            np.array_equal(model.predict_proba(X), right)
            and model.review_.equals(reviewed)
            and np.array_equal(model.leave_out.values, left_out)
            and np.array_equal(model.noise_variance_, noise)
        )

    path = shutil.copytree(fitted, tmp_path / "model.zarr")
    X, model = open_dataset(sound)["features"].values, load(path)
    right, reviewed, noise = model.predict_proba(X), model.review_, model.noise_variance_
    left_out = model.leave_out.values
    complaints, _ = spoilt_at_random(path, MODEL_TRIES, judge)
    assert complaints > 0.9 * MODEL_TRIES
