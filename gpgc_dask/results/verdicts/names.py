"""From the labels of other tools to the classes of a dataset."""

from __future__ import annotations

from collections.abc import Mapping

from gpgc_dask.core.errors import InputError
from gpgc_dask.imaging.masks import VOID, MaskFormat

__all__ = ["find_label", "label_codes"]


def label_codes(fmt: MaskFormat) -> dict[str, int]:
    """{label: class code} of the classes of a dataset, and of void pixels."""
    codes = {name: code for code, name in enumerate(fmt.names)}
    return {"void": VOID} | codes


def find_label(labels: Mapping[str, int], label: str) -> int:
    """Class code of a label; upper and lower case are the same where that is no ambiguity.

    Raises
    ------
    InputError
        If the dataset has no such class.
    """
    if label in labels:
        return labels[label]
    folded = [code for name, code in labels.items() if _fold(name) == _fold(label)]
    if len(folded) == 1:
        return folded[0]
    known = ", ".join(labels)
    raise InputError(f"the label {label!r} is no class of the dataset, which has {known}")


def _fold(label: str) -> str:
    return label.strip().casefold()
