"""Progress of long work: events, estimates, and lines on stderr.

Work on many items reports :class:`Progress` events through a :class:`Meter`; a fit reports the
entries of its ``history_``. Both become one line of text and a share between 0 and 1, which a
display shows: :class:`LineDisplay` here, bars in the command line program, and one live line in
notebooks.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from gpgc_dask.core.display import in_notebook, notebook_module
from gpgc_dask.core.errors import InputTypeError
from gpgc_dask.core.text import time_text

__all__ = [
    "FIRST_TEXT",
    "SECOND_LOOK",
    "FitListener",
    "FitProgress",
    "LineDisplay",
    "Listener",
    "Meter",
    "Progress",
    "convergence_curve",
    "decades_to_go",
    "describe",
    "fit_listeners",
    "open_listeners",
    "seconds_left",
    "show_work",
    "work_listener",
]


@dataclass(frozen=True)
class Progress:
    """State of work on many items.

    Attributes
    ----------
    phase : str
        What is counted: "images", in an ingest then "writing" (chunks); for a read of the data,
        the name of the read.
    done, total : int
        Number of finished items, and of all items.
    skipped : int
        Number of items that were skipped.
    rate : float
        Items per second in this run.
    """

    phase: str
    done: int
    total: int
    skipped: int
    rate: float

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end; None if there is no estimate."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


Listener = Callable[[Progress], None]


class Meter:
    """Counts finished items and reports them to a listener.

    Parameters
    ----------
    listener : callable or None
        Called with a :class:`Progress` at the start and after each call.
    phase : str
        What is counted.
    total : int
        Number of all items.
    done : int, default 0
        Number of items that an earlier run finished.
    """

    def __init__(self, listener: Listener | None, phase: str, total: int, done: int = 0) -> None:
        self.listener, self.phase, self.total = listener, phase, total
        self.done = self.done_before = done
        self.start = time.perf_counter()
        self(0, 0)

    def __call__(self, more: int, skipped: int) -> None:
        self.done += more
        elapsed = max(time.perf_counter() - self.start, 1e-9)
        rate = (self.done - self.done_before) / elapsed
        if self.listener is not None:
            self.listener(Progress(self.phase, self.done, self.total, skipped, rate))


FitListener = Callable[[dict[str, Any]], None]

MIN_LINE_SECONDS = 5.0
"""Seconds between two lines of progress at least."""

MIN_LINE_SHARE = 0.01
"""The same as a share of the elapsed time: ten hours give some hundred lines."""

SECOND_LOOK = "second look"
"""Start of the phase of entries of ``history_`` that are rounds of the second look."""

FIRST_TEXT = "reading the data"
"""Text of a fit before its first entry."""


class Show(Protocol):
    """A function that shows progress.

    Parameters
    ----------
    name : str
        Name of the stage.
    text : str
        State of the stage.
    share : float or None
        Share of the stage that is done, 0 to 1; None if it is unknown.
    important : bool, default False
        Whether it must be shown: the stage has just begun, or ended.
    """

    def __call__(
        self, name: str, text: str, share: float | None, *, important: bool = False
    ) -> None: ...


# -- estimates ---------------------------------------------------------------------------------


def decades_to_go(entry: dict[str, Any]) -> float:
    """log10 of the predicted gain over the tolerance: 0 or less is at the tolerance."""
    return math.log10(max(entry["predicted_gain"], 1e-300) / entry["gain_tolerance"])


def convergence_curve(entries: Sequence[dict[str, Any]]) -> tuple[str, list[float], list[float]]:
    """Points of a plot of the convergence of a fit.

    Parameters
    ----------
    entries : sequence of dict
        Entries of ``history_``.

    Returns
    -------
    tuple of (str, list of float, list of float)
        Label of x, x, and the decades to go. x are reads of the data, or steps if all steps used
        the same read. Rounds of the second look, after the convergence, are left out.
    """
    entries = [entry for entry in entries if not entry["phase"].startswith(SECOND_LOOK)]
    to_go = [decades_to_go(entry) for entry in entries]
    reads = [float(entry["reads"]) for entry in entries]
    if len(reads) > 1 and reads[0] == reads[-1]:
        return "steps", [float(step) for step in range(1, 1 + len(reads))], to_go
    return "reads of the data", reads, to_go


def seconds_left(entries: Sequence[dict[str, Any]], window: int = 4) -> float | None:
    """Estimated seconds until the end of a fit, from the speed of its last entries.

    None if there is no estimate: at the start, or while the predicted gain does not fall.
    """
    last = entries[-window:]
    if len(last) < 2:
        return None
    to_go = [decades_to_go(entry) for entry in last]
    steps = len(last) - 1
    speed = (to_go[0] - to_go[-1]) / steps
    if to_go[-1] <= 0:
        return 0.0
    if speed <= 0:
        return None
    step_seconds = sum(sum(entry["seconds"].values()) for entry in last[1:]) / steps
    return math.ceil(to_go[-1] / speed) * step_seconds


# -- texts -------------------------------------------------------------------------------------


def describe(entry: dict[str, Any]) -> str:
    """An entry of ``history_`` in one line; the distance is log10 of the predicted gain."""
    seconds = sum(entry["seconds"].values())
    parts = [
        f"{entry['phase']:>11} {entry['iteration']:3d}",
        f"reads {entry['reads']:.3g}",
        f"log evidence {entry['log_evidence']:.3f}",
        f"c {entry['redundancy']:.3f}",
        _distance(entry),
        f"{seconds:.2f} s",
    ]
    return "  ".join(parts)


def _distance(entry: dict[str, Any]) -> str:
    to_go = decades_to_go(entry)
    return "at the tolerance" if to_go <= 0 else f"10^{to_go:.1f} above the tolerance"


class FitProgress:
    """A listener of a fit that shows its state in one line.

    Parameters
    ----------
    show : Show
        Function that shows the line.
    """

    def __init__(self, show: Show) -> None:
        self.show = show
        self.entries: list[dict[str, Any]] = []
        self.text = FIRST_TEXT
        self.share: float | None = None

    def __call__(self, entry: dict[str, Any]) -> None:
        """Show the state after an entry of ``history_``."""
        self.entries.append(entry)
        first, to_go = (decades_to_go(self.entries[i]) for i in (0, -1))
        converged = to_go <= 0
        self.text = (
            f"{entry['phase']}  reads {entry['reads']:.3g}  "
            f"log evidence {entry['log_evidence']:.1f}  {_distance(entry)}"
        )
        left = seconds_left(self.entries)
        if not converged and left is not None:
            self.text += f"  {time_text(left)} left"
        self.share = 1.0 if converged else max(1.0 - to_go / first, 0.0) if first > 0 else 0.0
        self.show("fit", self.text, self.share, important=converged)

    def reading(self, progress: Progress) -> None:
        """Show the state of the current read; ``phase`` is its name in Dask's dashboard."""
        read = f"{progress.phase} {progress.done / progress.total:.0%}"
        self.show("fit", f"{self.text}  {read}", self.share)


