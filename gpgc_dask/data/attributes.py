"""What the attributes of a dataset must be, before any other part relies on them.

Their digests show accidental changes. The author of a dataset can write digests that fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpgc_dask.core.errors import InputError

__all__ = ["check_attributes"]

NUMBER = (int, float)
OPTIONAL_NUMBER = (int, float, type(None))
OPTIONAL_TEXT = (str, type(None))

EXPECTED: dict[str, Any] = {
    "classes": [str],
    "class_values": [NUMBER],
    "source": {
        "format": str,
        "images": OPTIONAL_TEXT,
        "masks": OPTIONAL_TEXT,
        "mask_format": {
            "foreground": [NUMBER],
            "classes": [list],
            "void": [NUMBER],
            "threshold": OPTIONAL_NUMBER,
        },
    },
    "backbone": {"name": str},
    "recipe": {
        "superpixels": OPTIONAL_NUMBER,
        "compactness": NUMBER,
        "sigma": NUMBER,
        "side": int,
        "dtype": str,
    },
    "versions": {},
    "files_digest": str,
    "image_info": {},
}
"""Types of the values: of all items of a list, and of the required keys of a mapping."""


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raise an InputError if an attribute that this program reads is absent or of another type."""
    _check(attributes, EXPECTED, "")


def _check(value: Any, expected: Any, place: str) -> None:
    if isinstance(expected, Mapping):
        if not isinstance(value, Mapping):
            raise InputError(f"its attribute {place} is not a mapping")
        for key, own in expected.items():
            name = f"{place}.{key}".lstrip(".")
            if key not in value:
                raise InputError(f"its attribute {name} is missing")
            _check(value[key], own, name)
    elif isinstance(expected, list):
        if not isinstance(value, list):
            raise InputError(f"its attribute {place} is not a list")
        for each in value:
            _check(each, expected[0], place)
    elif not isinstance(value, expected) or isinstance(value, bool):
        raise InputError(f"its attribute {place} has a value of the wrong type, {value!r:.40}")
