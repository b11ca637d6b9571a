"""Photo-like scenes, drawn by arithmetic: a patterned animal in a landscape, next to a thing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpgc_dask.core.arrays import Mask
from gpgc_dask.demo.animals import Animal
from gpgc_dask.demo.canvas import Canvas
from gpgc_dask.demo.landscapes import LANDS, draw_grass, draw_ground, draw_sky
from gpgc_dask.demo.things import THINGS, Spot, draw_clutter

__all__ = ["Scene", "draw_scene"]


@dataclass(frozen=True)
class Scene:
    """A photo and its masks.

    Attributes
    ----------
    photo : (height, width, 3) array of uint8
        RGB.
    mask : (height, width) array of bool
        The animal.
    other : (height, width) array of bool
        The visible part of another large thing.
    """

    photo: NDArray[np.uint8]
    mask: Mask
    other: Mask


def draw_scene(seed: int, height: int = 240, width: int = 320) -> Scene:
    """Draw the scene of a seed.

    Parameters
    ----------
    seed : int
        Each seed has one scene.
    height, width : int
        Size of the photo in pixels.

    Returns
    -------
    Scene
    """
    canvas = Canvas(np.random.default_rng(seed), height, width)
    land = LANDS[canvas.rng.integers(len(LANDS))]
    horizon = canvas.rng.uniform(0.27, 0.42) * height
    draw_sky(canvas, land, horizon)
    draw_ground(canvas, land, horizon)
    draw_clutter(canvas, land, horizon)
    canvas.blur(canvas.rng.uniform(0.0025, 0.0055) * canvas.unit)  # out of focus
    animal = Animal(canvas)
    thing = THINGS[canvas.rng.integers(len(THINGS))]
    other = thing(canvas, land, _place_next_to(canvas, animal, horizon))
    cover = animal.draw()
    draw_grass(canvas, land, horizon, animal.ground)
    mask = cover > 0.5
    return Scene(canvas.develop(), mask, (other > 0.5) & ~mask)


def _place_next_to(canvas: Canvas, animal: Animal, horizon: float) -> Spot:
    """A place next to an animal, on the wider side, or a little behind it."""
    rng, unit = canvas.rng, canvas.unit
    radius, share = unit * rng.uniform(0.14, 0.19), rng.uniform(0.4, 0.6)
    space = canvas.width - animal.right
    if animal.left > space:
        centre = max(share * animal.left, 1.1 * radius)
    else:
        centre = canvas.width - max(share * space, 1.1 * radius)
    base = animal.ground - unit * rng.uniform(0.02, 0.2)
    return Spot(max(base, horizon + radius), centre, radius)
