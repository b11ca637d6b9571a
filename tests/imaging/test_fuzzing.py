"""Corrupted photos, masks and annotations: a clear error or a result, and never a hang."""

from __future__ import annotations

import pytest

from tests.support.fuzzing import READERS, FuzzReader, run_cases
from tests.support.fuzzing_stores import STORES

CASES = 60
STORED_CASES = 12
"""Of readers of datasets, models and the like, which take longer; benchmarks/fuzz.py runs more."""


@pytest.mark.parametrize("name", READERS)
def test_corrupted_files_are_an_error_or_a_result(name):
    for module in {
        "DICOM": ["pydicom"],
        "NIfTI": ["nibabel"],
        "certificates": ["cryptography"],
    }.get(name, []):
        pytest.importorskip(module)
    cases = STORED_CASES if name in STORES else CASES
    outcome = run_cases(READERS[name], cases, seed=1)
    assert not outcome.failures, "\n".join(outcome.failures)
    assert outcome.errors
    assert outcome.errors + outcome.read == cases


def test_failures_are_noticed(tmp_path):
    def write(folder):
        (folder / "a.txt").write_text("1 2 3")
        return [folder / "a.txt"]

    def read(folder):
        assert [float(word) for word in (folder / "a.txt").read_text().split()] == [1, 2, 3]

    outcome = run_cases(FuzzReader(write, read), 20)
    assert outcome.failures
    assert outcome.errors == 0
