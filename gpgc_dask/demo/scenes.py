"""Photo-like scenes, drawn by arithmetic: a patterned animal in a landscape, and some other thing.

Lengths are pixels, colours RGB in 0 … 1. Shapes are signed distances to their outline, negative
inside, and heights above the picture's plane: the ones give smooth edges, the others light.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gpgc_dask.arrays import Mask

__all__ = ["Scene", "draw_scene"]

Field: TypeAlias = NDArray[Any]
"""(h, w) float32 numbers of the pixels of a box, or (h, w, 3) their colours."""
Colour: TypeAlias = tuple[float, float, float]
Box: TypeAlias = tuple[slice, slice]

TEXTURE = 256
"""Rows and columns of the periodic noise that all surfaces are made of."""


@dataclass(frozen=True)
class Scene:
    """A photo and what is on it.

    photo : (h, w, 3) uint8 RGB;  mask : (h, w) bool, the animal
    other : (h, w) bool, what is visible of another large thing
    """

    photo: NDArray[np.uint8]
    mask: Mask
    other: Mask


def draw_scene(seed: int, height: int = 240, width: int = 320) -> Scene:
    """The scene of a number: always the same one."""
    canvas = _Canvas(np.random.default_rng(seed), height, width)
    land = LANDS[canvas.rng.integers(len(LANDS))]
    horizon = canvas.rng.uniform(0.27, 0.42) * height
    _draw_sky(canvas, land, horizon)
    _draw_ground(canvas, land, horizon)
    _draw_clutter(canvas, land, horizon)
    canvas.blur(canvas.rng.uniform(0.0025, 0.0055) * canvas.unit)  # out of focus
    animal = _Animal(canvas)
    thing = THINGS[canvas.rng.integers(len(THINGS))]
    other = thing(canvas, land, _beside(canvas, animal, horizon))
    cover = animal.draw()
    _draw_grass(canvas, land, horizon, animal.ground)
    mask = cover > 0.5
    return Scene(canvas.develop(), mask, (other > 0.5) & ~mask)


class _Canvas:
    """A picture (h, w, 3) in the making, and what all that is drawn on it shares.

    unit : the picture's height, where it is not too narrow for that;  sun : its side, −1 or 1
    fine, coarse : noise
    """

    def __init__(self, rng: np.random.Generator, height: int, width: int) -> None:
        self.rng, self.height, self.width = rng, height, width
        self.unit = min(height, 0.75 * width)
        self.pixels: Field = np.zeros((height, width, 3), dtype=np.float32)
        self.sun = float(rng.choice([-1, 1]))
        self.fine, self.coarse = _fractals(rng, 0.7, 1.7)

    def box(self, top: float, bottom: float, left: float, right: float) -> Box:
        """The pixels within some bounds and the picture; one at least."""
        rows = np.clip([top - 2, bottom + 2], (0, 1), (self.height - 1, self.height)).astype(int)
        columns = np.clip([left - 2, right + 2], (0, 1), (self.width - 1, self.width)).astype(int)
        return slice(*rows.tolist()), slice(*columns.tolist())

    def grid(self, box: Box) -> tuple[Field, Field]:
        """Rows (h, 1) and columns (1, w) of a box."""
        y, x = (np.arange(span.start, span.stop, dtype=np.float32) for span in box)
        return y[:, None], x[None, :]

    def noise(self, texture: Field, y: Any, x: Any, cell: float) -> Field:
        """Noise of deviation 1 at places in pixels; ``cell`` pixels are one of the texture."""
        down, right = self.rng.uniform(0, TEXTURE, 2).astype(np.float32)
        at = np.broadcast_arrays(y / cell + down, x / cell + right)
        return ndimage.map_coordinates(texture, at, order=1, mode="grid-wrap")

    def tinted(self, colour: Colour, spread: float = 0.12) -> Field:
        """(3,) a colour somewhat lighter or darker, and a little off."""
        return _f4(colour * (self.rng.normal(1, spread) + self.rng.normal(0, spread / 4, 3)))

    def blend(self, box: Box, alpha: Field, colour: Any) -> None:
        """Lay a colour (3,) or (h, w, 3) over a box, as thick as ``alpha`` (h, w) in 0 … 1."""
        there = self.pixels[box]
        there += _f4(alpha)[..., None] * (_f4(colour) - there)

    def solid(self, box: Box, distance: Field, height: Field, colour: Any) -> Field:
        """Paint a thing in the sun; (h, w) how much of each of the picture's pixels it covers."""
        cover = np.zeros((self.height, self.width), dtype=np.float32)
        cover[box] = _edge(distance)
        self.blend(box, cover[box], colour * self.lit(height)[..., None])
        return cover

    def lit(self, height: Field, soft: float = 1.0) -> Field:
        """(h, w) brightness of a surface of some height (h, w), by a sun from one side above."""
        down, right = np.gradient(ndimage.gaussian_filter(_f4(height), soft))
        facing = 0.66 - 0.45 * self.sun * right + 0.6 * down
        return 0.55 + 0.7 * np.maximum(facing, 0) / np.sqrt(1 + down**2 + right**2)

    def darken(self, box: Box, shadow: Field) -> None:
        """Shadow (h, w) in 0 … 1, a little blue."""
        self.pixels[box] *= 1 - _f4(shadow)[..., None] * _f4((0.62, 0.58, 0.5))

    def blur(self, sigma: float) -> None:
        self.pixels = ndimage.gaussian_filter(self.pixels, (sigma, sigma, 0), truncate=3)

    def develop(self) -> NDArray[np.uint8]:
        """As a camera would: a soft lens, dark corners, a cast, grain."""
        self.blur(0.0019 * self.unit)
        y, x = np.ogrid[-1 : 1 : self.height * 1j, -1 : 1 : self.width * 1j]
        exposure = self.rng.uniform(0.98, 1.1) * (1 - 0.09 * (y**2 + x**2))
        cast = _f4(1 + self.rng.normal(0, 0.02, 3))
        grain = self.rng.standard_normal(self.pixels.shape, dtype=np.float32)
        light = self.pixels * _f4(exposure)[..., None]
        light *= 255 * cast
        light += 3.3 * grain
        return np.clip(light, 0, 255, out=light).astype(np.uint8)


