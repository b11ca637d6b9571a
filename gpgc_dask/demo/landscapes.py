"""Sky, hills, ground and grass of a scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpgc_dask.demo.canvas import Canvas, Colour, Field, edge, float32, mix

__all__ = ["LANDS", "Land", "draw_grass", "draw_ground", "draw_sky"]


@dataclass(frozen=True)
class Land:
    """Colours of a landscape, and roughly how many things are in it.

    ``sky`` has the colours above and at the horizon, ``ground`` those far, near and in patches.
    """

    sky: tuple[Colour, Colour]
    hills: Colour
    ground: tuple[Colour, Colour, Colour]
    grass: Colour
    leaves: Colour
    blades: int
    trunks: int
    bushes: int
    stones: int
    grit: float = 0.09
    wooded: bool = False


LANDS = (
    Land(  # meadow
        ((0.42, 0.62, 0.86), (0.80, 0.88, 0.93)),
        (0.36, 0.48, 0.40),
        ((0.60, 0.66, 0.38), (0.34, 0.47, 0.18), (0.50, 0.56, 0.24)),
        (0.42, 0.56, 0.20),
        (0.26, 0.37, 0.15),
        *(1200, 1, 5, 3),
    ),
    Land(  # savannah
        ((0.50, 0.66, 0.82), (0.93, 0.88, 0.78)),
        (0.58, 0.55, 0.52),
        ((0.80, 0.72, 0.50), (0.70, 0.57, 0.33), (0.78, 0.68, 0.46)),
        (0.76, 0.66, 0.36),
        (0.40, 0.43, 0.20),
        *(900, 2, 4, 5),
    ),
    Land(  # snow
        ((0.60, 0.70, 0.82), (0.88, 0.90, 0.93)),
        (0.44, 0.52, 0.60),
        ((0.86, 0.89, 0.93), (0.91, 0.93, 0.96), (0.82, 0.86, 0.93)),
        (0.50, 0.46, 0.36),
        (0.20, 0.30, 0.20),
        *(130, 4, 4, 4),
        grit=0.03,
    ),
    Land(  # forest
        ((0.72, 0.80, 0.58), (0.86, 0.88, 0.68)),
        (0.30, 0.42, 0.20),
        ((0.56, 0.54, 0.30), (0.46, 0.36, 0.21), (0.40, 0.45, 0.19)),
        (0.46, 0.40, 0.18),
        (0.26, 0.37, 0.15),
        *(700, 11, 6, 2),
        wooded=True,
    ),
)


def draw_sky(canvas: Canvas, land: Land, horizon: float) -> None:
    """Draw clouds or backlit foliage, and two ranges of hills in front, the farther one paler."""
    box = canvas.box(0, horizon, 0, canvas.width)
    y, x = canvas.grid(box)
    canvas.pixels[box] = mix(*land.sky, np.clip(y / horizon, 0, 1))
    stretch, fine = (1.0, 400) if land.wooded else (2.2, 200)
    clouds = canvas.noise(canvas.coarse, y * stretch, x, canvas.unit / fine)
    colour = 1.4 * float32(land.leaves) if land.wooded else float32((0.98, 0.98, 0.97))
    canvas.blend(box, np.clip(0.5 * clouds + 0.3 * land.wooded, 0, 0.8), colour)
    mottled = 1 + 0.07 * canvas.noise(canvas.fine, y, x, canvas.unit / 150)[..., None]
    for depth in (0.55, 0.2):
        ridge = canvas.noise(canvas.coarse, 0 * x, x, canvas.unit / 90)
        trees = canvas.noise(canvas.fine, 0 * x, x, canvas.unit / 240)
        line = horizon - canvas.unit * (0.02 + 0.14 * depth + 0.035 * ridge + 0.012 * trees)
        colour = mix(land.hills, land.sky[1], depth) * canvas.rng.uniform(0.9, 1.1)
        canvas.blend(box, edge(line - y), mottled * colour)


def draw_ground(canvas: Canvas, land: Land, horizon: float) -> None:
    """Draw the ground in perspective, with patches, grit and grass."""
    box = canvas.box(horizon, canvas.height, 0, canvas.width)
    y, x = canvas.grid(box)
    near = np.maximum(y - horizon, 0) / (canvas.height - horizon)
    away = 240 / canvas.unit / (near + 0.12)
    across = (x - canvas.width / 2) * away
    patches = canvas.noise(canvas.coarse, 300 * away, across, 5.0)
    grit = land.grit * (0.3 + near) * canvas.noise(canvas.fine, 500 * away, across, 1.4)
    colour = mix(
        mix(*land.ground[:2], near**0.7), land.ground[2], np.clip(0.4 + 0.5 * patches, 0, 1)
    )
    canvas.blend(box, edge(horizon - y), colour * (1 + grit[..., None]))
    draw_grass(canvas, land, horizon)


def draw_grass(canvas: Canvas, land: Land, horizon: float, before: float | None = None) -> None:
    """Draw tufts of bent blades all over the ground, or some in front of a row."""
    rng, unit = canvas.rng, canvas.unit
    tufts = 1 + land.blades // (12 if before is None else 72)
    top = horizon if before is None else before
    y = top + (1.02 * canvas.height - top) * rng.uniform(0, 1, tufts) ** 0.8
    y = np.repeat(y, 12) + rng.normal(0, 0.006 * unit, 12 * tufts)
    x = np.repeat(rng.uniform(0, canvas.width, tufts), 12) + rng.normal(0, 0.02 * unit, 12 * tufts)
    near = np.clip((y - horizon) / (canvas.height - horizon), 0.03, 1.1)
    length = 0.085 * unit * near * rng.uniform(0.4, 1.1, y.size)
    lean = length * rng.normal(0.15 * canvas.sun, 0.35, y.size)
    light = rng.uniform(0.6, 1.25, y.size)
    t = np.linspace(0, 1, 4 + int(unit / 24))[:, None]
    alpha, shade = _scatter(
        canvas, y - length * t, x + lean * t**2, 1.8 * np.sqrt(near) * (1 - 0.7 * t), light
    )
    canvas.blend((slice(None), slice(None)), alpha, float32(shade)[..., None] * float32(land.grass))


def _scatter(
    canvas: Canvas, y: Field, x: Field, thickness: Field, light: Field
) -> tuple[Field, Field]:
    """(alpha, brightness), both (h, w), of lines: each point covers the four pixels about it.

    y, x, thickness : (points, lines)
    light : (lines,)
    """
    shape = (canvas.height, canvas.width)
    cover, shine = np.zeros((2, canvas.height * canvas.width))
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
        inside = (row >= 0) & (row < canvas.height) & (column >= 0) & (column < canvas.width)
        share = (1 - np.abs(y - row)) * (1 - np.abs(x - column)) * thickness
        place = (row * canvas.width + column)[inside]
        cover += np.bincount(place, share[inside], cover.size)
        shine += np.bincount(place, (share * light)[inside], cover.size)
    brightness = shine / np.maximum(cover, 1e-9)
    return 1 - np.exp(-cover).reshape(shape), brightness.reshape(shape)
