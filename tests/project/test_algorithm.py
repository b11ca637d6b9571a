"""The reference implementation in docs/algorithm.md agrees with the product."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from gpgc_dask import GPGC
from tests.support.problems import classification

pytestmark = pytest.mark.quick

PAGE = Path(__file__).parents[2] / "docs/algorithm.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def reference():
    """The class that the page defines."""
    names = {}
    exec(compile(BLOCKS[0], PAGE, "exec"), names)
    return names["ReferenceGPGC"]


def test_it_is_short():
    assert len(BLOCKS[0].splitlines()) <= 100


@pytest.mark.parametrize("redundancy", [1.0, None])
def test_it_agrees_with_the_product(reference, redundancy):
    data = classification(900, 10, 30, seed=4)
    y = np.where(data.y == 1, 1, -1)
    scale_groups = np.r_[np.zeros(9, dtype=int), 1]
    simple = reference().fit(data.X, y, data.groups, scale_groups, redundancy)
    product = GPGC(redundancy=redundancy or "auto", tol=1e-6, rounds=0).fit(
        data.X, y, groups=data.groups, feature_groups=scale_groups
    )
    if redundancy:
        assert product.log_evidence_ == pytest.approx(simple.log_evidence, abs=1e-3)
    assert product.redundancy_ == pytest.approx(simple.c, rel=2e-2)
    np.testing.assert_allclose(
        np.log(product.noise_variance_), np.log(simple.noise), atol=1e-2 if redundancy else 5e-2
    )
    left_out = product.leave_group_out(data.X, y, data.groups)
    np.testing.assert_allclose(left_out, simple.leave_group_out(), atol=2e-2)
    assert np.corrcoef(np.argsort(np.argsort(simple.noise)), product.confidence_)[0, 1] < -0.99


def test_it_finds_the_wrong_images(reference, capsys):
    """The rest of the page, as written, prints what its comments say."""
    names = {"ReferenceGPGC": reference, "np": np}
    for block in BLOCKS[1:]:
        exec(compile(block, PAGE, "exec"), names)
    bad = "[0, 5, 10, 15, 20, 25, 30, 35]"
    assert capsys.readouterr().out.splitlines() == [bad, bad, "True", "True", "True"]
