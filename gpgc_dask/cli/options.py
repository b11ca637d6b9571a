"""Options that several commands have, and how their texts are read."""

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
    "Classes",
    "Foreground",
    "Json",
    "MaskSuffix",
    "ModelArgument",
    "OnError",
    "OnErrorOption",
    "Overwrite",
    "Resume",
    "SoftThreshold",
    "Void",
    "Workers",
    "check_choice",
    "check_output",
    "to_classes",
    "to_colour",
    "to_numbers",
]

RUNNING, MASKS = "Running", "Reading masks"

Json = Annotated[
    bool, typer.Option("--json", help="Print the outcome as JSON.", rich_help_panel=RUNNING)
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with what was stopped.", rich_help_panel=RUNNING),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what is there.", rich_help_panel=RUNNING)
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of workers.", rich_help_panel=RUNNING),
]

Foreground = Annotated[
    str | None,
    typer.Option(
        help="Mask values that are foreground, as 1,3. Default: whatever is not 0.",
        rich_help_panel=MASKS,
    ),
]
Classes = Annotated[
    str | None,
    typer.Option(help="Several classes, as 0=background,1=horse,2=rider.", rich_help_panel=MASKS),
]
Void = Annotated[
    str | None,
    typer.Option(help="Mask values that say nothing, as 255.", rich_help_panel=MASKS),
]
SoftThreshold = Annotated[
    float | None,
    typer.Option(
        "--threshold",
        help="Soft masks: foreground from this share of full scale on, as 0.5.",
        rich_help_panel=MASKS,
    ),
]
MaskSuffix = Annotated[
    str,
    typer.Option(
        help="What the masks' names have after those of what they belong to, as _mask.",
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
        help="A file that cannot be used: stop, or leave it out and list it.",
        rich_help_panel=RUNNING,
    ),
]


class By(StrEnum):
    """What images are ranked by."""

    AGREEMENT = "agreement"
    CONFIDENCE = "confidence"


ModelArgument = Annotated[
    str, typer.Argument(help="The model, as gpgc fit made it: a path or URL.")
]
ByOption = Annotated[
    By,
    typer.Option(
        help="agreement of the mask with a prediction made without its image (finds bad masks "
        "best), or the confidence that the noise gives (the paper's)."
    ),
]


def check_choice(**given: object) -> None:
    """Complain where more than one of some options is given that exclude each other."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} exclude each other: choose one")


def check_output(*files: str | None, folder: str | None = None, urls: bool = False) -> None:
    """Complain now, not after the work, where something cannot be written; URLs if not ``urls``."""
    from gpgc_dask.storage.location import Location, check_writable, is_url

    for output in filter(None, (*files, folder)):
        if is_url(output):
            Location.of(output)
            if urls:
                continue
            raise InputError(f"{output} is a URL: this is written to local paths; copy it there")
        if output != folder and Path(output).is_dir():
            raise IsAFolderError(f"{output} is a folder: name a file to write to")
        check_writable(Path(output))


def to_numbers(text: str | None, option: str) -> list[int]:
    """Whole numbers as 1,3."""
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers such as 1,3", param_hint=option
        ) from None


def to_classes(text: str | None) -> dict[int, str]:
    """{value: name} of 0=background,1=horse."""
    found: dict[int, str] = {}
    for part in text.split(",") if text else []:
        value, _, name = part.partition("=")
        (number,) = to_numbers(value, "--classes")
        if number in found:
            raise typer.BadParameter(f"{number} is named twice", param_hint="--classes")
        found[number] = name or value
    return found


def to_colour(text: str | None, option: str) -> tuple[float, float, float] | None:
    """Three numbers as 123.7,116.3,103.5."""
    if text is None:
        return None
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not three numbers such as 123.7,116.3,103.5", param_hint=option
        ) from None
    return red, green, blue
