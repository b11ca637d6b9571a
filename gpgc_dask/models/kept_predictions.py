"""Leave-image-out decision values that a review has computed, kept with the model."""

from __future__ import annotations

import hashlib

import numpy as np

from gpgc_dask.core.arrays import Features
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.storage.verified import VerifiedArray

__all__ = ["KeptPredictions"]


class KeptPredictions:
    """Decision values of a dataset's rows, each from a model that never saw the row's image.

    Those of a loaded model are read from its file when they are needed.

    Parameters
    ----------
    rows : str
        Digest of the rows, labels and weights that the values belong to, see
        :meth:`gpgc_dask.data.training.TrainingArrays.digest`.
    values : (N,) or (N, classes) array of float32, or VerifiedArray
        The values, in the order of the dataset's rows, or the stored array that holds them.
    content : str, optional
        Digest of the values of a stored array.
    """

    def __init__(self, rows: str, values: Features | VerifiedArray, content: str = "") -> None:
        self.rows = rows
        self._values = values
        self._content = content

    @property
    def values(self) -> Features:
        """(N,) or (N, classes) decision values, float32."""
        if isinstance(self._values, VerifiedArray):
            place, values = self._values.place, self._values[...]
            if array_digest(values) != self._content:
                raise CorruptedError(
                    f"{place} has been replaced since the model was loaded: load it again"
                )
            self._values = values
        return self._values

    @property
    def content(self) -> str:
        """Digest of the values."""
        return array_digest(self.values)


def array_digest(values: Features) -> str:
    """Digest of an array's bytes."""
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).hexdigest()
