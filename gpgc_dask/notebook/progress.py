"""One line in a notebook that says how far work is, replaced in place."""

from __future__ import annotations

import html
import time
from dataclasses import dataclass
from typing import Any, Self

from gpgc_dask.core.progress import FitProgress
from gpgc_dask.core.text import time_text

__all__ = ["LiveFit", "LiveLine"]

LEAST_SECONDS = 0.1
"""Between two pictures of the line: more often than this nobody sees."""

BAR = 12
"""Letters of the bar where only text is shown."""

RUNNING, DONE, STOPPED, FAILED = "", "✓", "■", "✗"

STYLE = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap"


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


class LiveFit(FitProgress):
    """A fit in a notebook: one line from its beginning to its end.

    ``kept``: whether a checkpoint holds what a fit that is stopped has reached.
    """

    settled = False

    def __init__(self, *, kept: bool) -> None:
        self.line = LiveLine()
        self.kept = kept
        super().__init__(self.line.show)

    def __enter__(self) -> None:
        self.show("fit", self.told, None, ends=True)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None and self.entries:
            last = self.entries[-1]
            end = "settled" if self.settled else "stopped before it settled"
            self.line.end(
                f"{end} after {last['reads']:.3g} reads in {self.line.took}  "
                f"log evidence {last['log_evidence']:.1f}",
                DONE if self.settled else STOPPED,
            )
        elif isinstance(error, KeyboardInterrupt) and self.kept and self.entries:
            self.line.end(f"stopped; fit again to go on from  {self.told}", STOPPED)
        self.line.__exit__(kind, error, traceback)
