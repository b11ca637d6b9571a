"""The tables of the paper, made of runs; every cell names its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from gpgc_dask.core.metrics import SignedRank, signed_rank
from gpgc_dask.experiments.compare import Comparison
from gpgc_dask.experiments.runner import Run

__all__ = ["runs_table", "table_1", "table_2", "table_3"]


def runs_table(comparison: Comparison) -> pd.DataFrame:
    """One row per run, without the accuracies of single images.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    pandas.DataFrame
    """
    left_out = ("per_image",)
    names = [name for name in Run.__dataclass_fields__ if name not in left_out]
    return pd.DataFrame([{name: getattr(run, name) for name in names} for run in comparison.runs])


def table_1(comparison: Comparison) -> pd.DataFrame:
    """Models fitted to all images: accuracy in percent, and p against both GP-GCs.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    pandas.DataFrame
    """
    runs = [run for run in comparison.runs if run.table == 1]
    rivals = {run.model: run for run in runs if run.model.startswith("GP-GC")}
    lines = []
    for run in runs:
        name = run.model if run.rule == "all" else f"{run.model} on {run.rule}"
        line: dict[str, Any] = {"model": name, "accuracy": 100 * run.accuracy}
        line["c"] = run.redundancy
        for rival, other in rivals.items():
            line[f"p against {rival}"] = np.nan if other is run else _test(run, other).p
        lines.append(line | {"runs": str(run.number), "note": run.note})
    return pd.DataFrame(lines)


def table_2(comparison: Comparison) -> pd.DataFrame:
    """Models fitted to the best quarter: accuracy, spread of draws, p against the SVM margin.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    pandas.DataFrame
    """
    runs = [run for run in comparison.runs if run.table == 2]
    lines = []
    for model in dict.fromkeys(run.model for run in runs):
        own = [run for run in runs if run.model == model]
        margin = next((run for run in own if run.rule == "SVM margin"), None)
        for rule in dict.fromkeys(run.rule for run in own):
            same = [run for run in own if run.rule == rule]
            p = np.nan
            if margin is not None and len(same) == 1 and same[0] is not margin:
                p = _test(same[0], margin).p
            lines.append({"model": model, "rule": rule} | _cell(same) | {"p against SVM margin": p})
    return pd.DataFrame(lines)


def table_3(comparison: Comparison) -> pd.DataFrame:
    """The GP fitted to growing shares of the best images.

    One row per rule and model, one column per share.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    pandas.DataFrame
    """
    runs = [run for run in comparison.runs if run.table == 3]
    lines = []
    for rule, model in dict.fromkeys((run.rule, run.model) for run in runs):
        own = [run for run in runs if (run.rule, run.model) == (rule, model)]
        line: dict[str, Any] = {"rule": rule, "model": model}
        line |= {f"{100 * run.share:g} %": 100 * run.accuracy for run in own}
        full = next(
            r for r in comparison.runs if r.table == 1 and (r.model, r.rule) == (model, "all")
        )
        line["100 %"] = 100 * full.accuracy
        lines.append(line | {"runs": ", ".join(str(run.number) for run in [*own, full])})
    return pd.DataFrame(lines)


def _cell(runs: Sequence[Run]) -> dict[str, Any]:
    values = 100 * np.array([run.accuracy for run in runs])
    known = values[np.isfinite(values)]
    return {
        "accuracy": float(known.mean()) if known.size else np.nan,
        "spread": float(known.std(ddof=1)) if known.size > 1 else np.nan,
        "runs": ", ".join(str(run.number) for run in runs),
        "note": "; ".join(dict.fromkeys(run.note for run in runs if run.note)),
    }


def _test(first: Run, second: Run) -> SignedRank:
    return signed_rank(first.per_image, second.per_image)