def _f4(values: Any) -> Field:
    return np.asarray(values, dtype=np.float32)


def _fractals(rng: np.random.Generator, *powers: float) -> Iterator[Field]:
    """(TEXTURE, TEXTURE) periodic noise of deviation 1, its amplitudes falling as 1/f^power."""
    frequency = np.hypot(np.fft.fftfreq(TEXTURE)[:, None], np.fft.rfftfreq(TEXTURE))
    frequency[0, 0] = np.inf
    white = np.fft.rfft2(rng.standard_normal((TEXTURE, TEXTURE), dtype=np.float32))
    for power in powers:
        noise = np.fft.irfft2(white / _f4(frequency**power))
        yield _f4(noise / noise.std())


def _edge(distance: Field) -> Field:
    """(h, w) share of each pixel that is inside an outline."""
    return np.clip(0.5 - distance, 0, 1)


def _mix(first: Any, second: Any, share: Any) -> Field:
    """Colours between two, ``share`` (h, w) of the second."""
    first, second = _f4(first), _f4(second)
    return first + _f4(share)[..., None] * (second - first)


# Landscapes


@dataclass(frozen=True)
class _Land:
    """Colours of a landscape, and about how much of what stands in it.

    sky : above, and at the horizon;  ground : far, near, and in patches
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
    _Land(  # meadow
        ((0.42, 0.62, 0.86), (0.80, 0.88, 0.93)),
        (0.36, 0.48, 0.40),
        ((0.60, 0.66, 0.38), (0.34, 0.47, 0.18), (0.50, 0.56, 0.24)),
        (0.42, 0.56, 0.20),
        (0.26, 0.37, 0.15),
        *(1200, 1, 5, 3),
    ),
    _Land(  # savannah
        ((0.50, 0.66, 0.82), (0.93, 0.88, 0.78)),
        (0.58, 0.55, 0.52),
        ((0.80, 0.72, 0.50), (0.70, 0.57, 0.33), (0.78, 0.68, 0.46)),
        (0.76, 0.66, 0.36),
        (0.40, 0.43, 0.20),
        *(900, 2, 4, 5),
    ),
    _Land(  # snow
        ((0.60, 0.70, 0.82), (0.88, 0.90, 0.93)),
        (0.44, 0.52, 0.60),
        ((0.86, 0.89, 0.93), (0.91, 0.93, 0.96), (0.82, 0.86, 0.93)),
        (0.50, 0.46, 0.36),
        (0.20, 0.30, 0.20),
        *(130, 4, 4, 4),
        grit=0.03,
    ),
    _Land(  # forest
        ((0.72, 0.80, 0.58), (0.86, 0.88, 0.68)),
        (0.30, 0.42, 0.20),
        ((0.56, 0.54, 0.30), (0.46, 0.36, 0.21), (0.40, 0.45, 0.19)),
        (0.46, 0.40, 0.18),
        (0.26, 0.37, 0.15),
        *(700, 11, 6, 2),
        wooded=True,
    ),
)


def _draw_sky(canvas: _Canvas, land: _Land, horizon: float) -> None:
    """Clouds, or foliage against the light; before them two ranges of hills, the farther paler."""
    box = canvas.box(0, horizon, 0, canvas.width)
    y, x = canvas.grid(box)
    canvas.pixels[box] = _mix(*land.sky, np.clip(y / horizon, 0, 1))
    stretch, fine = (1.0, 400) if land.wooded else (2.2, 200)
    clouds = canvas.noise(canvas.coarse, y * stretch, x, canvas.unit / fine)
    colour = 1.4 * _f4(land.leaves) if land.wooded else _f4((0.98, 0.98, 0.97))
    canvas.blend(box, np.clip(0.5 * clouds + 0.3 * land.wooded, 0, 0.8), colour)
    mottled = 1 + 0.07 * canvas.noise(canvas.fine, y, x, canvas.unit / 150)[..., None]
    for depth in (0.55, 0.2):
        ridge = canvas.noise(canvas.coarse, 0 * x, x, canvas.unit / 90)
        trees = canvas.noise(canvas.fine, 0 * x, x, canvas.unit / 240)
        line = horizon - canvas.unit * (0.02 + 0.14 * depth + 0.035 * ridge + 0.012 * trees)
        colour = _mix(land.hills, land.sky[1], depth) * canvas.rng.uniform(0.9, 1.1)
        canvas.blend(box, _edge(line - y), mottled * colour)


def _draw_ground(canvas: _Canvas, land: _Land, horizon: float) -> None:
    """Ground in perspective, with patches and grit as noise that lies flat, and grass."""
    box = canvas.box(horizon, canvas.height, 0, canvas.width)
    y, x = canvas.grid(box)
    near = np.maximum(y - horizon, 0) / (canvas.height - horizon)
    away = 240 / canvas.unit / (near + 0.12)
    across = (x - canvas.width / 2) * away
    patches = canvas.noise(canvas.coarse, 300 * away, across, 5.0)
    grit = land.grit * (0.3 + near) * canvas.noise(canvas.fine, 500 * away, across, 1.4)
    colour = _mix(
        _mix(*land.ground[:2], near**0.7), land.ground[2], np.clip(0.4 + 0.5 * patches, 0, 1)
    )
    canvas.blend(box, _edge(horizon - y), colour * (1 + grit[..., None]))
    _draw_grass(canvas, land, horizon)


def _draw_grass(canvas: _Canvas, land: _Land, horizon: float, before: float | None = None) -> None:
    """Tufts of bent blades all over the ground, or some in front of what stands on a row."""
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
    canvas.blend((slice(None), slice(None)), alpha, _f4(shade)[..., None] * _f4(land.grass))


def _scatter(
    canvas: _Canvas, y: Field, x: Field, thickness: Field, light: Field
) -> tuple[Field, Field]:
    """(alpha, brightness), both (h, w), of strokes: each point covers the four pixels about it.

    y, x, thickness : (points, strokes);  light : (strokes,)
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


