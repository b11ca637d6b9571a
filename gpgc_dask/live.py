"""One line in a notebook that says how far work is, replaced in place."""

from __future__ import annotations

import html
import sys
import time
from dataclasses import dataclass
from typing import Any, Self

from gpgc_dask.meter import time_text

__all__ = ["LiveLine", "in_notebook"]

LEAST_SECONDS = 0.1
"""Between two pictures of the line: more often than this nobody sees."""

BAR = 12
"""Letters of the bar where only text is shown."""

RUNNING, DONE, STOPPED, FAILED = "", "✓", "■", "✗"

STYLE = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap"


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, which shows pictures and replaces them."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


@dataclass(frozen=True)
class Line:
    """What is shown: the stage, what is told of it, and a bar of the share that is done.

    ``share`` is 0 to 1, None where nobody knows. Work that has ended has a ``mark``, and no bar.
    """

    name: str
    told: str
    share: float | None
    mark: str = RUNNING

    def _repr_mimebundle_(self, **given: Any) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def text(self) -> str:
        filled = round(BAR * (self.share or 0.0))
        head = self.mark or f"[{'#' * filled}{'-' * (BAR - filled)}]"
        return f"{head} {self.name}  {self.told}"

    def html(self) -> str:
        value = "" if self.share is None else f' value="{self.share:.3f}"'
        head = self.mark or f'<progress max="1"{value} style="vertical-align:middle"></progress>'
        name, told = html.escape(self.name), html.escape(self.told)
        return f'<div style="{STYLE}">{head} <b>{name}</b>  {told}</div>'


class LiveLine:
    """A context in which :meth:`show` replaces what was shown before; its end is shown too."""

    def __init__(self) -> None:
        self.line = Line("", "", None)
        self.start = time.monotonic()
        self.spoken = 0.0
        self.handle: Any = None

    def show(self, name: str, told: str, share: float | None, *, ends: bool = False) -> None:
        """What is under way. Where one thing follows soon on another, only the last is seen."""
        self.line = Line(name, told, share)
        now = time.monotonic()
        if ends or now - self.spoken > LEAST_SECONDS:
            self.spoken = now
            self._draw()

    def end(self, told: str, mark: str) -> None:
        """The last word."""
        self.line = Line(self.line.name, told, None, mark)
        self._draw()

    @property
    def took(self) -> str:
        return time_text(time.monotonic() - self.start)

    def _draw(self) -> None:
        if self.handle is None:
            from IPython.display import display

            self.handle = display(self.line, display_id=True)
        else:
            self.handle.update(self.line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if self.line.mark or not self.line.name:
            return
        if error is None:
            self.end(f"{self.line.told}  done in {self.took}", DONE)
        elif isinstance(error, KeyboardInterrupt):
            self.end(f"stopped at  {self.line.told}", STOPPED)
        else:
            self.end(f"failed at  {self.line.told}", FAILED)
