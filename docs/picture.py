"""Draw the README's picture: one dimension, groups of points, some groups labelled wrongly.

Needs matplotlib: ``python docs/picture.py`` writes docs/picture.png.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from gpgc_dask import GP, GPGC

mpl.use("Agg")
import matplotlib.pyplot as plt

GOOD, BAD, LINE = "#2a78b8", "#d1495b", "#222222"


def bumps(x: np.ndarray) -> np.ndarray:
    """(n, 25) smooth features of a number, and a constant."""
    centres = np.linspace(-0.1, 1.1, 24)
    return np.column_stack([np.exp(-0.5 * ((x[:, None] - centres) / 0.07) ** 2), np.ones(x.size)])


def make(seed: int = 4):
    rng = np.random.default_rng(seed)
    n_groups, size = 30, 12
    groups = np.repeat(np.arange(n_groups), size)
    x = np.clip(rng.uniform(0, 1, n_groups)[groups] + 0.1 * rng.standard_normal(groups.size), 0, 1)
    y = np.sin(2 * np.pi * 1.5 * x) > 0
    wrong = np.arange(n_groups) < 9
    rng.shuffle(wrong)
    flip = rng.random(groups.size) < np.where(wrong, 0.75, 0.03)[groups]
    return x, y ^ flip, groups, wrong


def draw_fit(axis, model, title, x, y, wrong):
    grid = np.linspace(0, 1, 400)
    mean, std = model.decision_function(bumps(grid), return_std=True)
    axis.axhline(0, color="#cccccc", lw=0.8)
    axis.plot(grid, np.where(np.sin(3 * np.pi * grid) > 0, 1, -1), color="#999999", lw=1, ls=":")
    axis.fill_between(grid, mean - 1.96 * std, mean + 1.96 * std, color="#f0c27b", alpha=0.55, lw=0)
    axis.plot(grid, mean, color=LINE, lw=2)
    height = np.where(y, 1, -1) + np.random.default_rng(0).uniform(-0.12, 0.12, x.size)
    for flag, colour in ((False, GOOD), (True, BAD)):
        axis.plot(x[wrong == flag], height[wrong == flag], ".", ms=4, color=colour, alpha=0.7)
    right = np.mean((mean > 0) == (np.sin(3 * np.pi * grid) > 0))
    axis.set(
        title=f"{title}: {100 * right:.0f} % right", xlim=(0, 1), ylim=(-1.8, 1.8), yticks=[-1, 1]
    )
    axis.set_xlabel("feature")


def draw_noise(axis, model, wrong):
    order = np.argsort(model.noise_variance_)
    colours = np.where(wrong[order], BAD, GOOD)
    axis.barh(np.arange(order.size), model.noise_variance_[order], color=colours)
    axis.set(title="learned noise of each group", yticks=[], xlabel="noise variance")
    axis.legend(
        handles=[plt.Rectangle((0, 0), 1, 1, color=c) for c in (GOOD, BAD)],
        labels=["labelled well", "labelled wrongly"],
        frameon=False,
        loc="lower right",
    )


def main() -> None:
    x, y, groups, wrong = make()
    X = bumps(x)
    # c = 1, as the paper: these rows are independent.
    plain = GP(redundancy=1.0).fit(X, y)
    model = GPGC(redundancy=1.0).fit(X, y, groups=groups)
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained", dpi=140)
    draw_fit(axes[0], plain, "one noise for all groups", x, y, wrong[groups])
    draw_fit(axes[1], model, "one noise per group", x, y, wrong[groups])
    draw_noise(axes[2], model, wrong)
    path = Path(__file__).with_name("picture.png")
    figure.savefig(path)
    print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