# Things that stand about


class _Spot(NamedTuple):
    """Where a thing stands: on which row, about which column; and how large it is."""

    base: float
    centre: float
    radius: float


def _draw_clutter(canvas: _Canvas, land: _Land, horizon: float) -> None:
    """Trunks, bushes and stones, the farther first and smaller; all in the background."""
    rng, unit = canvas.rng, canvas.unit
    for centre in rng.uniform(0, canvas.width, rng.poisson(land.trunks)).tolist():
        base, radius = horizon + unit * rng.uniform(0, 0.12), unit * rng.uniform(0.012, 0.034)
        _draw_trunk(canvas, land, _Spot(base, centre, radius))
    for thing, mean, least, most in (
        (_draw_bush, land.bushes, 0.05, 0.13),
        (_draw_boulder, land.stones, 0.015, 0.05),
    ):
        for near in (np.sort(rng.uniform(0, 1, rng.poisson(mean))) ** 1.6).tolist():
            base = horizon + (0.02 + 0.5 * near) * (canvas.height - horizon)
            radius = unit * rng.uniform(least, most) * (0.5 + near)
            thing(canvas, land, _Spot(base, rng.uniform(0, canvas.width), radius))


def _beside(canvas: _Canvas, animal: _Animal, horizon: float) -> _Spot:
    """A place beside an animal where there is most room, or a little behind it."""
    rng, unit = canvas.rng, canvas.unit
    radius, share = unit * rng.uniform(0.14, 0.19), rng.uniform(0.4, 0.6)
    room = canvas.width - animal.right
    if animal.left > room:
        centre = max(share * animal.left, 1.1 * radius)
    else:
        centre = canvas.width - max(share * room, 1.1 * radius)
    base = animal.ground - unit * rng.uniform(0.02, 0.2)
    return _Spot(max(base, horizon + radius), centre, radius)


