"""Long-legged animals with patterned coats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import ndimage

from gpgc_dask.demo.canvas import Canvas, Colour, Field, edge, float32, mix
from gpgc_dask.demo.things import Spot, draw_shadow

__all__ = ["Animal"]


@dataclass(frozen=True)
class _Kind:
    """A kind of animal: lengths relative to its trunk, as ranges; angles in degrees.

    ``coat`` has the colours of ground and markings, ``lift`` the angle of the neck.
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
    """A tapered limb between two points (x, y), with its radius at each."""

    start: Field
    end: Field
    thick: float
    thin: float


def _skeleton(rng: np.random.Generator, kind: _Kind) -> dict[str, list[_Bone]]:
    """Limbs of an animal that faces right; y points up from the ground, the trunk has length 1."""
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
    """Shape of a limb: distance, height, and pixels from its start along it, all (h, w)."""

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


def _join(limbs: list[_Limb], soft: float) -> tuple[Field, Field]:
    """(distance, height) of several limbs, joined smoothly over ``soft`` pixels."""
    distance, height, _ = limbs[0]
    for limb in limbs[1:]:
        close = np.maximum(soft - np.abs(distance - limb.distance), 0)
        distance = np.minimum(distance, limb.distance) - close**2 / (4 * soft)
        height = np.maximum(height, limb.height)
    return distance, height


class Animal:
    """An animal in a picture, in pixels.

    Attributes
    ----------
    size : float
        Length of the trunk.
    left, right : float
        Outermost columns.
    ground : float
        Row it stands on.
    """

    def __init__(self, canvas: Canvas) -> None:
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
        end = self.left if self.faces > 0 else self.right
        self.origin = end - self.faces * self.size * back
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
        """Paint the animal and its shadow; (h, w) the share of each pixel that it covers."""
        canvas, limbs = self.canvas, self.limbs
        coat = self._coat()
        hair, horn = 0.8 * float32(self.kind.coat[1]), float32((0.72, 0.66, 0.55))
        layers: list[tuple[list[_Limb], Field]] = [
            (limbs["far"], 0.62 * coat),
            (limbs["tail"], 0.9 * hair),
            (limbs["mane"], hair),
            (limbs["far ear"], 0.75 * coat),
            (limbs["horn"], horn),
            (limbs["trunk"] + limbs["neck"] + limbs["near"], coat),
            (limbs["near ear"], coat),
        ]
        shapes = [(*_join(part, 0.05 * self.size), colour) for part, colour in layers if part]
        cover = np.zeros((canvas.height, canvas.width), dtype=np.float32)
        cover[self.box] = np.max([edge(distance) for distance, _, _ in shapes], axis=0)
        self._cast_shadow(cover)
        fur = 1 + 0.045 * canvas.noise(canvas.fine, self.y, self.x, canvas.unit / 300)
        for distance, height, colour in shapes:
            light = fur * canvas.lit(height, 0.012 * self.size)
            canvas.blend(self.box, edge(distance), colour * light[..., None])
        self._draw_eye()
        return cover

    def _coat(self) -> Field:
        """(h, w, 3) colours of the coat without light; muzzle and hooves are dark."""
        marked = {"stripes": self._stripes, "cells": self._cells, "blotches": self._blotches}
        ground, markings = (self.canvas.tinted(colour, 0.05) for colour in self.kind.coat)
        coat = mix(ground, markings, marked[self.kind.pattern]())
        dark = float32((0.22, 0.18, 0.17))
        head = self.limbs["neck"][2]
        muzzle = np.clip(30 * head.along / self.size - 5.8, 0, 0.85) * (head.distance < 1)
        hoof = np.clip(50 * (self.y - self.ground) / self.size + 4.5, 0, 1)
        return mix(mix(coat, dark, muzzle), dark, hoof)

    def _stripes(self) -> Field:
        """Stripes along trunk and neck, and down the legs."""
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
        """Dark cells around jittered points, with light seams."""
        rng, cell = self.canvas.rng, self.size * self.canvas.rng.uniform(0.14, 0.18)
        y, x = np.broadcast_arrays(self.y / cell, self.x / cell)
        top, left = np.floor(y).astype(int), np.floor(x).astype(int)
        jitter = rng.uniform(0.1, 0.9, (2, 64, 64)).astype(np.float32)
        first = second = np.full(y.shape, 9, dtype=np.float32)
        for row in (top - 1, top, top + 1):
            for column in (left - 1, left, left + 1):
                down, right = jitter[:, row % 64, column % 64]
                far = np.sqrt((float32(row) - y + down) ** 2 + (float32(column) - x + right) ** 2)
                second = np.minimum(second, np.maximum(first, far))
                first = np.minimum(first, far)
        return np.clip(7 * (second - first) - 0.84, 0, 1)

    def _blotches(self) -> Field:
        field = self.canvas.noise(self.canvas.coarse, self.y, self.x, self.size / 80)
        trunk = np.minimum(*(limb.distance for limb in self.limbs["trunk"])) < 0
        level = np.quantile(field[trunk], self.canvas.rng.uniform(0.35, 0.6))
        return np.clip(0.5 + 6 * (field - float(level)), 0, 1)

    def _cast_shadow(self, cover: Field) -> None:
        """Draw the shadow: the outline flattened, slanted away from the sun and blurred."""
        canvas, size = self.canvas, self.size
        draw_shadow(canvas, Spot(self.ground, (self.left + self.right) / 2, 0.5 * size))
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
            self.canvas.blend(box, edge(far - radius * size), colour)
