"""Run lengths are those of pycocotools, and text that is not of a region is rejected."""

from __future__ import annotations

import numpy as np
import pytest
from pycocotools import mask as rle

from gpgc_dask import GpgcError
from gpgc_dask.data.run_lengths import decode, encode

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (120, 90)])
def test_run_lengths_are_those_of_pycocotools(shape, share):
    mask = np.random.default_rng(0).random(shape) < share
    text = encode(mask)
    expected = rle.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    assert text == expected
    np.testing.assert_array_equal(decode(text, *shape), mask)


@pytest.mark.parametrize("text", ["", "~~~", "o", "13", "0" * 10 + "oooooooooo0", "ä"])
def test_other_text_is_rejected(text):
    with pytest.raises(GpgcError, match="run lengths"):
        decode(text, 20, 20)