def _draw_shadow(canvas: _Canvas, spot: _Spot) -> None:
    """A soft shadow on the ground under a thing, away from the sun."""
    base, centre, radius = spot
    centre -= 0.35 * canvas.sun * radius
    box = canvas.box(base - radius, base + radius, centre - 3 * radius, centre + 3 * radius)
    y, x = canvas.grid(box)
    far = ((y - base) / (0.22 * radius)) ** 2 + ((x - centre) / (1.15 * radius)) ** 2
    canvas.darken(box, 0.85 * np.exp(-0.7 * far))


def _draw_trunk(canvas: _Canvas, land: _Land, spot: _Spot) -> None:
    """A tree's trunk, its crown out of the picture."""
    base, centre, radius = spot
    box = canvas.box(0, base, centre - 3 * radius, centre + 3 * radius)
    y, x = canvas.grid(box)
    bend = radius * 0.5 * canvas.noise(canvas.coarse, y, 0 * y, canvas.unit / 80)
    wide = radius * (1 + 0.5 * np.exp((y - base) / (2 * radius)))
    across = (x - centre - bend) / wide
    bark = 1 + 0.16 * canvas.noise(canvas.fine, y / 4, x, canvas.unit / 240)
    colour = _mix((0.42, 0.33, 0.25), land.hills, canvas.rng.uniform(0.1, 0.6))
    light = bark * (0.65 + 0.3 * canvas.sun * across)
    alpha = _edge((np.abs(across) - 1) * wide) * _edge(y - base)
    canvas.blend(box, alpha, light[..., None] * colour)


def _lump(canvas: _Canvas, spot: _Spot, flat: float, rough: float) -> tuple[Box, Field, Field]:
    """(box, distance, height) of a rough round thing, ``flat`` times as high as wide."""
    base, centre, radius = spot
    tall = radius * flat
    box = canvas.box(base - 2.4 * tall, base, centre - 1.4 * radius, centre + 1.4 * radius)
    y, x = canvas.grid(box)
    edge = 1 + rough * canvas.noise(canvas.coarse, y, x, radius / 40)
    far = np.hypot((y - base) / tall + 0.8, (x - centre) / radius) / np.maximum(edge, 0.6)
    distance = np.maximum((far - 1) * min(radius, tall), y - base)
    return box, distance, 0.8 * radius * np.sqrt(np.maximum(1 - far**2, 0))


