"""The columns of a ranking, each declared once.

CSV and JSON files, ``gpgc rank``, the report, the exports and the documentation take the columns
from :data:`COLUMNS`. To add one, add a line here and compute its values in
:mod:`gpgc_dask.models.review`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "COLUMNS",
    "PEOPLE_COLUMNS",
    "PEOPLE_FILE",
    "Column",
    "column_names",
    "columns_in",
    "describe_columns",
    "format_cell",
    "format_interval",
    "markdown_table",
]

Place = Literal["files", "report", "exports"]
"""CSV, JSON and terminal; the cards of the report; the files of other tools."""


@dataclass(frozen=True)
class Column:
    """A column of a ranking.

    Parameters
    ----------
    name : str
        Name in files and in the DataFrame.
    kind : {"integer", "text", "number", "labels"}
        Type of the values. Numbers may be unknown (NaN); labels are joined by ";".
    help : str
        Meaning, as a phrase without a full stop.
    format : str, default ""
        How numbers are displayed, such as ".2f".
    higher_is_better : bool, optional
        Whether high values are good. None if the column has no such order; the report then offers
        no sorting by it.
    chart : {"linear", "logarithmic"}, optional
        Axis of the histogram in the report; linear ones cover 0 to 1. None for no histogram.
    places : sequence of {"files", "report", "exports"}, default all
        Where the column is shown.
    interval : tuple of str, optional
        Names of two columns that are the limits of the number. Where people read, they are shown
        behind it, not as columns of their own.
    """

    name: str
    kind: Literal["integer", "text", "number", "labels"]
    help: str
    format: str = ""
    higher_is_better: bool | None = None
    chart: Literal["linear", "logarithmic"] | None = None
    places: Sequence[Place] = ("files", "report", "exports")
    interval: tuple[str, str] | None = None

    @property
    def title(self) -> str:
        """The name as it is displayed."""
        return self.name.replace("_", " ")


COLUMNS = [
    Column("rank", "integer", "1 = worst", places=("files", "exports")),
    Column("image", "text", "path within the folder of photos", places=("files",)),
    Column(
        "quality",
        "number",
        "estimated IoU of the mask with a correct one",
        format=".2f",
        higher_is_better=True,
        chart="linear",
        interval=("quality_low", "quality_high"),
    ),
    Column(
        "quality_low",
        "number",
        "the quality is higher with a probability of 90 %",
        format=".2f",
        places=("files", "exports"),
    ),
    Column(
        "quality_high",
        "number",
        "the quality is lower with a probability of 90 %",
        format=".2f",
        places=("files", "exports"),
    ),
    Column(
        "agreement",
        "number",
        "IoU of the mask with the prediction of a model that never saw the image",
        format=".2f",
        higher_is_better=True,
    ),
    Column(
        "confidence",
        "number",
        "share of the images that are estimated to be less reliable by their noise",
        format=".2f",
        higher_is_better=True,
    ),
    Column(
        "noise_variance",
        "number",
        "noise variance learned for the image, in units of the ±1 labels",
        format=".2g",
        higher_is_better=False,
        chart="logarithmic",
    ),
    Column("flags", "labels", "empty mask, one class, mostly void, few superpixels; or a verdict"),
]
"""All columns, in the order of the files. Those of single classes follow."""

PEOPLE_COLUMNS = [
    Column("annotator", "text", "who drew the masks"),
    Column("masks", "integer", "number of masks"),
    Column("suspect", "integer", "number of masks whose quality is almost certainly below 0.5"),
    Column(
        "quality",
        "number",
        "mean estimated IoU of the masks with correct ones",
        format=".2f",
        interval=("quality_low", "quality_high"),
    ),
    Column("noise_variance", "number", "mean noise variance, by superpixels", format=".2g"),
    Column("quality_low", "number", "the mean is higher with a probability of 90 %", format=".2f"),
    Column("quality_high", "number", "the mean is lower with a probability of 90 %", format=".2f"),
    Column(
        "expected_quality",
        "number",
        "mean quality that the typical annotator reaches on images as difficult as these",
        format=".2f",
    ),
    Column(
        "excess",
        "number",
        "quality beyond what is expected, drawn towards 0 where there are few masks",
        format="+.2f",
    ),
    Column("trend", "number", "change of the quality beyond difficulty in 30 days", format="+.3f"),
]
"""Columns of the table of people. CSV files have the first :data:`PEOPLE_FILE`, JSON has all."""

PEOPLE_FILE = 5
"""Number of columns in CSV files: programs may rely on them."""


def columns_in(place: Place) -> list[Column]:
    """The columns that are shown in a place.

    Parameters
    ----------
    place : {"files", "report", "exports"}

    Returns
    -------
    list of Column
    """
    return [column for column in COLUMNS if place in column.places]


def column_names(place: Place = "files") -> list[str]:
    """Names of the columns that are shown in a place.

    Parameters
    ----------
    place : {"files", "report", "exports"}, default "files"

    Returns
    -------
    list of str

    Examples
    --------
    >>> from gpgc_dask.results.columns import column_names
    >>> column_names()
    ['rank', 'image', 'quality', 'quality_low', 'quality_high', 'agreement', 'confidence', \
'noise_variance', 'flags']
    """
    return [column.name for column in columns_in(place)]


def plain_value(column: Column, value: Any) -> Any:
    """A cell of a ranking as JSON holds it: six digits, None for unknown, labels as a list."""
    if column.kind == "labels":
        return [label for label in value.split(";") if label]
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else float(f"{value:.6g}")


def format_cell(column: Column, value: Any) -> str:
    """A plain value as it is displayed: unknown numbers are empty, labels joined by ", "."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(value)
    return format(value, column.format)


def format_interval(low: float | None, high: float | None) -> str:
    """The limits of a number as they are displayed behind it; empty if they are unknown."""
    return "" if low is None or high is None else f" ({low:.2f}–{high:.2f})"


def describe_columns() -> str:
    """Names and meanings of the columns in files, in one line."""
    return ", ".join(f"{column.name} ({column.help})" for column in columns_in("files"))


def markdown_table() -> str:
    """Names and meanings of the columns in files as a Markdown table."""
    rows = [f"| `{column.name}` | {column.help} |" for column in columns_in("files")]
    return "\n".join(["| column | meaning |", "| --- | --- |", *rows])
