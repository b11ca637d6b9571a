"""Classes of masks: a list of values and names, a file, or a well-known set of classes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpgc_dask.core.errors import InputError, MissingFileError

__all__ = [
    "VOID_NAMES",
    "ClassTable",
    "cityscapes",
    "named_tables",
    "parse_classes",
    "read_classes",
    "voc",
]

VOID_NAMES = frozenset(
    ("void", "unlabelled", "unlabeled", "ignore", "ignored", "dont care", "don't care", "dontcare")
)
"""Names, in lower case, of pixels whose class is unknown."""

VOID_VALUE = 255

COLUMNS = {
    "value": ("value", "id", "index", "idx", "label id", "label_id", "class_id", "class id"),
    "r": ("r", "red"),
    "g": ("g", "green"),
    "b": ("b", "blue"),
    "name": ("name", "class", "label", "names", "name(s)", "category", "class_name"),
}
"""{column: its names in the first line of files}."""

CVAT_LINE = re.compile(r"([^:,]+):(\d+),(\d+),(\d+):[^:]*:[^:]*")

LIST = re.compile(r"\s*\d+\s*(=|,|$)")
"""The beginning of a list of values and names."""

NAMED_LINE = re.compile(r"\s*((?:\d+\s+)+)(\S.*?)\s*")
"""Numbers and a name, separated by spaces."""

HELP = (
    "lines value,name or r,g,b,name or value,r,g,b,name; with other columns or another order the "
    "first line has their names"
)

Row = tuple[int | None, tuple[int, int, int] | None, str]
"""Value, colour and name of a class."""


@dataclass(frozen=True)
class ClassTable:
    """Classes and void pixels of masks, as of :class:`~gpgc_dask.imaging.masks.MaskFormat`.

    Attributes
    ----------
    classes : dict of int to str
        Value and name of each class.
    void : tuple of int
        Values of pixels whose class is unknown.
    colours : tuple of (int, int, int, int)
        Red, green, blue and the value they stand for.
    by_colour : bool
        Whether the values are mere numbers in the order of the classes.
    """

    classes: dict[int, str] = field(default_factory=dict)
    void: tuple[int, ...] = ()
    colours: tuple[tuple[int, int, int, int], ...] = ()
    by_colour: bool = False


def read_classes(text: str) -> ClassTable:
    """Find the classes that a user names.

    Parameters
    ----------
    text : str
        A list such as ``0=background,1=horse``, the path of a file, or one of ``named_tables()``.
        A class with the name of :data:`VOID_NAMES` is void.

    Returns
    -------
    ClassTable

    Examples
    --------
    >>> read_classes("0=ground,1=horse,255=void")
    ClassTable(classes={0: 'ground', 1: 'horse'}, void=(255,), colours=(), by_colour=False)
    """
    if text in NAMED:
        return NAMED[text]()
    if LIST.match(text):
        return _table([_list_row(part, text) for part in text.split(",")], text)
    path = Path(text).expanduser()
    if path.is_file():
        try:
            return _table(parse_classes(path.read_text(encoding="utf-8-sig"), text), text)
        except UnicodeDecodeError as error:
            raise InputError(f"classes file {text} is not a text in UTF-8: {error}") from None
    raise MissingFileError(
        f"classes: there is no file {text}; name one, a list such as 0=background,1=horse, or "
        f"{' or '.join(named_tables())}"
    )


def named_tables() -> list[str]:
    """Names of the well-known sets of classes."""
    return [*NAMED]


def _list_row(part: str, text: str) -> Row:
    value, _, name = part.partition("=")
    if not re.fullmatch(r"\s*\d+\s*", value):
        raise InputError(
            f"classes: {text!r} is not a list such as 0=background,1=horse: {part!r} has no value"
        )
    return int(value), None, name or value.strip()


def _table(rows: Sequence[Row], source: str) -> ClassTable:
    """The table of the rows of a list or file."""
    by_colour = all(value is None for value, _, _ in rows)
    void_value = max(VOID_VALUE, len({name for _, _, name in rows}))
    classes: dict[int, str] = {}
    void: dict[int, None] = {}
    colours: dict[tuple[int, int, int], int] = {}
    numbers: dict[str, int] = {}
    for value, colour, name in rows:
        is_void = name.lower() in VOID_NAMES
        if value is None:
            # Several colours may have one name: they are one class.
            value = void_value if is_void else numbers.setdefault(name, len(numbers))
        elif value in classes or value in void:
            raise InputError(f"classes: {value} is named twice in {source}")
        if is_void:
            void[value] = None
        else:
            classes[value] = name
        if colour is not None and colours.setdefault(colour, value) != value:
            raise InputError(f"classes: the colour {colour} is named twice in {source}")
    return ClassTable(
        classes, tuple(void), tuple((*rgb, value) for rgb, value in colours.items()), by_colour
    )


def parse_classes(text: str, source: str) -> list[Row]:
    """Parse the content of a file of classes.

    Read are CSV files with columns value,name or r,g,b,name or all of these (in any order if the
    first line has their names), files such as CamVid's ``label_colors.txt`` (``R G B name``),
    ADE20K's ``objectInfo150`` (``Idx``, …, ``Name``), and ``labelmap.txt`` of CVAT.

    Parameters
    ----------
    text : str
        The content.
    source : str
        Name of the file, for messages.

    Returns
    -------
    list of (int or None, tuple of int or None, str)
        Value, colour and name of each class.
    """
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
    if not lines:
        raise InputError(f"classes file {source} is empty: write {HELP}")
    if all(CVAT_LINE.fullmatch(line.strip()) for line in lines):
        found = (CVAT_LINE.fullmatch(line.strip()) for line in lines)
        return [
            (None, _colour([int(match[band]) for band in (2, 3, 4)], source), match[1])
            for match in found
            if match
        ]
    cells = _cells(lines)
    header = [cell.lower() for cell in cells[0]]
    if any(cell.isdigit() for cell in header):
        places = _places_by_content(cells[0], source)
    else:
        places = {
            column: header.index(name)
            for column, names in COLUMNS.items()
            for name in names[::-1]
            if name in header
        }
        cells = cells[1:]
    if "name" not in places or not ({"value"} <= places.keys() or {*"rgb"} <= places.keys()):
        raise InputError(f"classes file {source} has other columns: write {HELP}")
    rows = [_row(line, places, source) for line in cells]
    if "idx" in header and all(value != 0 for value, _, _ in rows):
        rows.append((0, None, "void"))  # ADE20K: 0 is none of its classes
    return [row for row in rows if row[0] is None or row[0] >= 0]


def _cells(lines: Sequence[str]) -> list[list[str]]:
    """The cells of each line, separated by commas, semicolons, tabs or, before a name, spaces."""
    if all(NAMED_LINE.fullmatch(line) for line in lines):
        found = (NAMED_LINE.fullmatch(line) for line in lines)
        return [[*match[1].split(), match[2]] for match in found if match]
    delimiter = next((sign for sign in ",;\t" if sign in lines[0]), " ")
    read = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    return [[cell.strip() for cell in line] for line in read]


def _places_by_content(cells: Sequence[str], source: str) -> dict[str, int]:
    """{column: its place} in a file whose first line is a class."""
    numbers = [place for place, cell in enumerate(cells) if re.fullmatch(r"-?\d+", cell)]
    names = [place for place in range(len(cells)) if place not in numbers]
    columns = {1: ["value"], 3: ["r", "g", "b"], 4: ["value", "r", "g", "b"]}.get(len(numbers))
    if columns is None or len(names) != 1:
        raise InputError(
            f"classes file {source} has {len(numbers)} numbers and {len(names)} names per line: "
            f"write {HELP}"
        )
    return dict(zip(columns, numbers, strict=True)) | {"name": names[0]}


def _row(line: Sequence[str], places: Mapping[str, int], source: str) -> Row:
    try:
        own = {column: line[place] for column, place in places.items()}
        numbers = {column: int(text) for column, text in own.items() if column != "name"}
    except (ValueError, IndexError):
        raise InputError(
            f"classes file {source}: the line {', '.join(line)!r} is not as the first: write {HELP}"
        ) from None
    if not own["name"]:
        raise InputError(f"classes file {source}: the line {', '.join(line)!r} has no name")
    has_colour = {*"rgb"} <= numbers.keys()
    colour = _colour([numbers[band] for band in "rgb"], source) if has_colour else None
    return numbers.get("value"), colour, own["name"]


def _colour(bands: Sequence[int], source: str) -> tuple[int, int, int]:
    red, green, blue = bands
    if not all(0 <= band <= 255 for band in (red, green, blue)):
        raise InputError(
            f"classes file {source}: the colour {red},{green},{blue} is not of numbers 0 to 255"
        )
    return red, green, blue


# -- well-known sets of classes ------------------------------------------------------------------

VOC_NAMES = [
    "background",
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
]


def voc() -> ClassTable:
    """The classes of Pascal VOC, as palette indices or colours; 255 is void."""
    values = [*range(len(VOC_NAMES)), VOID_VALUE]
    colours = tuple((*_voc_colour(value), value) for value in values)
    return ClassTable(dict(enumerate(VOC_NAMES)), (VOID_VALUE,), colours)


def _voc_colour(value: int) -> tuple[int, int, int]:
    """Colour of an index: its bits, from the lowest on, are high bits of red, green and blue."""
    red, green, blue = (
        sum(((value >> (3 * bit + band)) & 1) << (7 - bit) for bit in range(3)) for band in range(3)
    )
    return red, green, blue


CITYSCAPES: tuple[tuple[str, int, int | None, tuple[int, int, int]], ...] = (
    ("road", 7, 0, (128, 64, 128)),
    ("sidewalk", 8, 1, (244, 35, 232)),
    ("building", 11, 2, (70, 70, 70)),
    ("wall", 12, 3, (102, 102, 156)),
    ("fence", 13, 4, (190, 153, 153)),
    ("pole", 17, 5, (153, 153, 153)),
    ("traffic light", 19, 6, (250, 170, 30)),
    ("traffic sign", 20, 7, (220, 220, 0)),
    ("vegetation", 21, 8, (107, 142, 35)),
    ("terrain", 22, 9, (152, 251, 152)),
    ("sky", 23, 10, (70, 130, 180)),
    ("person", 24, 11, (220, 20, 60)),
    ("rider", 25, 12, (255, 0, 0)),
    ("car", 26, 13, (0, 0, 142)),
    ("truck", 27, 14, (0, 0, 70)),
    ("bus", 28, 15, (0, 60, 100)),
    ("train", 31, 16, (0, 80, 100)),
    ("motorcycle", 32, 17, (0, 0, 230)),
    ("bicycle", 33, 18, (119, 11, 32)),
    ("unlabeled", 0, None, (0, 0, 0)),
    ("ego vehicle", 1, None, (0, 0, 0)),
    ("rectification border", 2, None, (0, 0, 0)),
    ("out of roi", 3, None, (0, 0, 0)),
    ("static", 4, None, (0, 0, 0)),
    ("dynamic", 5, None, (111, 74, 0)),
    ("ground", 6, None, (81, 0, 81)),
    ("parking", 9, None, (250, 170, 160)),
    ("rail track", 10, None, (230, 150, 140)),
    ("guard rail", 14, None, (180, 165, 180)),
    ("bridge", 15, None, (150, 100, 100)),
    ("tunnel", 16, None, (150, 120, 90)),
    ("polegroup", 18, None, (153, 153, 153)),
    ("caravan", 29, None, (0, 0, 90)),
    ("trailer", 30, None, (0, 0, 110)),
)
"""Name, labelId, trainId and colour; those without a trainId are void in evaluations."""


def cityscapes(*, train_ids: bool = False) -> ClassTable:
    """The 19 classes of Cityscapes that are evaluated, as labelIds (or trainIds) or colours."""
    classes: dict[int, str] = {}
    void: list[int] = [VOID_VALUE] if train_ids else []
    colours: dict[tuple[int, int, int], int] = {}
    for name, label, train, colour in CITYSCAPES:
        value = label if not train_ids else VOID_VALUE if train is None else train
        if train is not None:
            classes[value] = name
        elif not train_ids:
            void.append(value)
        colours.setdefault(colour, value)
    return ClassTable(classes, tuple(void), tuple((*rgb, value) for rgb, value in colours.items()))


NAMED: dict[str, Callable[[], ClassTable]] = {
    "voc": voc,
    "cityscapes": cityscapes,
    "cityscapes-trainids": lambda: cityscapes(train_ids=True),
}
