"""The interface of a mask source: which images there are, and how the mask of each is read."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol, runtime_checkable

from gpgc_dask.core.errors import InputError, Problem
from gpgc_dask.core.slices import stored_file, volume_groups
from gpgc_dask.imaging.class_tables import read_classes
from gpgc_dask.imaging.files import Pair, printable
from gpgc_dask.imaging.image_info import ImageInfo, PhotoInfo
from gpgc_dask.imaging.masks import Codes, MaskFormat
from gpgc_dask.imaging.objects import PhotoObject
from gpgc_dask.imaging.photos import Orientation

__all__ = ["Item", "Mask", "MaskOptions", "MaskSource", "ObjectMask", "file_digest", "file_stamp"]


MASK_VALUES = frozenset(
    ("foreground", "classes", "void", "threshold", "colours", "by_colour", "invert")
)
"""Options that are in the provenance as a mask format."""


class Mask(Protocol):
    """The mask of one photo. Small, and read by the worker that needs it."""

    def read(self, orientation: Orientation) -> Codes:
        """Read the class codes, (height, width) of the upright photo.

        Raises
        ------
        UnusableFileError
            If the mask cannot be read, or does not fit the photo.
        """


@runtime_checkable
class ObjectMask(Mask, Protocol):
    """A mask that is drawn from annotated objects."""

    def read_objects(self, orientation: Orientation, height: int, width: int) -> list[PhotoObject]:
        """Read the objects, with their regions at a working size of (height, width) pixels."""


@dataclass(frozen=True)
class Item:
    """A photo to ingest, its mask, and an identity that changes when one of them does.

    Attributes
    ----------
    identity : str
        Stamp of the photo (see :func:`file_stamp`), a space, and a stamp or digest of the mask.
    info : PhotoInfo or None
        What else the source knows of it, if anything.
    """

    pair: Pair
    identity: str
    mask: Mask
    info: PhotoInfo | None = None

    @property
    def photo_stamp(self) -> str:
        """The part of the identity that changes with the photo."""
        return self.identity.partition(" ")[0]

    @property
    def mask_stamp(self) -> str:
        """The part of the identity that changes with the mask."""
        return self.identity.partition(" ")[2].partition(" ")[0]


@dataclass(frozen=True)
class MaskOptions:
    """How masks are found and read.

    With none of ``foreground``, ``classes`` and ``threshold`` a mask may hold 0 and one other
    value: background and foreground.

    Parameters
    ----------
    format : str, default "auto"
        A registered mask source (``MASK_SOURCES.names()``): "masks" is a folder of mask files,
        "answers" one with several masks per photo, in a subfolder for each, "layers" one with
        several files per photo that make up its mask; "coco", "coco-panoptic", "yolo", "voc",
        "cvat", "labelme" and "label-studio" are annotations. "auto" is the format that the files
        have.
    suffix : str, default ""
        What follows the photo's name in the name of its mask: "_mask" pairs a.jpg with a_mask.png.
    photo_suffix : str, default ""
        What the photos' names end with that those of their masks have not.
    foreground : sequence of int, optional
        Mask values that are foreground; all others are background.
    classes : mapping of int to str, or str, optional
        {value: name} of each class, if there are several. A text is the path of a file with columns
        value,name or r,g,b,name, or "voc", "cityscapes" or "cityscapes-trainids"; it sets
        ``colours`` and ``by_colour``, and adds to ``void``.
    void : sequence of int, optional
        Mask values of pixels whose class is unknown.
    threshold : float, optional
        For soft masks: the share of full scale from which on a pixel is foreground.
    colours : sequence of (int, int, int, int), optional
        Red, green, blue and the value they stand for, if masks are colour pictures.
    by_colour : bool, default False
        Whether masks have no values but colours.
    invert : bool, default False
        Whether foreground and background are swapped.
    categories : sequence of str, optional
        Categories to take from annotations; several become several classes, and "all" are all that
        have outlines, in the order of the file.
    with_empty : bool, default True
        Whether images without an annotation of the categories are included: objects may be missing
        there.
    answers : str, default ""
        For "answers": a CSV file with columns mask,image and perhaps annotator,date that names the
        photo of each mask. By default masks are in subfolders named as their photos.

    Examples
    --------
    >>> from gpgc_dask import MaskOptions
    >>> MaskOptions(foreground=[1], void=[255]).mask_format.names
    ('background', 'foreground')
    """

    format: str = "auto"
    suffix: str = ""
    photo_suffix: str = ""
    foreground: Sequence[int] = ()
    classes: Mapping[int, str] | str = field(default_factory=dict)
    void: Sequence[int] = ()
    threshold: float | None = None
    colours: Sequence[tuple[int, int, int, int]] = ()
    by_colour: bool = False
    invert: bool = False
    categories: Sequence[str] = ()
    with_empty: bool = True
    answers: str = ""

    def __post_init__(self) -> None:
        if self.classes == "":
            object.__setattr__(self, "classes", {})
        elif isinstance(self.classes, str):
            table = read_classes(self.classes)
            void = [value for value in table.void if value not in self.void]
            resolved = {
                "classes": table.classes,
                "void": [*self.void, *void],
                "colours": table.colours,
                "by_colour": table.by_colour,
            }
            for name, value in resolved.items():
                object.__setattr__(self, name, value)

    @property
    def mask_format(self) -> MaskFormat:
        """How the values of mask files are read."""
        classes = {} if isinstance(self.classes, str) else self.classes
        return MaskFormat(
            tuple(self.foreground),
            tuple(classes.items()),
            tuple(self.void),
            self.threshold,
            tuple(self.colours),
            self.by_colour,
            self.invert,
        )

    def changed_options(self) -> list[str]:
        """Names of the options, except ``format``, that differ from their defaults."""
        default = MaskOptions()
        return [
            option.name
            for option in fields(self)
            if option.name != "format"
            and (getattr(self, option.name) or None) != (getattr(default, option.name) or None)
        ]


class MaskSource(ABC):
    """The photos of a folder and their masks, in one format.

    A subclass implements :meth:`find_items` and :meth:`restore`, and names the options that apply
    to it in ``options_used``.

    Parameters
    ----------
    images : path
        Folder of photos.
    masks : path
        Folder or file of the masks.
    options : MaskOptions
        How masks are read.

    Attributes
    ----------
    items : list of Item
        The photos that have a mask, in the order of their names.
    problems : list of Problem
        Files that cannot be used.
    """

    options_used: ClassVar[frozenset[str]] = frozenset()
    title: ClassVar[str] = ""
    """What the format is called in messages."""

    def __init__(
        self, images: str | PathLike[str], masks: str | PathLike[str], options: MaskOptions
    ) -> None:
        unused = [name for name in options.changed_options() if name not in self.options_used]
        if unused:
            raise InputError(
                f"{', '.join(unused)}: not an option of masks in the format {options.format}; "
                "omit it, or choose another format"
            )
        self.images, self.masks = _absolute(images), _absolute(masks)
        self.options = options
        items, problems = self.find_items()
        if not items and not problems:
            raise InputError(f"there are no images in {self.images}")
        odd = [item.pair.name for item in items if not _is_text(item.pair.image + item.pair.mask)]
        problems = problems + [
            Problem(name, "its name is not valid Unicode: rename it") for name in odd
        ]
        self.items = sorted(
            (item for item in items if item.pair.name not in odd), key=lambda item: item.pair.name
        )
        self.problems = sorted(
            (Problem(printable(p.name), printable(p.reason)) for p in problems),
            key=lambda problem: problem.name,
        )

    @abstractmethod
    def find_items(self) -> tuple[list[Item], list[Problem]]:
        """Find the photos that have a mask, and the files that cannot be used."""

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """The masks of this format at a path that a user has named; None if there are none.

        By this ``--format auto`` recognises a format, from names and the beginnings of files.
        """
        return None

    @property
    def mask_format(self) -> MaskFormat:
        """Classes of the masks, and the values that stand for them."""
        return self.options.mask_format

    def provenance(self) -> dict[str, Any]:
        """Describe in JSON what is needed to read the masks, or those of more photos, again."""
        others = sorted(self.options_used - MASK_VALUES)
        return {
            "format": self.options.format,
            "images": self.images,
            "masks": self.masks,
            "mask_format": asdict(self.mask_format),
            "options": {name: _to_json(name, getattr(self.options, name)) for name in others},
        }

    @classmethod
    def restore_options(cls, provenance: Mapping[str, Any]) -> MaskOptions:
        """The options with which a source has this :meth:`provenance`."""
        stored = MaskFormat.from_json(provenance["mask_format"])
        known = asdict(stored) | {"classes": dict(stored.classes)} | dict(provenance["options"])
        own = {name: known[name] for name in cls.options_used if name in known}
        return MaskOptions(format=provenance["format"], **own)

    @classmethod
    @abstractmethod
    def restore(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> list[Mask | None]:
        """Find masks of a dataset again.

        Parameters
        ----------
        provenance : mapping
            The result of :meth:`provenance` at ingest.
        names, paths : sequence of str
            Name of each photo, and the path of its mask at ingest (``Pair.mask``).

        Returns
        -------
        list of Mask or None
            The mask of each photo; None if the source no longer has it.
        """

    @classmethod
    def select(
        cls, provenance: Mapping[str, Any], names: Sequence[str], paths: Sequence[str]
    ) -> dict[PurePosixPath, Path | bytes]:
        """Files that hold the masks of selected photos, for a folder of these photos.

        Parameters
        ----------
        provenance, names, paths
            As in :meth:`restore`, of the selected photos.

        Returns
        -------
        dict
            {path in the new folder: file to copy or link, or content to write}. By default the
            source's file itself.
        """
        return {PurePosixPath(Path(path).name): Path(path) for path in paths}

    def find_info(self, info: ImageInfo, others: Iterable[str] = ()) -> dict[str, PhotoInfo]:
        """Group, annotator and date of each image, by its name.

        ``others`` are names that files may list although they are not in the folder of photos.
        """
        known = {item.pair.name: item.info for item in self.items if item.info is not None}
        names = [item.pair.name for item in self.items]
        for name, volume in volume_groups(names).items():
            known.setdefault(name, PhotoInfo(name, volume))
        photos = {name: known[name].photo if name in known else name for name in names}
        return info.find(photos, known, {*others, *(problem.name for problem in self.problems)})

    def digest(self, info: Mapping[str, PhotoInfo]) -> str:
        """Digest that changes when an image, a mask or what is known of them changes."""
        known = [[item.pair.name, item.identity] for item in self.items]
        known += [[problem.name] for problem in self.problems]
        default = {name: PhotoInfo(own.photo, own.photo) for name, own in info.items()}
        if info != default:
            known += [[name, *astuple(own)] for name, own in sorted(info.items())]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def file_stamp(path: str) -> str:
    """Size and time of a file, which change when it is changed."""
    try:
        status = Path(stored_file(path)).stat()
    except OSError:
        return "-"
    return f"{status.st_size}:{status.st_mtime_ns}"


def file_digest(path: str) -> str:
    """Digest of a file's content."""
    with open(stored_file(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _to_json(name: str, value: Any) -> Any:
    """An option as JSON has it; files by their absolute paths."""
    if name == "answers":
        return _absolute(value) if value else ""
    return list(value) if isinstance(value, tuple) else value


def _absolute(path: str | PathLike[str]) -> str:
    return os.path.abspath(Path(path).expanduser())


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
