"""Options that several commands share, and conversion of their texts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpgc_dask.core.errors import InputError, IsAFolderError

__all__ = [
    "MASKS",
    "RUNNING",
    "By",
    "ByOption",
    "ClassTable",
    "Classes",
    "Foreground",
    "Invert",
    "Json",
    "MaskSuffix",
    "ModelArgument",
    "OnError",
    "OnErrorOption",
    "Overwrite",
    "PhotoSuffix",
    "Resume",
    "SoftThreshold",
    "Void",
    "Workers",
    "check_choice",
    "check_classes",
    "check_output",
    "to_classes",
    "to_colour",
    "to_numbers",
    "to_stretch",
]

RUNNING, MASKS = "Running", "Reading masks"

Json = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=RUNNING)
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue a run that was stopped.", rich_help_panel=RUNNING),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace an existing result.", rich_help_panel=RUNNING)
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of workers.", rich_help_panel=RUNNING),
]

Foreground = Annotated[
    str | None,
    typer.Option(
        help="Mask values of the foreground, such as 1,3. Default: all values but 0.",
        rich_help_panel=MASKS,
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(
        help="Names of several classes, such as 0=background,1=horse,2=rider.",
        rich_help_panel=MASKS,
    ),
]
ClassTable = Annotated[
    str | None,
    typer.Option(
        help="Names of several classes: a list such as 0=background,1=horse,2=rider; a FILE.csv "
        "with columns value,name or r,g,b,name; or voc, cityscapes or cityscapes-trainids. "
        "Classes named void, unlabelled or ignore are void.",
        rich_help_panel=MASKS,
    ),
]
Invert = Annotated[
    bool,
    typer.Option("--invert", help="Swap foreground and background.", rich_help_panel=MASKS),
]
PhotoSuffix = Annotated[
    str,
    typer.Option(
        help="Text at the end of the photos' names that those of their masks do not have, such as "
        "_leftImg8bit.",
        rich_help_panel=MASKS,
    ),
]
Void = Annotated[
    str | None,
    typer.Option(help="Mask values to ignore, such as 255.", rich_help_panel=MASKS),
]
SoftThreshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        help="Soft masks: minimum share of full scale of the foreground, such as 0.5.",
        rich_help_panel=MASKS,
    ),
]
MaskSuffix = Annotated[
    str,
    typer.Option(
        help="Text that the names of masks have in addition to those of their photos, such as "
        "_mask.",
        rich_help_panel=MASKS,
    ),
]


class OnError(StrEnum):
    """What to do about a file that cannot be used."""

    RAISE = "raise"
    SKIP = "skip"


OnErrorOption = Annotated[
    OnError,
    typer.Option(
        help="What to do with a file that cannot be used: stop (raise), or leave it out and list "
        "it (skip).",
        rich_help_panel=RUNNING,
    ),
]


class By(StrEnum):
    """Scores by which images are ranked."""

    QUALITY = "quality"
    AGREEMENT = "agreement"
    CONFIDENCE = "confidence"


ModelArgument = Annotated[
    str, typer.Argument(help="Model that gpgc fit has written: a path or URL.")
]
ByOption = Annotated[
    By,
    typer.Option(
        help="Score: quality, the estimated IoU of the mask with a correct one (finds bad masks "
        "best); agreement of the mask with a prediction made without its image; or confidence "
        "computed from the noise (as in the paper)."
    ),
]


def check_choice(**options: object) -> None:
    """Raise a usage error if more than one of these options is given."""
    names = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} exclude each other: choose one")


def check_output(*files: str | None, folder: str | None = None, urls: bool = False) -> None:
    """Raise an error before the work if an output cannot be written; URLs only with ``urls``."""
    from gpgc_dask.storage.location import Location, check_writable, is_url

    for output in filter(None, (*files, folder)):
        if is_url(output):
            Location.of(output)
            if urls:
                continue
            raise InputError(f"{output} is a URL: this output can only be written to a local path")
        if output != folder and Path(output).is_dir():
            raise IsAFolderError(f"{output} is a folder: give the name of an output file")
        check_writable(Path(output))


def to_numbers(text: str | None, option: str) -> list[int]:
    """Convert text such as 1,3 to whole numbers."""
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers such as 1,3", param_hint=option
        ) from None


def to_stretch(text: str) -> str | tuple[float, float]:
    """Convert text such as 0,4095 to two numbers; words stay as they are."""
    if "," not in text:
        return text
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not two numbers such as 0,4095", param_hint="--stretch"
        ) from None
    return low, high


def to_classes(text: str | None) -> dict[int, str]:
    """Convert text such as 0=background,1=horse to {value: name}."""
    names: dict[int, str] = {}
    for part in text.split(",") if text else []:
        value, _, name = part.partition("=")
        (number,) = to_numbers(value, "--classes")
        if number in names:
            raise typer.BadParameter(f"{number} is named twice", param_hint="--classes")
        names[number] = name or value
    return names


def check_classes(text: str | None) -> str:
    """Raise a usage error if text is no list, file or name of classes; "" if there is none."""
    from gpgc_dask.imaging.class_tables import read_classes

    try:
        if text:
            read_classes(text)
    except InputError as error:
        raise typer.BadParameter(str(error), param_hint="--classes") from None
    return text or ""


def to_colour(text: str | None, option: str) -> tuple[float, float, float] | None:
    """Convert text such as 123.7,116.3,103.5 to three numbers."""
    if text is None:
        return None
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not three numbers such as 123.7,116.3,103.5", param_hint=option
        ) from None
    return red, green, blue
