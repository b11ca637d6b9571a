"""The masks that people have corrected, at the photos' own size."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from gpgc_dask.core.errors import MissingFileError
from gpgc_dask.data.apply_verdicts import read_verdicts
from gpgc_dask.data.verdicts import VerdictLog, latest
from gpgc_dask.imaging.masks import Codes
from gpgc_dask.models.fitted_dataset import require_dataset_info
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.storage.location import Location

__all__ = ["CorrectedMasks"]

CORRECTED = "corrected"


class CorrectedMasks:
    """Corrected masks of a model's dataset, as of its fit. Each is read when it is needed.

    Parameters
    ----------
    model : FittedModel
        The model.
    table : pandas.DataFrame
        Rows of its review or ranking (image, flags). Nothing is read if no mask is corrected.
    url : str, optional
        The dataset, if it is no longer where it was at the fit.

    Raises
    ------
    MissingFileError
        If the dataset does not have the corrected masks any more.
    """

    def __init__(self, model: FittedModel, table: pd.DataFrame, url: str | None = None) -> None:
        is_corrected = [CORRECTED in str(flags).split(";") for flags in table["flags"]]
        wanted = set(table["image"][is_corrected])
        self._keys: dict[str, str] = {}
        if not wanted:
            return
        info = require_dataset_info(model)
        location = Location.of(url or info["url"])
        self._log = VerdictLog(location)
        found = latest(read_verdicts(location, info.get("verdicts", ())))
        self._keys = {
            name: one.key for name, one in found.items() if name in wanted and one.kind == CORRECTED
        }
        missing = sorted(wanted - self._keys.keys())
        if missing:
            raise MissingFileError(
                f"the corrected mask of {missing[0]} is no longer in {location}"
                f"{f', nor are {len(missing) - 1:,} others' if missing[1:] else ''}: put the "
                "dataset back where it was, or fit the model again"
            )

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __getitem__(self, name: str) -> Codes:
        """(height, width) class codes of the corrected mask of an image."""
        correction = self._log.read_one(self._keys[name]).correction
        assert correction is not None
        return correction.mask
