"""Colours of classes."""

from __future__ import annotations

import numpy as np

from gpgc_dask.results import colours
from gpgc_dask.results.colours import BACKGROUND, class_colours


def test_classes_keep_their_colours():
    many = class_colours(255)
    assert len(set(many)) == 255
    for n in (3, 12, 40):
        assert class_colours(n) == many[:n]
    assert class_colours(12, background=0) == (BACKGROUND, *many[:11])
    assert class_colours(3, background=2)[2] == BACKGROUND


def test_colours_can_be_distinguished_without_green():
    """Distances in CIELAB, where about 2 is just noticeable, with and without red and green."""
    seen = colours._appearance(np.array(class_colours(20, background=0)))
    for part in (seen[:, :3], seen[:, 3:]):
        apart = np.linalg.norm(part[:, None] - part[None], axis=2)
        assert apart[np.triu_indices(20, 1)].min() > 5
    chroma = np.hypot(seen[:, 1], seen[:, 2])
    assert chroma.min() > 15  # none is grey, as void is
