"""JSON, XML, YAML and text of annotations: read whole, with one kind of error."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

from gpgc_dask.core.errors import InputError, IsAFolderError, MissingFileError, UnusableFileError
from gpgc_dask.imaging.runs import MAX_COORDINATE

__all__ = [
    "is_file",
    "load_json",
    "load_xml",
    "load_yaml",
    "read_bytes",
    "read_head",
    "read_text",
    "to_number",
]

HEAD_BYTES = 4096
"""Bytes at the start of a file by which its format is recognised."""


def read_bytes(path: str | PathLike[str]) -> bytes:
    """Content of a file that a user has named."""
    place = Path(path).expanduser()
    if place.is_dir():
        raise IsAFolderError(f"{path} is a folder: name the file of annotations")
    try:
        return place.read_bytes()
    except FileNotFoundError:
        raise MissingFileError(f"{path} does not exist: name the file of annotations") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None


def read_text(path: str | PathLike[str]) -> str:
    """Content of a file in UTF-8."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file in UTF-8: {error}") from None


def load_json(path: str | PathLike[str]) -> Any:
    """Content of a JSON file; an InputError if it is none."""
    content = read_bytes(path)
    try:
        return json.loads(content)
    except ValueError as error:  # wrong JSON or UTF-8, and numbers of thousands of digits
        raise InputError(f"{path} is not a JSON file: {error}") from None
    except RecursionError:
        raise InputError(f"{path} is not a usable JSON file: it is nested too deeply") from None


def load_xml(path: str | PathLike[str]) -> Xml.Element:
    """Root of an XML file; an InputError if it is none."""
    content = read_bytes(path)
    try:
        # Python's expat limits the amplification by entities, and reads no external ones.
        return Xml.fromstring(content)
    except (Xml.ParseError, LookupError, ValueError) as error:  # the latter of unknown encodings
        raise InputError(f"{path} is not an XML file: {error}") from None


def load_yaml(path: str | PathLike[str]) -> Any:
    """Content of a YAML file; an InputError if it is none."""
    import yaml

    text = read_text(path)
    try:
        return yaml.safe_load(text)
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a YAML file: {first}") from None


def to_number(value: Any, what: str) -> float:
    """A finite number of a sensible size; an UnusableFileError names ``what`` if it is none."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) else float("nan")
    except (ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < MAX_COORDINATE or isinstance(value, bool):
        raise UnusableFileError(f"{what} is {str(value)[:40]!r}, not a number: correct it")
    return number


def is_file(path: Path) -> bool:
    """Whether there is a file of this name, which may be one that no file can have."""
    try:
        return path.is_file()
    except OSError:  # longer than names can be
        return False


def read_head(path: Path) -> str:
    """The first characters of a file; empty if it is a folder or does not exist."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES).decode("utf-8-sig", errors="replace")
