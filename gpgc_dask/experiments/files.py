"""A comparison as files: Markdown, CSV and a plot."""

from __future__ import annotations

import importlib.util
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.metrics import LEVEL
from gpgc_dask.experiments.compare import KEPT, Comparison
from gpgc_dask.experiments.tables import runs_table, table_1, table_2, table_3
from gpgc_dask.storage.location import write_whole

__all__ = ["markdown_table", "plot_tradeoff", "to_markdown", "write_comparison"]


def write_comparison(comparison: Comparison, folder: str | PathLike[str]) -> list[Path]:
    """Write tables.md, one CSV file per table, runs.csv, per_image.csv, scores.csv, tradeoff.svg.

    Parameters
    ----------
    comparison : Comparison
    folder : path
        Created if it does not exist.

    Returns
    -------
    list of Path
        Files that were written. The plot is left out if matplotlib is not installed.
    """
    place = Path(folder).expanduser()
    tables = {
        "table1": table_1(comparison),
        "table2": table_2(comparison),
        "table3": table_3(comparison),
    }
    tables["runs"] = runs_table(comparison)
    tables["per_image"] = _per_image(comparison)
    tables["scores"] = pd.DataFrame({"image": comparison.train_names} | comparison.scores)
    if comparison.quality is not None:
        tables["quality"] = comparison.quality
    written = []
    for name, table in tables.items():
        written.append(place / f"{name}.csv")
        write_whole(written[-1], table.to_csv(index=False, lineterminator="\n").encode())
    written.append(place / "tables.md")
    write_whole(written[-1], to_markdown(comparison).encode())
    if importlib.util.find_spec("matplotlib") is not None:
        written.append(place / "tradeoff.svg")
        plot_tradeoff(comparison).figure.savefig(written[-1])
    return written


def _per_image(comparison: Comparison) -> pd.DataFrame:
    """One row per run and test image."""
    n = len(comparison.test_names)
    return pd.DataFrame(
        {
            "run": np.repeat([run.number for run in comparison.runs], n),
            "image": comparison.test_names * len(comparison.runs),
            "average_class_accuracy": np.concatenate([run.per_image for run in comparison.runs]),
        }
    )


def to_markdown(comparison: Comparison) -> str:
    """The tables with explanations.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    str
        Markdown.
    """
    train, test = comparison.train, comparison.test
    parts = [
        f"Trained on {train['images']:,} images, tested on {test['images']:,}: average class "
        f"accuracy in pixels, percent. p: Wilcoxon signed-rank test on the images' own accuracies; "
        f"**bold** below {LEVEL:g}. Numbers of runs are those of runs.csv.",
        "### Table 1: all images",
        markdown_table(table_1(comparison)),
        f"### Table 2: refitted to the best {100 * KEPT:g} %",
        markdown_table(table_2(comparison)),
        "### Table 3: the GP on growing shares of the best images",
        markdown_table(table_3(comparison)),
        "The subsets are nested: all fits with c = 1 in a row of the table took "
        f"{comparison.table3_reads} read(s) of the data.",
    ]
    if comparison.quality is not None:
        parts += [
            "### The rankings against the truth",
            "Bad: IoU of the mask with the true one below 0.5.",
            markdown_table(comparison.quality),
        ]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: pd.DataFrame) -> str:
    """A table in Markdown, without empty columns.

    Parameters
    ----------
    table : pandas.DataFrame

    Returns
    -------
    str
    """
    used = [name for name in table if name in ("accuracy", "rule") or not _is_empty(table[name])]
    lines = ["| " + " | ".join(used) + " |", "| " + " | ".join("---" for _ in used) + " |"]
    for row in table[used].itertuples(index=False):
        cells = (_cell(name, value) for name, value in zip(used, row, strict=True))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _is_empty(column: Any) -> bool:
    return bool(column.isna().all() or (column.astype(str) == "").all())


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        if np.isnan(value):
            return "–" if name == "accuracy" or name.endswith("%") else ""
        if name.startswith("p against"):
            text = f"{value:.2g}"
            return f"**{text}**" if value < LEVEL else text
        return f"{value:.2f}" if abs(value) >= 1.5 or name in ("c", "spread") else f"{value:.3f}"
    return str(value).replace("|", "\\|")


def plot_tradeoff(comparison: Comparison, ax: Any = None) -> Any:
    """Plot accuracy against the share of images kept, one line per rule.

    Parameters
    ----------
    comparison : Comparison
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Default: new ones.

    Returns
    -------
    matplotlib.axes.Axes
    """
    from matplotlib.figure import Figure

    if ax is None:
        ax = Figure(figsize=(6, 4), layout="constrained").subplots()
    for line in table_3(comparison).to_dict("records"):
        points = [(float(k[:-2]), v) for k, v in line.items() if k.endswith(" %")]
        shares, values = zip(*points, strict=True)
        ax.plot(shares, values, marker="o", label=f"{line['model']} by {line['rule']}")
    ax.set_xscale("log")
    ax.set_xticks([1, 2, 5, 10, 25, 50, 100], ["1", "2", "5", "10", "25", "50", "100"])
    ax.set_xlabel("images kept, %")
    ax.set_ylabel("average class accuracy, %")
    ax.grid(alpha=0.3)
    ax.legend(fontsize="small")
    return ax
