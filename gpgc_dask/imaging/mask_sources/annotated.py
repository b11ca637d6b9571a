"""Sources of annotated photos: what all formats with categories have in common.

A format is a subclass of :class:`AnnotationSource` that reads its files into photos. Photos are of
two kinds: :class:`ShapesPhoto` with outlines, and those with a picture of ids.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np

from gpgc_dask.core.errors import GpgcError, InputError, Problem, UnusableFileError
from gpgc_dask.core.paths import relative_path
from gpgc_dask.imaging.files import Pair, find_images
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.mask_sources.base import Item, Mask, MaskSource, file_stamp
from gpgc_dask.imaging.mask_sources.categories import ALL, choose_categories
from gpgc_dask.imaging.mask_sources.regions import Region
from gpgc_dask.imaging.masks import VOID, Codes, MaskFormat, check_size, make_upright
from gpgc_dask.imaging.objects import PhotoObject, make_object
from gpgc_dask.imaging.photos import Orientation, read_orientation

__all__ = [
    "AnnotatedPhoto",
    "AnnotationSource",
    "Annotations",
    "Shape",
    "ShapesMask",
    "ShapesPhoto",
    "merge_groups",
]


class AnnotatedPhoto(Protocol):
    """A photo as a file of annotations has it.

    Attributes
    ----------
    name : str
        Name of the photo, as the file has it.
    path : str
        File of its mask: its own, or the one that has them all.
    """

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    def labels(self) -> Collection[str]:
        """Categories of which it has an outline."""

    def check(self, categories: Collection[str]) -> None:
        """Raise an UnusableFileError if an annotation of these categories cannot be used."""

    def mask(self, codes: Mapping[str, int]) -> Mask:
        """Its mask, with the class codes of the chosen categories. Its repr has all it is made of.

        All others are background.
        """


@dataclass(frozen=True)
class Annotations:
    """What the files of a format contain.

    Attributes
    ----------
    images, masks : str
        Folder of photos, and file or folder of masks: those of the user, or more exact ones.
    photos : list of AnnotatedPhoto
        The annotated photos.
    categories : list of str
        All categories, in the order of the format.
    problems : list of Problem
        Files that cannot be used.
    background : bool
        Whether pixels without an annotation are background, and not void.
    """

    images: str
    masks: str
    photos: Sequence[AnnotatedPhoto]
    categories: Sequence[str]
    problems: list[Problem] = field(default_factory=list)
    background: bool = True


class AnnotationSource(MaskSource):
    """A folder of photos, and annotations of categories.

    One category is painted as 255, several as 1, 2, …; the background is 0. In formats that have
    void pixels these are 255, and the categories 1, 2, … always.
    """

    options_used = frozenset(("categories", "with_empty"))
    has_void = False
    categories: Sequence[str] = ()
    background = True

    @classmethod
    @abstractmethod
    def load(cls, images: str, masks: str) -> Annotations:
        """Read the files of the format.

        Raises
        ------
        InputError
            If there are none, or they are not of this format.
        """

    @property
    def mask_format(self) -> MaskFormat:
        """Background and the categories."""
        names = [*(["background"] if self.background else []), *self.categories]
        values = list(range(len(names))) if self.background else list(range(1, len(names) + 1))
        if len(self.categories) == 1 and not self.has_void:
            values = [0, 255]
        void = (255,) if self.has_void else ()
        return MaskFormat(classes=tuple(zip(values, names, strict=True)), void=void)

    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Find the photos, with ``with_empty=False`` those that show one of the categories."""
        content = self.load(self.images, self.masks)
        self.images, self.masks = content.images, content.masks
        used = {label for photo in content.photos for label in photo.labels()}
        source = (self.images, self.masks, self.options.format)
        chosen = self.options.categories
        try:
            self.categories = choose_categories(chosen, content.categories, used, source)
        except InputError:
            # Categories may be without annotations because of the files that cannot be used.
            if content.problems and chosen and {*chosen} <= {ALL, *content.categories}:
                return [], content.problems
            raise
        # A picture in which every pixel is of a category, or void, has no background.
        whole = len(self.categories) > 1 and set(self.categories) >= used
        self.background = content.background or not whole
        self.mask_format  # noqa: B018  (raises if there are too many categories)
        names, codes = ImageNames(find_images(self.images)), self._codes()
        items, problems, owner = [], list(content.problems), dict[str, str]()
        for photo in content.photos:
            if not (self.options.with_empty or set(self.categories) & set(photo.labels())):
                continue
            try:
                name = _find_photo(photo.name, names, self.masks, self.images)
                if name in owner:
                    raise UnusableFileError(
                        f"{owner[name]} and {photo.name} are annotations of one photo: keep one"
                    )
                owner[name] = photo.name
                photo.check(self.categories)
                mask = photo.mask(codes)
            except GpgcError as error:
                problems.append(Problem(photo.name, str(error)))
                continue
            pair = Pair(name, str(Path(self.images) / name), photo.path)
            digest = hashlib.sha256(repr(mask).encode(errors="replace")).hexdigest()[:16]
            items.append(Item(pair, f"{file_stamp(pair.image)} {digest}", mask))
        if not items and not problems:
            raise InputError(f"no image in {self.masks} shows {', '.join(self.categories)}")
        return items, problems

    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.categories, start=self.background)}

    def provenance(self) -> dict[str, Any]:
        """As of every source, the categories, and whether there is a background."""
        own = {"categories": list(self.categories), "background": self.background}
        return super().provenance() | own

    @classmethod
    def restore(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> list[Mask | None]:
        """Read the annotations again."""
        content = cls.load(provenance["images"], provenance["masks"])
        gone = set(provenance["categories"]) - set(content.categories)
        if gone:
            raise InputError(f"{content.masks} no longer has {', '.join(sorted(gone))}")
        first = int(provenance["background"])
        codes = {name: code for code, name in enumerate(provenance["categories"], start=first)}
        by_name: dict[str, AnnotatedPhoto] = {}
        known = ImageNames(names)
        for photo in content.photos:
            for name in known.matches(photo.name)[:1]:
                if photo.name == name or name not in by_name:
                    by_name[name] = photo
        return [by_name[name].mask(codes) if name in by_name else None for name in names]

    @classmethod
    def select(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> dict[PurePosixPath, Path | bytes]:
        """The masks as PNG files, in a folder ``masks``: values as in the dataset."""
        from gpgc_dask.imaging.painting import encode_picture

        fmt = MaskFormat.from_json(provenance["mask_format"])
        table = np.full(VOID + 1, fmt.void[0] if fmt.void else VOID, dtype=np.uint8)
        table[: len(fmt.values)] = fmt.values
        files: dict[PurePosixPath, Path | bytes] = {}
        for name, mask in zip(names, cls.restore(provenance, names, paths), strict=True):
            if mask is None:
                raise UnusableFileError(f"{provenance['masks']} no longer has the photo {name}")
            codes = mask.read(read_orientation(Path(provenance["images"]) / name))
            place = PurePosixPath("masks") / relative_path(name).with_suffix(".png")
            files[place] = bytes(encode_picture(table[codes]))
        return files


def _find_photo(text: str, names: ImageNames, masks: str, images: str) -> str:
    found = names.matches(text)
    if not found:
        raise UnusableFileError(f"image missing: {masks} names it but {images} lacks it")
    if len(found) > 1:
        raise UnusableFileError(
            f"{' and '.join(found[:2])} can be meant: keep the folders in the names of {masks}"
        )
    return found[0]


# -- outlines --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """An annotated shape.

    Attributes
    ----------
    label : str
        Its category.
    regions : tuple of Region
        Its outlines; none if it is a box, a line or a point, which is no mask.
    id : str
        Its id, unique in the dataset.
    kind : str
        What it is, for messages.
    """

    label: str
    regions: tuple[Region, ...]
    id: str = ""
    kind: str = "box"


def merge_groups(shapes: Iterable[tuple[str, Shape]]) -> Iterator[Shape]:
    """Shapes of one label and the same group, if it is not "", are one object of several parts."""
    parts: dict[tuple[str, str, str], list[Shape]] = defaultdict(list)
    for group, shape in shapes:
        own = "" if group and shape.regions else shape.id
        parts[shape.label, group, own].append(shape)
    for (label, _, _), own_parts in parts.items():
        regions = tuple(region for part in own_parts for region in part.regions)
        yield Shape(label, regions, own_parts[0].id, own_parts[0].kind)


@dataclass(frozen=True)
class ShapesPhoto:
    """A photo with annotated shapes, later ones in front.

    Attributes
    ----------
    name, path : str
        As of every :class:`AnnotatedPhoto`.
    shapes : tuple of Shape
        Its shapes.
    size : tuple of int, or None
        Height and width of the photo, if the file has them.
    """

    name: str
    path: str
    shapes: tuple[Shape, ...]
    size: tuple[int, int] | None = None

    def labels(self) -> Collection[str]:
        return {shape.label for shape in self.shapes if shape.regions}

    def check(self, categories: Collection[str]) -> None:
        chosen = [shape for shape in self.shapes if shape.label in categories]
        for shape in chosen:
            for region in shape.regions:
                try:
                    region.check(self.size)
                except GpgcError as error:
                    raise UnusableFileError(f"{shape.id}: {error}") from None
        lacking = [shape for shape in chosen if shape.label not in self.labels()]
        if lacking:
            kinds = Counter(shape.kind for shape in lacking)
            listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
            raise UnusableFileError(
                f"{lacking[0].label} is marked there without an outline ({listed}): draw a polygon "
                "or a mask, or remove it"
            )

    def mask(self, codes: Mapping[str, int]) -> ShapesMask:
        own = tuple((codes[one.label], one) for one in self.shapes if one.label in codes)
        return ShapesMask(self.size, own)


@dataclass(frozen=True)
class ShapesMask:
    """The mask of a :class:`ShapesPhoto`: class code and shape of each chosen one."""

    size: tuple[int, int] | None
    shapes: tuple[tuple[int, Shape], ...]

    def _size(self, orientation: Orientation) -> tuple[int, int]:
        size = self.size or (orientation.height, orientation.width)
        check_size(size, orientation)
        return size

    def read(self, orientation: Orientation) -> Codes:
        """Draw the shapes at the photo's own size."""
        size = self._size(orientation)
        codes = np.zeros(size, dtype=np.uint8)
        for code, shape in self.shapes:
            for region in shape.regions:
                codes[region.draw(*size)] = code
        return make_upright(codes, orientation)

    def read_objects(self, orientation: Orientation, height: int, width: int) -> list[PhotoObject]:
        """Draw each shape on its own, with what others hide, in the order of the file."""
        size = self._size(orientation)
        objects = []
        for code, shape in self.shapes:
            if shape.regions:
                inside = np.logical_or.reduce([region.draw(*size) for region in shape.regions])
                upright = np.ascontiguousarray(make_upright(inside, orientation))
                work = (height, width)
                objects.append(make_object(shape.id, code, crowd=False, inside=upright, size=work))
        return objects
