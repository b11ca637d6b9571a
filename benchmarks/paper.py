"""Sizes of the paper's datasets."""

from __future__ import annotations

IMAGES = {
    "AutoSeg cats": 3_006,
    "AutoSeg sheep": 5_079,
    "AutoSeg horses": 9_007,
    "HDSeg horses": 19_060,
    "AutoSeg dogs": 41_777,
    "HDSeg dogs": 111_668,
}
"""Number of images per dataset."""

FEATURES = 4_113
"""Features per superpixel: 4,096 of a network, 16 of the position, a constant."""

SUPERPIXELS = 145
"""Superpixels per image, about."""
