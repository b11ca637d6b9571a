"""What every export format has in common: the images to export, and the class to implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import xarray as xr

from gpgc_dask.core.arrays import Index
from gpgc_dask.core.errors import Problem
from gpgc_dask.core.progress import Listener
from gpgc_dask.models.protocol import FittedModel
from gpgc_dask.results.corrected import CorrectedMasks

__all__ = ["ExportFormat", "ExportReport", "Selection"]


@dataclass(frozen=True)
class ExportReport:
    """Outcome of an export.

    Attributes
    ----------
    files : list of str
        Files that were written, the target first. Folders of masks are listed as folders.
    images : int
        Number of images that were exported.
    of : int
        Number of images in the ranking.
    left_out : list of Problem
        Images whose photo or mask cannot be read any more.
    """

    files: list[str]
    images: int
    of: int
    left_out: list[Problem] = field(default_factory=list)


@dataclass(frozen=True)
class Selection:
    """The images to export.

    Attributes
    ----------
    model : FittedModel
        The model that reviewed the images.
    review : pandas.DataFrame
        Review of all images, in the order of the dataset.
    chosen : pandas.DataFrame
        Rows of the ranking to export, worst first.
    photos : (chosen,) array of int
        Positions of the chosen images in the review.
    dataset : xarray.Dataset, optional
        The dataset of the model, if predictions are exported too.
    predicted : (N,) array of int, optional
        Class of each superpixel of the dataset, predicted without its image.
    """

    model: FittedModel
    review: pd.DataFrame
    chosen: pd.DataFrame
    photos: Index
    dataset: xr.Dataset | None = None
    predicted: Index | None = None

    def corrected_masks(self) -> CorrectedMasks:
        """Masks of the chosen images that people have corrected."""
        url = None if self.dataset is None else self.dataset.encoding.get("source")
        return CorrectedMasks(self.model, self.chosen, url)


class ExportFormat(ABC):
    """A format that rankings can be exported to.

    A new format is a subclass in a file of its own and a line in
    :mod:`gpgc_dask.results.export.registry`. Formats that hold the masks of each image derive from
    :class:`gpgc_dask.results.export.images.ImageFormat`.

    Parameters
    ----------
    target : Path
        The file to write.
    selection : Selection
        The images to export.
    **options
        Those named in ``options``.
    """

    suffix: ClassVar[str]
    """Ending of the target, such as ".json"."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of the options of this format."""
    accepts_dataset: ClassVar[bool] = True
    """Whether predictions can be exported next to the given masks."""

    def __init__(self, target: Path, selection: Selection, **options: Any) -> None:
        self.target, self.selection = target, selection

    @abstractmethod
    def write(self, progress: Listener | None = None) -> ExportReport:
        """Write the files."""