def _draw_bush(canvas: _Canvas, land: _Land, spot: _Spot) -> Field:
    _draw_shadow(canvas, spot)
    box, distance, height = _lump(canvas, spot, 0.85, 0.16)
    leaves = canvas.noise(canvas.fine, *canvas.grid(box), canvas.unit / 260)
    colour = canvas.tinted(land.leaves) * (1.1 + 0.33 * leaves)[..., None]
    size = canvas.unit / 240
    return canvas.solid(box, distance + 1.5 * size * leaves, height + 1.2 * size * leaves, colour)


def _draw_boulder(canvas: _Canvas, land: _Land, spot: _Spot) -> Field:
    _draw_shadow(canvas, spot)
    box, distance, height = _lump(canvas, spot, canvas.rng.uniform(0.6, 0.9), 0.1)
    veins = canvas.noise(canvas.coarse, *canvas.grid(box), canvas.unit / 240)
    stone = _mix((0.50, 0.49, 0.48), land.ground[1], canvas.rng.uniform(0, 0.25))
    colour = stone * (1 + 0.12 * veins - 0.25 * np.exp(-30 * veins**2))[..., None]
    return canvas.solid(box, distance, height + 0.05 * spot.radius * veins, colour)


def _draw_bale(canvas: _Canvas, land: _Land, spot: _Spot) -> Field:
    """A round bale of straw, its wound face towards us."""
    base, centre, radius = spot
    _draw_shadow(canvas, _Spot(base, centre, 1.3 * radius))
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


def _draw_barrel(canvas: _Canvas, land: _Land, spot: _Spot) -> Field:
    """An upright barrel: staves, three hoops, a lid seen a little from above."""
    base, centre, radius = spot
    _draw_shadow(canvas, spot)
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
        colour = _mix(colour, (0.33, 0.33, 0.35), _edge(hoop * tall))
    top = _edge(y - rim - curve)
    colour = _mix(colour, 1.2 * hue * (1 + 0.1 * grain[..., None]), top)
    height = (1 - top) * radius * np.sqrt(1 - across**2)
    return canvas.solid(box, distance, height, colour)


THINGS: tuple[Callable[[_Canvas, _Land, _Spot], Field], ...]
THINGS = (_draw_bush, _draw_boulder, _draw_bale, _draw_barrel)


# Animals


@dataclass(frozen=True)
class _Kind:
    """A kind of animal: lengths in those of its trunk, least and most; angles in degrees.

    coat : its ground and its markings;  lift : of the neck above the horizontal
    """

    pattern: str
    coat: tuple[Colour, Colour]
    neck: tuple[float, float]
    lift: tuple[float, float]
    legs: float
    depth: float
    slope: float = 0.0
    horns: float = 0.0


ZEBRA = ((0.88, 0.83, 0.74), (0.12, 0.10, 0.10))
GIRAFFE = ((0.90, 0.78, 0.55), (0.56, 0.32, 0.14))
COW = ((0.91, 0.88, 0.84), (0.24, 0.15, 0.11))
KINDS = (
    _Kind("stripes", ZEBRA, (0.42, 0.5), (15, 65), legs=0.72, depth=0.24),
    _Kind("cells", GIRAFFE, (0.65, 0.85), (45, 72), legs=0.88, depth=0.235, slope=0.07, horns=0.09),
    _Kind("blotches", COW, (0.26, 0.34), (-5, 35), legs=0.62, depth=0.29, horns=0.13),
)


class _Bone(NamedTuple):
    """A tapered limb between two points (x, y), and its radius at either."""

    start: Field
    end: Field
    thick: float
    thin: float


