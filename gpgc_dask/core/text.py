"""Text of values for messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

__all__ = ["bytes_text", "options_only", "preview", "time_text"]

_BOTH = re.compile(r"""(?:[\w.]+\([^()]*\)|\b[a-z_]+=(?:"[^"]*"|\w+))\s\((--[a-z][^()]*)\)""")
_PYTHON_ONLY = re.compile(
    r"\s\(in Python [^()]*\)"
    r"|(?:;|,? or) in Python (?:[^()\n;]|\([^()]*\))*?(?=\)|;|\n|\.\s|\.?$)"
)


def options_only(message: str) -> str:
    """A message for users of the program, without what only Python users can write.

    Messages of the library have both spellings, in one of these forms:

    - ``resume=True (--resume)``, of which the option remains;
    - ``gpgc fit --overwrite, or in Python model.review(dataset)``, also with a semicolon: the
      clause that begins with *in Python* is left out, up to the end of the sentence, the next
      semicolon or the closing bracket;
    - ``(in Python max_rows=100)``, which is left out.

    Examples
    --------
    >>> from gpgc_dask.core.text import options_only
    >>> options_only("continue with resume=True (--resume), or choose another folder")
    'continue with --resume, or choose another folder'
    >>> options_only("fit it again (gpgc fit --overwrite, or in Python model.review(dataset))")
    'fit it again (gpgc fit --overwrite)'
    """
    return _BOTH.sub(r"\1", _PYTHON_ONLY.sub("", message))


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
