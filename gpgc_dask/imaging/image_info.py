"""What is known of images: who drew the mask, when, and which images belong together.

Each is taken from the image's name by a regular expression, or from a CSV file.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from gpgc_dask.core.errors import InputError, MissingFileError

__all__ = ["ImageInfo", "PhotoInfo", "check_date", "read_table"]

SHOWN = 3
"""Number of examples in messages."""


@dataclass(frozen=True)
class PhotoInfo:
    """What is known of one image.

    Attributes
    ----------
    photo : str
        Name of its photo; the image's own name, unless the photo has several masks.
    group : str
        Images of one group are left out together: a video, a patient, a scene.
    annotator : str
        Who drew the mask; "" if it is unknown.
    annotated : str
        When, as an ISO date; "" if it is unknown.
    """

    photo: str
    group: str
    annotator: str = ""
    annotated: str = ""


@dataclass(frozen=True)
class ImageInfo:
    """Where groups and annotators of images come from.

    Both are a regular expression that is searched in the image's name (its path within the folder
    of photos; its first group, or else the whole match, is the value), or a CSV file with a header.

    Parameters
    ----------
    group : str, default ""
        Images of one group support each other's errors, as frames of a video or photos of a
        patient do. Their masks are judged by models without the whole group. A CSV file has columns
        image,group. By default each photo is a group of its own.
    annotator : str, default ""
        Who drew the mask. A CSV file has columns image,annotator and may have date. A regular
        expression may have groups ``(?P<annotator>…)`` and ``(?P<date>…)``. Dates are ISO dates,
        such as 2024-05-31 or 20240531.

    Examples
    --------
    >>> from gpgc_dask import ImageInfo
    >>> info = ImageInfo(group=r"^[^_]+", annotator=r"_by_(\\w+)\\.")
    >>> info.find({"day1_by_anna.jpg": "day1_by_anna.jpg"})["day1_by_anna.jpg"].annotator
    'anna'
    """

    group: str = ""
    annotator: str = ""

    def to_json(self) -> dict[str, str]:
        """{parameter: regular expression, or absolute path of the file}."""
        rules = {"group": self.group, "annotator": self.annotator}
        return {
            name: os.path.abspath(Path(rule).expanduser()) if _is_file(rule) else rule
            for name, rule in rules.items()
        }

    def find(
        self,
        photos: Mapping[str, str],
        known: Mapping[str, PhotoInfo] | None = None,
        unusable: Iterable[str] = (),
    ) -> dict[str, PhotoInfo]:
        """Find what is known of the images.

        Parameters
        ----------
        photos : mapping of str to str
            {name of the image: name of its photo}.
        known : mapping of str to PhotoInfo, optional
            What the source of the masks knows already, by the image's name.
        unusable : iterable of str
            Names of images that files may list although they are not used.

        Returns
        -------
        dict of str to PhotoInfo

        Raises
        ------
        InputError
            If a file or a regular expression is wrong, or does not fit the images.
        """
        found = {name: PhotoInfo(photo, photo) for name, photo in photos.items()} | dict(
            known or {}
        )
        others = set(unusable)
        if self.group:
            values = _values("group", self.group, photos, others)
            found = {name: replace(found[name], group=values[name]["group"]) for name in found}
        if self.annotator:
            values = _values("annotator", self.annotator, photos, others)
            for name, own in values.items():
                date = check_date(own.get("date", ""), name, self.annotator)
                found[name] = replace(found[name], annotator=own["annotator"], annotated=date)
        return found


def _values(
    column: str, rule: str, photos: Mapping[str, str], others: set[str]
) -> dict[str, dict[str, str]]:
    """{image: {column: value}} of a regular expression or a file."""
    if _is_file(rule):
        return _from_file(column, rule, photos, others)
    return _from_names(column, rule, photos)


def _is_file(rule: str) -> bool:
    return rule.lower().endswith(".csv")


def _from_names(column: str, rule: str, photos: Mapping[str, str]) -> dict[str, dict[str, str]]:
    try:
        pattern = re.compile(rule)
    except re.error as error:
        raise InputError(
            f"{column}: {rule!r} is neither a regular expression ({error}) nor the name of a CSV "
            "file (.csv)"
        ) from None
    values = {}
    for name in photos:
        match = pattern.search(name)
        own = {} if match is None else {key: text or "" for key, text in match.groupdict().items()}
        if match is not None and column not in own:
            own[column] = (match.group(1) if pattern.groups else match.group()) or ""
        values[name] = own
    missing = [name for name, own in values.items() if not own.get(column)]
    if missing:
        raise InputError(
            f"{column}: {rule!r} matches nothing in {_some(missing, len(photos))}: change the "
            f"regular expression, or name a CSV file with columns image,{column}"
        )
    return values


def _from_file(
    column: str, path: str, photos: Mapping[str, str], others: set[str]
) -> dict[str, dict[str, str]]:
    table = read_table(path, "image", (column,), f"{column} file")
    images, wanted = set(photos.values()), set(photos)
    unknown = [name for name in table if name not in wanted | images | others]
    if unknown:
        raise InputError(
            f"{path} names {_some(unknown, len(table))} that are not in the folder of images: "
            "remove those lines, or correct the names (paths within the folder)"
        )
    missing = [name for name, photo in photos.items() if name not in table and photo not in table]
    if missing:
        raise InputError(f"{path} has no line for {_some(missing, len(photos))}: add them")
    return {name: table.get(name) or table[photo] for name, photo in photos.items()}


def read_table(path: str, key: str, needed: Sequence[str], title: str) -> dict[str, dict[str, str]]:
    """Read a CSV file with a header.

    Parameters
    ----------
    path : str
        The file.
    key : str
        Column whose values must be unique.
    needed : sequence of str
        Further columns that every line must have.
    title : str
        What the file is, for messages.

    Returns
    -------
    dict
        {value of the key: {column: value}}, in the order of the file.
    """
    place = Path(path).expanduser()
    if not place.is_file():
        raise MissingFileError(f"{title} {path} does not exist")
    try:
        with place.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="")
            columns = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            lines = [_strip(line) for line in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{title} {path} is not a CSV file in UTF-8: {error}") from None
    lacking = [name for name in (key, *needed) if name not in columns]
    if lacking:
        raise InputError(
            f"{title} {path} has no column {' and '.join(lacking)}: its first line must be "
            f"{','.join((key, *needed))}"
        )
    table: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines, 2):
        empty = [name for name in (key, *needed) if not line[name]]
        if empty:
            raise InputError(f"{title} {path}: line {number} has no {empty[0]}")
        if line[key] in table:
            raise InputError(f"{title} {path} names {line[key]} twice: remove one of the lines")
        table[line[key]] = line
    return table


def _strip(line: Mapping[str, str | list[str] | None]) -> dict[str, str]:
    return {name: value.strip() if isinstance(value, str) else "" for name, value in line.items()}


def check_date(text: str, name: str, rule: str) -> str:
    """Convert a date to ISO form; raise an InputError, with name and source, if it is none."""
    if not text:
        return ""
    try:
        return datetime.fromisoformat(text).isoformat()
    except ValueError:
        raise InputError(
            f"{rule} gives {name} the date {text!r}: write dates as 2024-05-31"
        ) from None


def _some(names: Sequence[str], total: int) -> str:
    """Number of images and the first of them."""
    more = ", …" if len(names) > SHOWN else ""
    return f"{len(names)} of {total} images ({', '.join(names[:SHOWN])}{more})"