def _skeleton(rng: np.random.Generator, kind: _Kind) -> dict[str, list[_Bone]]:
    """Limbs of an animal that looks to the right; y upwards from the ground, trunk of length 1."""
    hip, deep = kind.legs + 0.16, kind.depth
    chest, rump = _at(0.36, hip + kind.slope), _at(-0.36, hip + 0.02 - kind.slope)
    lift, half = np.radians(rng.uniform(*kind.lift)), rng.uniform(*kind.neck) / 2
    root = chest + _at(0.06, 0.08)
    bend = root + half * _at(np.cos(lift - 0.2), np.sin(lift - 0.2))
    poll = bend + half * _at(np.cos(lift + 0.15), np.sin(lift + 0.15))
    bow = max(lift - np.radians(rng.uniform(75, 100)), -1.35)
    nose = poll + 0.27 * _at(np.cos(bow), np.sin(bow))
    nape = 0.09 * _at(-np.sin(lift), np.cos(lift))
    swing, tail = rng.uniform(-0.16, 0.16, 4), rump + _at(rng.uniform(-0.4, -0.21), -0.12)
    ear, horn = _at(-0.09, 0.19), _at(0.07, 0.08 + kind.horns)
    return {
        "far": [
            *_leg(chest[0] - 0.1, hip, swing[0], 0.03),
            *_leg(rump[0] + 0.1, hip, swing[1], -0.042),
        ],
        "tail": [
            _Bone(rump + _at(-0.17, 0.12), tail, 0.035, 0.03),
            _Bone(tail, tail - _at(0, 0.28), 0.03, 0.055),
        ],
        "mane": [
            _Bone(root + nape, bend + nape, 0.08, 0.07),
            _Bone(bend + nape, poll + 0.7 * nape, 0.07, 0.06),
        ],
        "far ear": [_Bone(poll + _at(-0.02, 0.07), poll + ear, 0.032, 0.03)],
        "horn": [_Bone(poll + _at(0.04, 0.06), poll + horn, 0.03, 0.024)] * (kind.horns > 0),
        "trunk": [
            _Bone(rump, _at(0, hip - 0.03), 0.9 * deep, deep),
            _Bone(_at(0, hip - 0.03), chest, deep, 0.95 * deep),
        ],
        "neck": [
            _Bone(root, bend, 0.17, 0.125),
            _Bone(bend, poll, 0.125, 0.1),
            _Bone(poll, nose, 0.105, 0.068),
        ],
        "near": [
            *_leg(chest[0] + 0.02, hip, swing[2], 0.03),
            *_leg(rump[0] - 0.02, hip, swing[3], -0.042),
        ],
        "near ear": [_Bone(poll + _at(0.03, 0.07), poll + _at(0.03, 0.2), 0.032, 0.03)],
    }


def _at(x: float, y: float) -> Field:
    return np.array([x, y])


def _leg(x: float, hip: float, swing: float, knee: float) -> list[_Bone]:
    bent = _at(x + 0.35 * swing + knee, 0.46 * hip)
    return [
        _Bone(_at(x, hip - 0.04), bent, 0.14, 0.07),
        _Bone(bent, _at(x + swing, 0.04), 0.066, 0.055),
    ]


class _Limb(NamedTuple):
    """A bone's flesh: distance, height, and pixels from the bone's start along it, all (h, w)."""

    distance: Field
    height: Field
    along: Field


def _limb(y: Field, x: Field, bone: _Bone) -> _Limb:
    right, down = (bone.end - bone.start).tolist()
    x, y = x - float(bone.start[0]), y - float(bone.start[1])
    share = np.clip((y * down + x * right) / (down**2 + right**2), 0, 1)
    radius = bone.thick + share * (bone.thin - bone.thick)
    far = np.sqrt((y - share * down) ** 2 + (x - share * right) ** 2)  # hypot is slow
    height = np.sqrt(np.maximum(radius**2 - far**2, 0))
    return _Limb(far - radius, height, share * float(np.hypot(down, right)))


def _grown_together(limbs: list[_Limb], soft: float) -> tuple[Field, Field]:
    """(distance, height) of limbs as one, the corners between them filled over ``soft`` pixels."""
    distance, height, _ = limbs[0]
    for limb in limbs[1:]:
        close = np.maximum(soft - np.abs(distance - limb.distance), 0)
        distance = np.minimum(distance, limb.distance) - close**2 / (4 * soft)
        height = np.maximum(height, limb.height)
    return distance, height


