"""What models fitted on a dataset have in common: where its rows came from, a review, a file."""

from __future__ import annotations

from os import PathLike
from typing import Any

from sklearn.utils.validation import check_is_fitted

__all__ = ["DatasetModel"]


class DatasetModel:
    """Mixin of estimators that take datasets."""

    def review(self, dataset: Any) -> Any:
        """What the model thinks of each image of the dataset it was fitted on: a DataFrame.

        A row an image: ``image``, ``agreement`` (leave-image-out, see ``leave_group_out``),
        ``noise_variance``, ``confidence``, ``flags``, ``superpixels`` and the paths of its files.
        One read of the data. Kept as ``review_`` and saved with the model; rank it with
        :func:`gpgc_dask.ranking.rank`.
        """
        from gpgc_dask.ranking import review

        check_is_fitted(self)
        self.review_ = review(self, dataset)
        return self.review_

    def save(
        self, path: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> None:
        """Write the fitted model to a path or URL as a Zarr group; ``gpgc_dask.load`` reads it."""
        from gpgc_dask.persistence import save

        check_is_fitted(self)
        save(self, path, storage_options)

    def _remember(self, origin: dict[str, Any] | None) -> None:
        """Keep where the data came from, and nothing of an earlier fit's."""
        for name in ("dataset_", "review_"):
            self.__dict__.pop(name, None)
        if origin is not None:
            self.dataset_ = origin
