"""Which options read the masks that a survey has found."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from gpgc_dask.imaging.class_tables import named_tables, read_classes
from gpgc_dask.imaging.mask_survey import FEW, Tally
from gpgc_dask.imaging.masks import MaskFormat

__all__ = ["classes_file", "suggest_options"]

WRITE = (
    "--write-classes classes.csv, which writes a file of what there is; change the names in it, "
    "and then use --classes classes.csv"
)

NUMBERS = (
    "--foreground 0 --invert if the values are numbers of objects, such as cells, of which all are "
    f"foreground; or, if they are classes, {WRITE}"
)

MAX_LISTED = 8
"""Classes that are suggested as a list; more of them, as a file."""

NEAR_ENDS, ENDS = 0.9, 0.25
"""Shades of this share, within ENDS of full scale of both ends, are smoothed edges."""

VOID_VALUE = 255


def suggest_options(tally: Tally, fmt: MaskFormat) -> str:
    """The options with which masks of this content can be read; "" if there are none to suggest.

    Parameters
    ----------
    tally : Tally
        Values and colours of the masks.
    fmt : MaskFormat
        How they were to be read.
    """
    if tally.colours and not fmt.colours:
        known = [name for name in named_tables() if _is_of(tally.palette, name)]
        return f"--classes {known[0]}" if known else WRITE
    if tally.colours or fmt.names_values or fmt.threshold is not None or len(tally.values) < 2:
        return ""
    values = sorted(tally.values)
    if _are_numbers(tally, values):
        return NUMBERS
    if len(values) > FEW or tally.lossy or tally.full == 1:
        return "--threshold 0.5"
    return _name_values(tally, [int(value) for value in values])


def _are_numbers(tally: Tally, values: Sequence[float]) -> bool:
    """Whether values are those of objects that are counted: 0 and nearly all up to the largest."""
    return (
        len(values) > MAX_LISTED
        and values[0] == 0
        and values[-1] < tally.full
        and len(values) > NEAR_ENDS * values[-1]
        and not tally.lossy
        and tally.full > 1
    )


def _is_of(palette: Sequence[int], name: str) -> bool:
    """Whether all colours are those of a well-known set of classes."""
    known = {
        (red << 16) | (green << 8) | blue for red, green, blue, _ in read_classes(name).colours
    }
    return len(palette) > 2 and known.issuperset(palette)


def _name_values(tally: Tally, values: list[int]) -> str:
    """Options for few values."""
    void = [VOID_VALUE] if values[-1] == VOID_VALUE and len(values) > 2 else []
    ends = sum(
        count
        for value, count in tally.values.items()
        if min(value, tally.full - value) <= ENDS * tally.full
    )
    shades = [value for value in values if 0 < value < tally.full]
    if (
        len(shades) > MAX_LISTED
        and {0, int(tally.full)} <= {*values}
        and ends >= NEAR_ENDS * tally.values.total()
    ):
        return "--threshold 0.5"
    classes = [value for value in values if value not in void]
    if len(classes) == 2 and classes[0] == 0:
        return f"--foreground {classes[1]} --void {VOID_VALUE}" if void else ""
    if len(classes) == 2:
        names = ["background", "foreground"]
        if tally.values[classes[0]] < tally.values[classes[1]]:
            names.reverse()
        return (
            "--classes "
            + ",".join(f"{value}={name}" for value, name in zip(classes, names, strict=True))
            + f" --void {VOID_VALUE}" * len(void)
        )
    if len(classes) > MAX_LISTED:
        return WRITE
    named = ",".join(f"{value}={_name(value)}" for value in classes)
    return f"--classes {named}" + f" --void {VOID_VALUE}" * len(void)


def _name(value: int) -> str:
    return "background" if value == 0 else f"class{value}"


def classes_file(tally: Tally) -> str:
    """A CSV file of the values or colours that there are, with names to be changed."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if tally.colours:
        writer.writerow(["r", "g", "b", "name"])
        for colour in tally.palette:
            rgb = colour >> 16, (colour >> 8) & 255, colour & 255
            writer.writerow([*rgb, "background" if colour == 0 else f"colour_{colour:06x}"])
    else:
        writer.writerow(["value", "name"])
        values = sorted(int(value) for value in tally.values)
        for value in values:
            is_void = value == VOID_VALUE and len(values) > 2
            writer.writerow([value, "void" if is_void else _name(value)])
    return file.getvalue()
