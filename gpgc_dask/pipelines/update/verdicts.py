"""Verdicts of people on images whose masks an update changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpgc_dask.core.arrays import Labels
from gpgc_dask.data.schema import VERDICTS_FOLDER
from gpgc_dask.data.verdicts import Verdict, VerdictLog, latest
from gpgc_dask.storage.location import Location

__all__ = ["renew_verdicts"]


def renew_verdicts(location: Location, place: Location, changed: Mapping[str, Labels]) -> None:
    """Prepare verdicts that take effect together with changed masks.

    A verdict is about the mask that a person has seen. If the mask has changed, it is withdrawn. If
    the new mask is the corrected one, it is confirmed.

    Parameters
    ----------
    location : Location
        The dataset.
    place : Location
        Where its new state is prepared.
    changed : mapping of str to (n,) array
        {image: labels of its superpixels} of the images with changed masks or photos.
    """
    place.remove(VERDICTS_FOLDER)
    log = VerdictLog(place)
    for name, verdict in latest(VerdictLog(location).read()).items():
        if name not in changed:
            continue
        own = verdict.correction
        if own is not None and np.array_equal(own.label, changed[name]):
            note = "the corrected mask is the given one now"
            log.append(Verdict(name, "confirmed", verdict.by, note=note))
        else:
            log.append(Verdict(name, "withdrawn", note="the mask has changed"))
