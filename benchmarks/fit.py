"""A whole fit from Zarr on a LocalCluster, in units of one Gram product in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    Section,
    Superpixels,
    best_seconds,
    cluster,
    parser,
    seconds,
    write_superpixels,
)

from gpgc_dask import GP, GPGC

FEW_GROUPS = 16
"""Groups with more rows than features: kept as sufficient statistics after one read."""

GRAMS_TARGETS = {1024: 6, 512: 8, 256: 14}
"""Largest time of a fit in Gram products, by number of features."""

AUTO_TARGET, NATS_PER_ROW_TARGET = 1.15, 1e-6


class Runs:
    """Fits of one dataset, and their best times."""

    def __init__(self, data: Superpixels, repeats: int) -> None:
        self.data, self.models = data, {}
        F = data.X.compute()
        runs = {
            "gram": lambda: F.T @ F,
            "fit": self._fit("fit", redundancy=1.0, rounds=0),
            "auto": self._fit("auto", rounds=0),
            "looks": self._fit("looks", rounds=2),
        }
        with cluster():
            self.taken = best_seconds(runs, repeats)
            self.shortcuts = self._shortcuts()
        exact = {"dtype": "float64", "tol": 1e-9, "redundancy": 1.0, "solver": "fixed-point"}
        optimum = GPGC(**exact, rounds=0).fit(F, data.y, **data.fit_arguments)
        one = self.models["fit"]
        self.off = (optimum.log_evidence_ - one.log_evidence_) / len(F)
        self.moved = np.abs(one.confidence_ - optimum.confidence_).max()

    def _fit(self, name: str, **options: Any) -> Callable[[], None]:
        def fit() -> None:
            data = self.data
            self.models[name] = GPGC(**options).fit(data.X, data.y, **data.fit_arguments)

        return fit

    def _shortcuts(self) -> dict[str, tuple[float, Any]]:
        """Seconds and model of special cases."""
        X, y, n = self.data.X, self.data.y, len(self.data.y)
        few = np.arange(n) * FEW_GROUPS // n
        names = self.data.feature_groups
        return {
            "one noise variance": seconds(
                lambda: GP(redundancy=1.0).fit(X, y, **self.data.fit_arguments)
            ),
            f"{FEW_GROUPS} groups of {n // FEW_GROUPS:,} rows": seconds(
                lambda: GPGC(redundancy=1.0, rounds=0).fit(X, y, groups=few, feature_groups=names)
            ),
        }


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--features", type=int, nargs="+", default=list(GRAMS_TARGETS), help="numbers of features"
    )
    args = options.parse_args()
    n, n_groups = (16_384, 120) if args.smoke else (131_072, 1000)
    sizes = [160] if args.smoke else args.features
    section = Section(args, __file__)
    runs = {}
    for k in sizes:
        with tempfile.TemporaryDirectory() as folder:
            data = write_superpixels(Path(folder) / "X.zarr", n, k, n_groups)
            runs[k] = Runs(data, args.repeats)
    section.add(
        f"{n:,} rows of float32 in {n_groups:,} groups, two workers with one thread each; best of "
        f"{args.repeats} runs in turn. The unit is one Gram product in memory with all BLAS "
        "threads."
    )
    write_ratios(section, runs)
    section.add("Time of one fit in seconds, by part (redundancy 1.0):")
    section.table(
        ["features", "step", "predicted gain, nats", "reads so far", "sample", "sweeps", "driver"],
        [
            (
                f"{k:,}",
                number + 1,
                f"{entry['predicted_gain']:.2g}",
                f"{entry['reads']:.2f}",
                *(f"{entry['seconds'].get(part, 0):.2f}" for part in ("sample", "sweep", "solve")),
            )
            for k, run in runs.items()
            for number, entry in enumerate(run.models["fit"].history_)
        ],
    )
    section.add(f"Special cases with the {sizes[0]:,} features:")
    first = runs[sizes[0]]
    section.table(
        ["", "seconds", "÷ one Gram", "reads"],
        [
            (name, f"{spent:.2f}", f"{spent / first.taken['gram']:.1f}", model.n_reads_)
            for name, (spent, model) in first.shortcuts.items()
        ],
    )
    section.finish()


def write_ratios(section: Section, runs: dict[int, Runs]) -> None:
    """One row per quantity, one column per number of features."""
    every = list(runs.values())

    def row(name: str, cell: Callable[[Runs], str], target: str = "") -> tuple[str, ...]:
        return (name, *map(cell, every), target)

    targets = " / ".join(str(GRAMS_TARGETS.get(k, "")) for k in runs)
    section.table(
        ["features", *(f"{k:,}" for k in runs), "target"],
        [
            row("one Gram, s", lambda run: f"{run.taken['gram']:.2f}"),
            row("whole fit, redundancy 1.0, s", lambda run: f"{run.taken['fit']:.2f}"),
            row(
                "÷ one Gram",
                lambda run: f"**{run.taken['fit'] / run.taken['gram']:.1f}**",
                f"≤ {targets}",
            ),
            row(
                'redundancy "auto" ÷ 1.0',
                lambda run: f"**{run.taken['auto'] / run.taken['fit']:.2f}**",
                f"≤ {AUTO_TARGET}",
            ),
            row(
                'two rounds of the second look ÷ none, "auto"',
                lambda run: f"{run.taken['looks'] / run.taken['auto']:.2f}",
            ),
            row(
                'reads: 1.0, "auto", two rounds',
                lambda run: ", ".join(
                    f"{run.models[name].history_[-1]['reads']:.2f}"
                    for name in ("fit", "auto", "looks")
                ),
            ),
            row(
                "evidence below the float64 optimum, nats per row",
                lambda run: f"**{run.off:.1e}**",
                f"≤ {NATS_PER_ROW_TARGET:g}",
            ),
            row(
                "largest difference of a group's confidence from its value there",
                lambda run: f"{run.moved:.3f}",
            ),
        ],
    )


if __name__ == "__main__":
    main()
