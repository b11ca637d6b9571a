"""Several answers per photo: the best of them, and what they have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Array, Index
from gpgc_dask.core.errors import ExistsError, InputError
from gpgc_dask.core.paths import check_names, check_sources
from gpgc_dask.data.schema import VOID
from gpgc_dask.imaging.dataset_masks import DatasetMasks
from gpgc_dask.imaging.painting import encode_picture, mask_values, target_paths
from gpgc_dask.imaging.photos import read_orientation, silence_pillow
from gpgc_dask.quality.consensus import reliability_weights, vote
from gpgc_dask.storage.location import write_whole

__all__ = ["answer_scores", "best_answers", "write_consensus"]


def answer_scores(table: pd.DataFrame) -> Array:
    """How good each answer is among those for its photo: vote × IoU with all votes × quality.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking.

    Returns
    -------
    (images,) array
        0 if the quality is unknown.
    """
    consensus = table["consensus_of_all"].to_numpy(dtype=np.float64)
    quality = table["quality"].to_numpy(dtype=np.float64)
    return _weights(table) * np.nan_to_num(consensus * quality, nan=0.0)


def best_answers(table: pd.DataFrame) -> pd.DataFrame:
    """Select the best answer for each photo.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking of a dataset with several answers per photo.

    Returns
    -------
    pandas.DataFrame
        One row per photo, in the order of the photos' names.

    Raises
    ------
    InputError
        If no photo has more than one answer.
    """
    _check_answers(table)
    scored = table.assign(_score=answer_scores(table))
    best = scored.sort_values(["photo_name", "_score", "image"], ascending=[True, False, True])
    chosen = best.drop_duplicates("photo_name").drop(columns="_score")
    return chosen.reset_index(drop=True)


def write_consensus(
    table: pd.DataFrame, source: Mapping[str, Any], folder: str | PathLike[str]
) -> list[Path]:
    """Write one mask per photo: the majority of its answers, which vote by 1/noise.

    Parameters
    ----------
    table : pandas.DataFrame
        A review or a ranking of a dataset with several answers per photo.
    source : mapping
        Where photos and masks come from: ``model.dataset_["source"]``.
    folder : path
        A new or empty folder, for PNGs named as the photos, at their size, with the values of the
        given masks.

    Returns
    -------
    list of Path
        The files.
    """
    _check_answers(table)
    target = Path(folder).expanduser().absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExistsError(f"{target} exists and is not an empty folder: choose another")
    check_names(table["image"], table["photo_name"])
    check_sources(table["photo_name"], table["image_path"], table["mask_path"], source)
    masks = DatasetMasks(source, table["image"].tolist(), table["mask_path"].tolist())
    photos, first, number = np.unique(
        table["photo_name"].to_numpy(dtype=str), return_index=True, return_inverse=True
    )
    paths = table["image_path"].iloc[first].tolist()
    weights = _weights(table)
    targets = target_paths(photos.tolist(), target)

    def write(photo: int) -> None:
        own = np.flatnonzero(number == photo)
        content = _consensus(masks, own, weights[own], paths[photo])
        write_whole(targets[photo], encode_picture(content))

    silence_pillow()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, range(photos.size)))
    return targets


def _consensus(masks: DatasetMasks, answers: Index, weights: Array, path: str) -> Any:
    """The majority (height, width) of some answers, in values of the given masks."""
    orientation = read_orientation(path)
    own = [masks.codes(int(answer), orientation) for answer in answers]
    values = mask_values([*masks.format.values, *masks.format.void, 0])
    table = np.zeros(VOID + 1, dtype=values.dtype)
    n_classes = len(masks.format.values)
    table[:n_classes] = values[:n_classes]
    table[VOID] = values[n_classes]
    return table[vote(own, weights, n_classes)]


def _weights(table: pd.DataFrame) -> Array:
    noise, quality = (
        table[name].to_numpy(dtype=np.float64) for name in ("noise_variance", "quality")
    )
    return reliability_weights(noise, quality)


def _check_answers(table: pd.DataFrame) -> None:
    if "consensus" not in table:
        raise InputError(
            "the photos have one mask each: several per photo need gpgc ingest --format answers, "
            "or --answers FILE.csv"
        )
