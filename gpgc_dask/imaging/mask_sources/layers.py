"""Several files per photo that make up its mask: one per object or class."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from gpgc_dask.core.errors import InputError, Problem, UnusableFileError
from gpgc_dask.imaging.class_tables import VOID_NAMES
from gpgc_dask.imaging.files import Pair, by_stem, find_images
from gpgc_dask.imaging.mask_sources.base import Item, Mask, MaskSource, file_stamp
from gpgc_dask.imaging.mask_sources.folder import path_within
from gpgc_dask.imaging.mask_sources.layouts import SEPARATORS, split_layer
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat, read_mask
from gpgc_dask.imaging.photos import Orientation

__all__ = ["LayerFolder", "LayerMask"]

BACKGROUND, FOREGROUND = "background", "foreground"

NUMBER = re.compile(rf"[{re.escape(SEPARATORS)}]*\d+$")
"""Number of an object at the end of a layer's name."""


@dataclass(frozen=True)
class LayerMask:
    """The layers of one photo.

    Attributes
    ----------
    layers : tuple of (str, int)
        Path, and code of the class, or VOID.
    """

    layers: tuple[tuple[str, int], ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return tuple(path for path, _ in self.layers)

    def read(self, orientation: Orientation) -> Codes:
        """Draw the layers, the largest first, so that small ones in front of it are visible.

        Of layers of one size the later name is in front, and void is in front of all.
        """
        drawn: list[tuple[bool, int, int, Any]] = []
        for number, (path, code) in enumerate(self.layers):
            try:
                inside = read_mask(path, MaskFormat(), orientation) == 1
            except UnusableFileError as error:
                text = str(error)
                name = f"{path}: "
                raise UnusableFileError(
                    text if name in text else f"layer {name}{text.removeprefix('mask ')}"
                ) from None
            area = int(np.count_nonzero(inside))
            drawn.append((code == VOID, -area, number, np.packbits(inside, axis=1)))
        codes = np.zeros((orientation.height, orientation.width), dtype=np.uint8)
        for _, _, number, packed in sorted(drawn, key=lambda layer: layer[:3]):
            inside = np.unpackbits(packed, axis=1, count=orientation.width).view(bool)
            codes[inside] = self.layers[number][1]
        return codes


class LayerFolder(MaskSource):
    """A folder of photos and a folder with several files per photo: its objects or classes.

    The layers of a/horse.jpg are named a/horse_LAYER.png, a/horse/LAYER.png or LAYER/a/horse.png. A
    number at the end of LAYER is that of an object: what is left of the name is its class. In each
    file 0 is outside, and the other value inside.
    """

    options_used = frozenset(("classes", "void", "colours", "by_colour"))
    names: Sequence[str] = ()

    @property
    def mask_format(self) -> MaskFormat:
        """Background and the classes of the layers."""
        if self.options.classes:
            return self.options.mask_format
        if len(self.names) == 1:
            return MaskFormat(classes=((0, BACKGROUND), (255, self.names[0])))
        return MaskFormat(classes=tuple(enumerate((BACKGROUND, *self.names))))

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Find the layers of each photo."""
        photos = by_stem(find_images(self.images, leave_out=self.masks))
        found, unknown = _find_layers(photos, self.masks)
        used = {_class_name(layer) for layers in found.values() for layer, _ in layers}
        self.names = sorted(name for name in used if not _is_special(name))
        if found and not self.names and not self.options.classes:
            raise InputError(f"{self.masks} has no layer of an object or class, only background")
        codes = _codes(used, self.mask_format, self.masks)
        items, problems = [], [Problem(name, "layer without a photo") for name in unknown]
        for stem, names in photos.items():
            if len(names) > 1 or stem not in found:
                both = f"{' and '.join(names)} share their layers, {stem}: rename or remove one"
                lack = f"mask missing: there is no {stem}_LAYER.* or {stem}/LAYER.* in {self.masks}"
                problems += [Problem(name, both if len(names) > 1 else lack) for name in names]
                continue
            mask = _mask(found[stem], codes, self.masks)
            pair = Pair(names[0], str(Path(self.images) / names[0]), self.masks)
            stamps = " ".join(f"{path} {file_stamp(path)}" for path in mask.paths)
            digest = hashlib.sha256(stamps.encode(errors="replace")).hexdigest()[:16]
            items.append(Item(pair, f"{file_stamp(pair.image)} {digest}", mask))
        return items, problems

    @classmethod
    def restore(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> list[Mask | None]:
        """Find the layers that there are now."""
        masks = provenance["masks"]
        found, _ = _find_layers(by_stem(names), masks)
        used = {_class_name(layer) for layers in found.values() for layer, _ in layers}
        codes = _codes(used, MaskFormat.from_json(provenance["mask_format"]), masks)
        stems = [next(iter(by_stem([name]))) for name in names]
        return [_mask(found[stem], codes, masks) if stem in found else None for stem in stems]

    @classmethod
    def select(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> dict[PurePosixPath, Path | bytes]:
        """The files of the layers, in a folder ``masks``."""
        masks = provenance["masks"]
        found, _ = _find_layers(by_stem(names), masks)
        files = [str(Path(masks) / path) for layers in found.values() for _, path in layers]
        return {PurePosixPath("masks") / path_within(path, masks): Path(path) for path in files}


def _find_layers(
    photos: Mapping[str, Sequence[str]], masks: str
) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """{photo: (layer, path within the folder)}, and files without a photo."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    unknown = []
    for path in find_images(masks):
        stem = unicodedata.normalize("NFC", path[: -len(Path(path).suffix)])
        split = (stem, FOREGROUND) if stem in photos else split_layer(stem, photos)
        if split is None:
            unknown.append(path)
        else:
            found[split[0]].append((split[1], path))
    return dict(found), unknown


def _class_name(layer: str) -> str:
    """Name of a layer without the number of the object: car_2 is a car, 2 is foreground."""
    return NUMBER.sub("", layer).strip(SEPARATORS) or FOREGROUND


def _is_special(name: str) -> bool:
    return name.lower() in VOID_NAMES or name.lower() == BACKGROUND


def _codes(used: Iterable[str], mask_format: MaskFormat, masks: str) -> dict[str, int]:
    """{name of a class: its code}."""
    known = {name: code for code, name in enumerate(mask_format.names)}
    codes = {}
    for name in sorted(used):
        if name.lower() in VOID_NAMES:
            codes[name] = VOID
        elif name.lower() == BACKGROUND:
            codes[name] = 0
        elif name in known:
            codes[name] = known[name]
    unknown = sorted(set(used) - codes.keys())
    if unknown:
        raise InputError(
            f"{masks} has layers of {', '.join(unknown)}, which is not one of the classes "
            f"{', '.join(known)}: name it (--classes), or remove those files"
        )
    return codes


def _mask(layers: Iterable[tuple[str, str]], codes: Mapping[str, int], masks: str) -> LayerMask:
    return LayerMask(
        tuple((str(Path(masks) / path), codes[_class_name(layer)]) for layer, path in layers)
    )
