"""One line of progress in a notebook, which is replaced in place.

rich is not used here: its live display in notebooks needs ipywidgets, and writes several lines.
"""

from __future__ import annotations

import html
import time
from dataclasses import dataclass
from typing import Any, Self

from gpgc_dask.core.progress import FitProgress
from gpgc_dask.core.text import time_text

__all__ = ["LiveFit", "LiveLine"]

MIN_SECONDS = 0.1
"""Seconds between two updates of the line at least."""

BAR = 12
"""Characters of the bar in plain text."""

RUNNING, DONE, STOPPED, FAILED = "", "✓", "■", "✗"

STYLE = "font-family:var(--jp-code-font-family,monospace);white-space:pre-wrap"


@dataclass(frozen=True)
class Line:
    """What is shown.

    Attributes
    ----------
    name : str
        Name of the stage.
    state : str
        State of the stage.
    share : float or None
        Share that is done, 0 to 1, shown as a bar; None if it is unknown.
    mark : str
        Mark of work that has ended, in place of the bar.
    """

    name: str
    state: str
    share: float | None
    mark: str = RUNNING

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def text(self) -> str:
        filled = round(BAR * (self.share or 0.0))
        head = self.mark or f"[{'#' * filled}{'-' * (BAR - filled)}]"
        return f"{head} {self.name}  {self.state}"

    def html(self) -> str:
        value = "" if self.share is None else f' value="{self.share:.3f}"'
        head = self.mark or f'<progress max="1"{value} style="vertical-align:middle"></progress>'
        name, state = html.escape(self.name), html.escape(self.state)
        return f'<div style="{STYLE}">{head} <b>{name}</b>  {state}</div>'


class LiveLine:
    """A context in which :meth:`show` replaces the previous line; its end is shown, too."""

    def __init__(self) -> None:
        self.line = Line("", "", None)
        self.start = time.monotonic()
        self.last_update = 0.0
        self.handle: Any = None

    def show(self, name: str, text: str, share: float | None, *, important: bool = False) -> None:
        """Show a state; of several in quick succession, only some are shown."""
        self.line = Line(name, text, share)
        now = time.monotonic()
        if important or now - self.last_update > MIN_SECONDS:
            self.last_update = now
            self._draw()

    def end(self, text: str, mark: str) -> None:
        """Show the final state."""
        self.line = Line(self.line.name, text, None, mark)
        self._draw()

    @property
    def elapsed(self) -> str:
        """Time since the start, as text."""
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
            self.end(f"{self.line.state}  done in {self.elapsed}", DONE)
        elif isinstance(error, KeyboardInterrupt):
            self.end(f"stopped at  {self.line.state}", STOPPED)
        else:
            self.end(f"failed at  {self.line.state}", FAILED)


class LiveFit(FitProgress):
    """A listener that shows a fit in one line of a notebook, from its start to its end.

    Parameters
    ----------
    has_checkpoint : bool
        Whether a checkpoint keeps the state of a fit that is stopped.
    """

    settled = False

    def __init__(self, *, has_checkpoint: bool) -> None:
        self.line = LiveLine()
        self.has_checkpoint = has_checkpoint
        super().__init__(self.line.show)

    def __enter__(self) -> None:
        self.show("fit", self.text, None, important=True)

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None and self.entries:
            last = self.entries[-1]
            end = "converged" if self.settled else "stopped before it converged"
            self.line.end(
                f"{end} after {last['reads']:.3g} reads in {self.line.elapsed}  "
                f"log evidence {last['log_evidence']:.1f}",
                DONE if self.settled else STOPPED,
            )
        elif isinstance(error, KeyboardInterrupt) and self.has_checkpoint and self.entries:
            self.line.end(f"stopped; fit again to resume from  {self.text}", STOPPED)
        self.line.__exit__(kind, error, traceback)
