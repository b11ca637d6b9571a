"""Sizes of the data: everything about the data that the cost of a fit depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpgc_dask.core.arrays import Index
from gpgc_dask.data.writing import CHUNK_BYTES
from gpgc_dask.execution.row_blocks import is_dask
from gpgc_dask.gp.oracle.dask import BLOCKS_IN_MEMORY, max_rows_in_memory
from gpgc_dask.gp.oracle.layout import is_adjacent

__all__ = ["Shape"]


@dataclass(frozen=True)
class Shape:
    """Sizes of the data of a fit.

    Attributes
    ----------
    n_rows : int
        Number of rows N.
    n_features : int
        Number of features k.
    n_targets : int
        Number of target columns: 1 for two classes, one per class otherwise.
    n_groups : int
        Number of groups (images).
    largest_group : int
        Number of rows of the largest group.
    rows_in_large_groups : int
        Number of rows in groups that have more rows than there are features.
    n_large_groups : int
        Number of those groups.
    adjacent : bool
        Whether the rows of each group are next to each other.
    stored_bytes : int
        Bytes per stored number.
    block_rows : int
        Number of rows of the largest block (chunk).
    held_rows : int
        Number of rows that a task has in memory at a time.
    product_bytes : int
        Bytes per number in the products: 4 or 8.
    """

    n_rows: int
    n_features: int
    n_targets: int
    n_groups: int
    largest_group: int
    rows_in_large_groups: int
    n_large_groups: int
    adjacent: bool
    stored_bytes: int
    block_rows: int
    held_rows: int
    product_bytes: int

    @classmethod
    def from_array(
        cls, X: Any, groups: Index, n_classes: int, dtype: np.dtype[Any] | None
    ) -> Shape:
        """Read the sizes off an array.

        Parameters
        ----------
        X : array or dask array of shape (N, k)
            Features.
        groups : array of int of shape (N,)
            Group of each row, from 0 to J - 1.
        n_classes : int
            Number of classes.
        dtype : numpy.dtype or None
            Type of the products. None: the type of X.
        """
        sizes = np.bincount(groups)
        k = X.shape[1]
        large = sizes[sizes > k]
        chunks = getattr(X, "chunks", ((X.shape[0],),))[0]
        wide = X.dtype == np.float64 if dtype is None else dtype == np.float64
        return cls(
            n_rows=X.shape[0],
            n_features=k,
            n_targets=1 if n_classes == 2 else n_classes,
            n_groups=sizes.size,
            largest_group=int(sizes.max()),
            rows_in_large_groups=int(large.sum()),
            n_large_groups=large.size,
            adjacent=is_adjacent(groups),
            stored_bytes=X.dtype.itemsize,
            block_rows=int(max(chunks)),
            held_rows=max_rows_in_memory(X) if is_dask(X) else 0,
            product_bytes=8 if wide else 4,
        )

    @classmethod
    def from_images(cls, images: int, features: int, superpixels: int = 290) -> Shape:
        """Sizes of the dataset that ``ingest`` would make of a number of images.

        Parameters
        ----------
        images : int
            Number of images.
        features : int
            Number of features per superpixel.
        superpixels : int, default 290
            Number of superpixels per image: SLIC makes a few less than the 300 it is asked for.

        Examples
        --------
        >>> from gpgc_dask.planning.shape import Shape
        >>> Shape.from_images(10_000, features=489).n_rows
        2900000
        """
        rows = max(CHUNK_BYTES // (4 * features), 1)
        return cls(
            n_rows=images * superpixels,
            n_features=features,
            n_targets=1,
            n_groups=images,
            largest_group=superpixels,
            rows_in_large_groups=images * superpixels if superpixels > features else 0,
            n_large_groups=images if superpixels > features else 0,
            adjacent=True,
            stored_bytes=4,
            block_rows=rows,
            held_rows=BLOCKS_IN_MEMORY * rows,
            product_bytes=4,
        )