class _Animal:
    """An animal at its place, its limbs in pixels.

    size : of its trunk;  left, right : its outermost columns;  ground : the row it stands on
    """

    def __init__(self, canvas: _Canvas) -> None:
        rng, self.canvas = canvas.rng, canvas
        self.kind = KINDS[rng.integers(len(KINDS))]
        parts = _skeleton(rng, self.kind)
        bones = [bone for part in parts.values() for bone in part]
        ends = np.array([(bone.start, bone.end) for bone in bones])
        reach = np.array([(bone.thick, bone.thin) for bone in bones])[..., None]
        back = float((ends - reach)[..., 0].min())
        front, tall = (ends + reach).max((0, 1)).tolist()
        wide = front - back
        height, width = canvas.height, canvas.width
        self.size = min(
            rng.uniform(0.65, 0.84) * height / tall, rng.uniform(0.53, 0.61) * width / wide
        )
        self.left = rng.uniform(0.03 * width, 0.97 * width - self.size * wide)
        self.right = self.left + self.size * wide
        self.ground = rng.uniform(
            max(0.78 * height, self.size * tall + 0.04 * height), 0.95 * height
        )
        self.faces = int(rng.choice([-1, 1]))
        edge = self.left if self.faces > 0 else self.right
        self.origin = edge - self.faces * self.size * back
        self.box = canvas.box(self.ground - self.size * tall, self.ground, self.left, self.right)
        self.y, self.x = canvas.grid(self.box)
        self.bones = {name: [self._placed(bone) for bone in part] for name, part in parts.items()}
        self.limbs = {
            name: [_limb(self.y, self.x, bone) for bone in part]
            for name, part in self.bones.items()
        }

    def _placed(self, bone: _Bone) -> _Bone:
        origin, scale = _at(self.origin, self.ground), self.size * _at(self.faces, -1)
        ends = (origin + scale * bone.start, origin + scale * bone.end)
        return _Bone(*ends, self.size * bone.thick, self.size * bone.thin)

    def draw(self) -> Field:
        """Paint it and its shadow; (h, w) how much of each of the picture's pixels it covers."""
        canvas, limbs = self.canvas, self.limbs
        coat = self._coat()
        hair, horn = 0.8 * _f4(self.kind.coat[1]), _f4((0.72, 0.66, 0.55))
        layers: list[tuple[list[_Limb], Field]] = [
            (limbs["far"], 0.62 * coat),
            (limbs["tail"], 0.9 * hair),
            (limbs["mane"], hair),
            (limbs["far ear"], 0.75 * coat),
            (limbs["horn"], horn),
            (limbs["trunk"] + limbs["neck"] + limbs["near"], coat),
            (limbs["near ear"], coat),
        ]
        shapes = [
            (*_grown_together(part, 0.05 * self.size), colour) for part, colour in layers if part
        ]
        cover = np.zeros((canvas.height, canvas.width), dtype=np.float32)
        cover[self.box] = np.max([_edge(distance) for distance, _, _ in shapes], axis=0)
        self._cast_shadow(cover)
        fur = 1 + 0.045 * canvas.noise(canvas.fine, self.y, self.x, canvas.unit / 300)
        for distance, height, colour in shapes:
            light = fur * canvas.lit(height, 0.012 * self.size)
            canvas.blend(self.box, _edge(distance), colour * light[..., None])
        self._draw_eye()
        return cover

    def _coat(self) -> Field:
        """(h, w, 3) colours of the coat before light falls on it; muzzle and hooves are dark."""
        marked = {"stripes": self._stripes, "cells": self._cells, "blotches": self._blotches}
        ground, markings = (self.canvas.tinted(colour, 0.05) for colour in self.kind.coat)
        coat = _mix(ground, markings, marked[self.kind.pattern]())
        dark = _f4((0.22, 0.18, 0.17))
        head = self.limbs["neck"][2]
        muzzle = np.clip(30 * head.along / self.size - 5.8, 0, 0.85) * (head.distance < 1)
        hoof = np.clip(50 * (self.y - self.ground) / self.size + 4.5, 0, 1)
        return _mix(_mix(coat, dark, muzzle), dark, hoof)

    def _stripes(self) -> Field:
        """Stripes one after another along trunk and neck, and down the legs."""
        size = self.size
        ahead, down = self.faces * (self.x - self.origin) + 0 * self.y, self.y - self.ground
        ways = [(limb, ahead, 1.0) for limb in self.limbs["trunk"]]
        reached = 0.35 * size
        for limb in self.limbs["neck"]:
            ways.append((limb, reached + limb.along, 1.0))
            reached += float(limb.along.max())
        ways += [(limb, down, 0.4) for limb in self.limbs["near"] + self.limbs["far"]]
        weights = [
            share * np.exp(np.clip(-limb.distance / (0.06 * size), -16, 8))
            for limb, _, share in ways
        ]
        total = sum(weight * way for weight, (_, way, _) in zip(weights, ways, strict=True))
        warp = 0.035 * self.canvas.noise(self.canvas.coarse, self.y, self.x, size / 70)
        turns = self.canvas.rng.uniform(7.5, 9.5) * (total / sum(weights) / size + warp)
        return np.clip(0.6 + 2.2 * np.sin(2 * np.pi * turns), 0, 1)

    def _cells(self) -> Field:
        """Dark cells about jittered points, their seams light."""
        rng, cell = self.canvas.rng, self.size * self.canvas.rng.uniform(0.14, 0.18)
        y, x = np.broadcast_arrays(self.y / cell, self.x / cell)
        top, left = np.floor(y).astype(int), np.floor(x).astype(int)
        jitter = rng.uniform(0.1, 0.9, (2, 64, 64)).astype(np.float32)
        first = second = np.full(y.shape, 9, dtype=np.float32)
        for row in (top - 1, top, top + 1):
            for column in (left - 1, left, left + 1):
                down, right = jitter[:, row % 64, column % 64]
                far = np.sqrt((_f4(row) - y + down) ** 2 + (_f4(column) - x + right) ** 2)
                second = np.minimum(second, np.maximum(first, far))
                first = np.minimum(first, far)
        return np.clip(7 * (second - first) - 0.84, 0, 1)

    def _blotches(self) -> Field:
        field = self.canvas.noise(self.canvas.coarse, self.y, self.x, self.size / 80)
        trunk = np.minimum(*(limb.distance for limb in self.limbs["trunk"])) < 0
        level = np.quantile(field[trunk], self.canvas.rng.uniform(0.35, 0.6))
        return np.clip(0.5 + 6 * (field - float(level)), 0, 1)

    def _cast_shadow(self, cover: Field) -> None:
        """The outline laid on the ground: pressed flat, slanted away from the sun, blurred."""
        canvas, size = self.canvas, self.size
        _draw_shadow(canvas, _Spot(self.ground, (self.left + self.right) / 2, 0.5 * size))
        box = canvas.box(self.ground - 0.5 * size, self.ground + 0.1 * size, 0, canvas.width)
        y, x = canvas.grid(box)
        above = self.ground - y
        at = np.broadcast_arrays(self.ground - 4.5 * above, x + 0.9 * canvas.sun * above)
        shadow = ndimage.map_coordinates(cover, at, order=1)
        canvas.darken(box, 0.7 * ndimage.gaussian_filter(shadow, (0.012 * size, 0.025 * size)))

    def _draw_eye(self) -> None:
        head, size = self.bones["neck"][2], self.size
        x, y = (0.7 * head.start + 0.3 * head.end - _at(0, 0.02 * size)).tolist()
        box = self.canvas.box(y - 0.04 * size, y + 0.04 * size, x - 0.04 * size, x + 0.04 * size)
        rows, columns = self.canvas.grid(box)
        for up, radius, colour in ((0, 0.026, (0.05, 0.04, 0.04)), (0.01, 0.008, (0.9, 0.9, 0.9))):
            far = np.hypot(rows - y + up * size, columns - x)
            self.canvas.blend(box, _edge(far - radius * size), colour)