def show_work(show: Show, progress: Progress) -> None:
    """Show the number of finished items, their rate and the remaining time."""
    done, total = progress.done, progress.total
    parts = [f"{done:,}/{total:,}"]
    if progress.rate:
        parts.append(f"{progress.rate:.1f}/s")
        if done < total:
            parts.append(f"{time_text(progress.seconds_left)} left")
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped")
    share = done / total if total else 1.0
    show(progress.phase, "  ".join(parts), share, important=done == total)


# -- displays and listeners --------------------------------------------------------------------


class LineDisplay:
    """Shows progress as lines on stderr, every few seconds."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.last_line = -math.inf

    def show(self, name: str, text: str, share: float | None, *, important: bool = False) -> None:
        """Print a line if it is important, or if the last one was printed long enough ago."""
        now = time.monotonic()
        pause = max(MIN_LINE_SECONDS, MIN_LINE_SHARE * (now - self.start))
        if important or now - self.last_line > pause:
            self.last_line = now
            print(f"{name} {text}", file=sys.stderr, flush=True)


def fit_listeners(
    progress: bool | FitListener | None, *, has_checkpoint: bool = False
) -> tuple[FitListener, ...]:
    """Listeners for the argument ``progress`` of a fit.

    Parameters
    ----------
    progress : bool, callable or None
        True shows a live line in a notebook, and prints lines elsewhere. A callable is called with
        each entry of ``history_``; its method ``reading``, if it has one, is called with a
        :class:`Progress` of each read of the data.
    has_checkpoint : bool, default False
        Whether a checkpoint keeps the state of a fit that is stopped.
    """
    if _check_progress(progress) is not True:
        return () if isinstance(progress, bool) or progress is None else (progress,)
    if not in_notebook():
        return (_print,)
    live: FitListener = notebook_module("progress").LiveFit(has_checkpoint=has_checkpoint)
    return (live,)


@contextmanager
def open_listeners(listeners: Sequence[FitListener]) -> Iterator[list[Any]]:
    """Enter the listeners that are contexts, because they also show the start and end of a fit."""
    contexts: list[Any] = [each for each in listeners if hasattr(each, "__enter__")]
    with ExitStack() as stack:
        for each in contexts:
            stack.enter_context(each)
        yield contexts


@contextmanager
def work_listener(progress: bool | Listener | None) -> Iterator[Listener | None]:
    """A context with the listener for the argument ``progress`` of other work than a fit."""
    if _check_progress(progress) is not True:
        yield None if isinstance(progress, bool) else progress
    elif in_notebook():
        with notebook_module("progress").LiveLine() as line:
            yield partial(show_work, line.show)
    else:
        yield partial(show_work, LineDisplay().show)


def _check_progress(progress: Any) -> Any:
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InputTypeError(f"progress must be True, False, None or a callable, got {progress!r}")
    return progress


def _print(entry: dict[str, Any]) -> None:
    print(describe(entry), file=sys.stderr, flush=True)
