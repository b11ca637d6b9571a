"""Things in a scene: trunks, bushes, boulders, bales and barrels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gpgc_dask.demo.canvas import Box, Canvas, Field, edge, mix
from gpgc_dask.demo.landscapes import Land

__all__ = ["THINGS", "Spot", "draw_clutter", "draw_shadow"]


class Spot(NamedTuple):
    """Place of a thing: the row it stands on, its centre column and its size."""

    base: float
    centre: float
    radius: float


def draw_clutter(canvas: Canvas, land: Land, horizon: float) -> None:
    """Draw trunks, bushes and stones in the background, the farther first and smaller."""
    rng, unit = canvas.rng, canvas.unit
    for centre in rng.uniform(0, canvas.width, rng.poisson(land.trunks)).tolist():
        base, radius = horizon + unit * rng.uniform(0, 0.12), unit * rng.uniform(0.012, 0.034)
        _draw_trunk(canvas, land, Spot(base, centre, radius))
    for thing, mean, least, most in (
        (_draw_bush, land.bushes, 0.05, 0.13),
        (_draw_boulder, land.stones, 0.015, 0.05),
    ):
        for near in (np.sort(rng.uniform(0, 1, rng.poisson(mean))) ** 1.6).tolist():
            base = horizon + (0.02 + 0.5 * near) * (canvas.height - horizon)
            radius = unit * rng.uniform(least, most) * (0.5 + near)
            thing(canvas, land, Spot(base, rng.uniform(0, canvas.width), radius))


def draw_shadow(canvas: Canvas, spot: Spot) -> None:
    """Draw a soft shadow on the ground under a thing, away from the sun."""
    base, centre, radius = spot
    centre -= 0.35 * canvas.sun * radius
    box = canvas.box(base - radius, base + radius, centre - 3 * radius, centre + 3 * radius)
    y, x = canvas.grid(box)
    far = ((y - base) / (0.22 * radius)) ** 2 + ((x - centre) / (1.15 * radius)) ** 2
    canvas.darken(box, 0.85 * np.exp(-0.7 * far))


def _draw_trunk(canvas: Canvas, land: Land, spot: Spot) -> None:
    """Draw the trunk of a tree whose crown is outside the picture."""
    base, centre, radius = spot
    box = canvas.box(0, base, centre - 3 * radius, centre + 3 * radius)
    y, x = canvas.grid(box)
    bend = radius * 0.5 * canvas.noise(canvas.coarse, y, 0 * y, canvas.unit / 80)
    wide = radius * (1 + 0.5 * np.exp((y - base) / (2 * radius)))
    across = (x - centre - bend) / wide
    bark = 1 + 0.16 * canvas.noise(canvas.fine, y / 4, x, canvas.unit / 240)
    colour = mix((0.42, 0.33, 0.25), land.hills, canvas.rng.uniform(0.1, 0.6))
    light = bark * (0.65 + 0.3 * canvas.sun * across)
    alpha = edge((np.abs(across) - 1) * wide) * edge(y - base)
    canvas.blend(box, alpha, light[..., None] * colour)


def _lump(canvas: Canvas, spot: Spot, flat: float, rough: float) -> tuple[Box, Field, Field]:
    """(box, distance, height) of a rough round thing, ``flat`` times as high as wide."""
    base, centre, radius = spot
    tall = radius * flat
    box = canvas.box(base - 2.4 * tall, base, centre - 1.4 * radius, centre + 1.4 * radius)
    y, x = canvas.grid(box)
    outline = 1 + rough * canvas.noise(canvas.coarse, y, x, radius / 40)
    far = np.hypot((y - base) / tall + 0.8, (x - centre) / radius) / np.maximum(outline, 0.6)
    distance = np.maximum((far - 1) * min(radius, tall), y - base)
    return box, distance, 0.8 * radius * np.sqrt(np.maximum(1 - far**2, 0))


def _draw_bush(canvas: Canvas, land: Land, spot: Spot) -> Field:
    draw_shadow(canvas, spot)
    box, distance, height = _lump(canvas, spot, 0.85, 0.16)
    leaves = canvas.noise(canvas.fine, *canvas.grid(box), canvas.unit / 260)
    colour = canvas.tinted(land.leaves) * (1.1 + 0.33 * leaves)[..., None]
    size = canvas.unit / 240
    return canvas.solid(box, distance + 1.5 * size * leaves, height + 1.2 * size * leaves, colour)


def _draw_boulder(canvas: Canvas, land: Land, spot: Spot) -> Field:
    draw_shadow(canvas, spot)
    box, distance, height = _lump(canvas, spot, canvas.rng.uniform(0.6, 0.9), 0.1)
    veins = canvas.noise(canvas.coarse, *canvas.grid(box), canvas.unit / 240)
    stone = mix((0.50, 0.49, 0.48), land.ground[1], canvas.rng.uniform(0, 0.25))
    colour = stone * (1 + 0.12 * veins - 0.25 * np.exp(-30 * veins**2))[..., None]
    return canvas.solid(box, distance, height + 0.05 * spot.radius * veins, colour)


def _draw_bale(canvas: Canvas, land: Land, spot: Spot) -> Field:
    """Draw a round bale of straw, its wound face to the front."""
    base, centre, radius = spot
    draw_shadow(canvas, Spot(base, centre, 1.3 * radius))
    length = 0.7 * radius * float(canvas.rng.choice([-1, 1]))
    box = canvas.box(base - 2 * radius, base, centre - 1.8 * radius, centre + 1.8 * radius)
    y, x = canvas.grid(box)
    down, right = y - base + radius, x - centre + length / 2
    face = np.hypot(down, right) - radius
    back = right - np.clip(right, min(0, length), max(0, length))
    straw, strands = (canvas.noise(canvas.fine, y, x / f, canvas.unit / 300) for f in (1, 6))
    turns = np.sin(312 * face / canvas.unit + np.arctan2(down, right) + 1.3 * straw)
    wound, side = 0.95 + 0.09 * straw + 0.11 * turns, 0.66 + 0.1 * strands - 0.4 * down / radius
    colour = np.where(face < 0, wound, side)[..., None] * canvas.tinted((0.82, 0.68, 0.38))
    distance = np.hypot(down, back) - radius + 0.6 * straw
    return canvas.solid(box, distance, 0.4 * straw, colour)


def _draw_barrel(canvas: Canvas, land: Land, spot: Spot) -> Field:
    """Draw an upright barrel: staves, three hoops, a lid seen slightly from above."""
    base, centre, radius = spot
    draw_shadow(canvas, spot)
    tall, lid = 1.25 * radius, 0.2 * radius
    box = canvas.box(base - 2 * tall - lid, base + lid, centre - radius, centre + radius)
    y, x = canvas.grid(box)
    level = (y - base) / tall + 1
    wide = radius * (0.985 - 0.175 * np.clip(level, -1, 1) ** 2)
    across = np.clip((x - centre) / wide, -1, 1)
    curve, rim = lid * np.sqrt(1 - across**2), base - 2 * tall
    distance = np.maximum(np.abs(x - centre) - wide, rim - curve - y)
    distance = np.maximum(distance, y - base - 0.6 * (curve - lid))
    turn = 3.2 * np.arcsin(across)
    grain = canvas.noise(canvas.fine, y / 5, x, canvas.unit / 240)
    seam = np.abs(turn - np.floor(turn)) < 0.12
    staves = 0.9 + 0.12 * np.sin(5.1 * np.floor(turn)) + 0.08 * grain - 0.35 * seam
    hue = canvas.tinted((0.58, 0.36, 0.20), 0.08)
    colour = staves[..., None] * hue
    for at in (-0.83, -0.05, 0.73):
        hoop = np.abs(level - 0.6 * curve / tall - at) - 0.07
        colour = mix(colour, (0.33, 0.33, 0.35), edge(hoop * tall))
    top = edge(y - rim - curve)
    colour = mix(colour, 1.2 * hue * (1 + 0.1 * grain[..., None]), top)
    height = (1 - top) * radius * np.sqrt(1 - across**2)
    return canvas.solid(box, distance, height, colour)


THINGS: tuple[Callable[[Canvas, Land, Spot], Field], ...]
THINGS = (_draw_bush, _draw_boulder, _draw_bale, _draw_barrel)
