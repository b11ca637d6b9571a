"""Text of values for messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["bytes_text", "preview", "time_text"]


def preview(values: Iterable[Any], limit: int = 5) -> str:
    """The first few values, separated by commas."""
    values = list(values)
    text = ", ".join(str(value) for value in values[:limit])
    return text + (f", ... ({len(values)} in all)" if len(values) > limit else "")


def time_text(seconds: float | None) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bytes_text(size: float) -> str:
    """A number of bytes with its unit, such as ``1.50 GiB``."""
    for unit in ("PiB", "TiB", "GiB", "MiB", "kiB"):
        factor = 1024.0 ** ("kMGTP".index(unit[0]) + 1)
        if size >= 0.9 * factor:
            return f"{size / factor:.2f} {unit}"
    return f"{size:.0f} B"
