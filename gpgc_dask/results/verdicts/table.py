"""The verdicts of a dataset as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from os import PathLike
from typing import Any

import pandas as pd

from gpgc_dask.data.verdicts import Verdict, VerdictLog, latest
from gpgc_dask.storage.location import Location

__all__ = ["COLUMNS", "choose_verdicts", "list_verdicts", "verdicts_to_csv"]

COLUMNS = ("image", "verdict", "by", "at", "note", "id")
"""Columns of the CSV file."""


def list_verdicts(
    dataset: str | PathLike[str],
    *,
    every: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> pd.DataFrame:
    """List the verdicts of a dataset.

    Parameters
    ----------
    dataset : path or URL
        The dataset.
    every : bool, default False
        List the whole log, with verdicts that do not count any more.
    storage_options : dict, optional
        Options of fsspec for a URL.

    Returns
    -------
    pandas.DataFrame
        Columns image, verdict, by, at, note, id and current (whether it counts). In the order of
        the images' names, or with ``every`` in the order of the times.

    Examples
    --------
    >>> from gpgc_dask.results.verdicts import list_verdicts
    >>> len(list_verdicts("horses.zarr"))
    0
    """
    log = VerdictLog(Location.of(dataset, storage_options)).read()
    counting = {one.id for one in latest(log).values()}
    rows = [
        (one.image, one.kind, one.by, one.at, one.note, one.id, one.id in counting)
        for one in choose_verdicts(log, every=every)
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "current"])


def choose_verdicts(log: list[Verdict], *, every: bool) -> list[Verdict]:
    """The verdicts that count, in the order of the images' names; with ``every`` the whole log."""
    return log if every else sorted(latest(log).values(), key=lambda one: one.image)


def verdicts_to_csv(verdicts: Iterable[Verdict]) -> str:
    """A CSV file of verdicts, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in verdicts:
        writer.writerow([one.image, one.kind, one.by, one.at, one.note, one.id])
    return text.getvalue()
