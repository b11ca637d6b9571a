"""cleanlab: image scores, and out-of-sample probabilities of superpixels with their labels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import InputError
from gpgc_dask.core.progress import Listener
from gpgc_dask.data.training import training_arrays
from gpgc_dask.models.decisions import class_probabilities
from gpgc_dask.models.review import leave_out_values
from gpgc_dask.results.columns import columns_in
from gpgc_dask.results.export.base import ExportFormat, ExportReport
from gpgc_dask.storage.location import write_whole

__all__ = ["Cleanlab"]


class Cleanlab(ExportFormat):
    """Arrays in an ``.npz`` file, which NumPy reads without pickle.

    ``images`` are the names in the order of the dataset, ``image_scores`` their quality in
    [0, 1], 0 if it is unknown. The other columns of the ranking that are numbers have arrays of
    their names. With a dataset also ``labels``, ``pred_probs`` and ``image_of_label``.
    """

    suffix = ".npz"

    def write(self, progress: Listener | None = None) -> ExportReport:
        """Write the file."""
        arrays = self._image_arrays()
        if self.selection.dataset is not None:
            arrays |= self._superpixel_arrays(self.selection.dataset)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        write_whole(self.target, content.getvalue())
        chosen, review = self.selection.chosen, self.selection.review
        return ExportReport([str(self.target)], len(chosen), len(review))

    def _image_arrays(self) -> dict[str, Any]:
        table = self.selection.chosen.iloc[np.argsort(self.selection.photos)]
        scores = table["quality"].to_numpy(dtype=np.float64)
        names = np.array(table["image"].tolist(), dtype=str)
        columns = {
            column.name: table[column.name].to_numpy()
            for column in columns_in("exports")
            if column.kind in ("integer", "number")
        }
        return {"images": names, "image_scores": np.nan_to_num(scores), **columns}

    def _superpixel_arrays(self, dataset: xr.Dataset) -> dict[str, Labels]:
        """Labels, probabilities and image of each superpixel of the chosen images.

        The probabilities are those of models that never saw the image: calibrated ones of the
        leave-group-out mean f, if the model has a calibration; else softmax of 2f/ε̄² with the
        typical noise ε̄², in which the variance of f, which is small compared with ε̄², is left out.
        Superpixels without weight (void) are left out.
        """
        model, photos = self.selection.model, np.sort(self.selection.photos)
        noise, calibration = model.typical_noise, model.calibration
        if noise is None and calibration is None:
            raise InputError(
                f"a {type(model).__name__} has no probabilities: export without the dataset, or "
                "fit a GPGC or GP"
            )
        arrays = training_arrays(dataset)
        values = leave_out_values(model, dataset)
        shares = class_probabilities(values, 0.0, noise or 0.0, model.classes_.size, calibration)
        place = np.full(dataset.sizes["photo"], -1)
        place[photos] = np.arange(photos.size)
        image = place[np.asarray(arrays.groups.codes)]
        used = (image >= 0) & (arrays.weight > 0)
        return {
            "labels": np.searchsorted(model.classes_, arrays.y[used]),
            "pred_probs": shares[used],
            "image_of_label": image[used],
        }
