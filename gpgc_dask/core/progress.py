"""Progress of long work: what it reports, and where that is shown.

Work on many things reports :class:`Progress` events through a :class:`Meter`; a fit reports the
entries of its ``history_``. Both are shown as lines on stderr here; the command line and notebooks
have displays of their own.
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
    "BEGINNING",
    "FitListener",
    "FitProgress",
    "Lines",
    "Listener",
    "Meter",
    "Progress",
    "course",
    "decades_to_go",
    "describe",
    "following",
    "progress_listener",
    "seconds_left",
    "tell_work",
    "work_listener",
]


@dataclass(frozen=True)
class Progress:
    """Where work stands.

    phase : "images", in an ingest then "writing" (the chunks); of a read of the data, its name
    """

    phase: str
    done: int
    total: int
    skipped: int
    rate: float
    """A second, in this run."""

    @property
    def seconds_left(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate > 0 else None


Listener = Callable[[Progress], None]


class Meter:
    """Counts what is done and tells the listener, with the rate of this run."""

    def __init__(self, listener: Listener | None, phase: str, total: int, done: int = 0) -> None:
        self.listener, self.phase, self.total = listener, phase, total
        self.done = self.begun = done
        self.start = time.perf_counter()
        self(0, 0)

    def __call__(self, more: int, skipped: int) -> None:
        self.done += more
        elapsed = max(time.perf_counter() - self.start, 1e-9)
        rate = (self.done - self.begun) / elapsed
        if self.listener is not None:
            self.listener(Progress(self.phase, self.done, self.total, skipped, rate))


FitListener = Callable[[dict[str, Any]], None]

PLAIN_SECONDS = 5.0
"""Between two lines of progress where nobody watches a terminal."""

SPARSENESS = 0.01
"""The same as a share of the time that has passed: a night is told in some hundred lines."""


BEGINNING = "reading the data"
"""What a fit tells before its first entry."""


class Show(Protocol):
    """Where progress is shown.

    name : the stage;  told : how far it is;  share : of it, 0 to 1, None where nobody knows
    ends : whether it is done, or just begun: what must not be missed
    """

    def __call__(
        self, name: str, told: str, share: float | None, *, ends: bool = False
    ) -> None: ...


def decades_to_go(entry: dict[str, Any]) -> float:
    """log10 of the predicted gain over the tolerance: 0 or less is at the tolerance."""
    return math.log10(max(entry["predicted_gain"], 1e-300) / entry["gain_tolerance"])


def course(entries: Sequence[dict[str, Any]]) -> tuple[str, list[float], list[float]]:
    """(what x is, x, decades to go) of a fit: by reads of the data, by steps where one read did."""
    to_go = [decades_to_go(entry) for entry in entries]
    reads = [float(entry["reads"]) for entry in entries]
    if len(reads) > 1 and reads[0] == reads[-1]:
        return "steps", [float(step) for step in range(1, 1 + len(reads))], to_go
    return "reads of the data", reads, to_go


def seconds_left(entries: Sequence[dict[str, Any]], window: int = 4) -> float | None:
    """How long a fit has to go, by the speed at which its last entries neared the tolerance.

    None where that cannot be told: at the beginning, or while the gain does not fall.
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


def describe(entry: dict[str, Any]) -> str:
    """One line: where the fit stands and how far it has to go, in log10 of the gain."""
    to_go = decades_to_go(entry)
    seconds = sum(entry["seconds"].values())
    parts = [
        f"{entry['phase']:>11} {entry['iteration']:3d}",
        f"reads {entry['reads']:.3g}",
        f"log evidence {entry['log_evidence']:.3f}",
        f"c {entry['redundancy']:.3f}",
        "at the tolerance" if to_go <= 0 else f"10^{to_go:.1f} above the tolerance",
        f"{seconds:.2f} s",
    ]
    return "  ".join(parts)


# -- what is told ------------------------------------------------------------------------------


class FitProgress:
    """A listener of a fit: where it stands and how far it has to go, in one line.

    Besides the entries of ``history_`` it hears how far each read of the data is.
    """

    def __init__(self, show: Show) -> None:
        self.show = show
        self.entries: list[dict[str, Any]] = []
        self.told = BEGINNING
        self.share: float | None = None

    def __call__(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        first, to_go = (decades_to_go(self.entries[i]) for i in (0, -1))
        arrived = to_go <= 0
        distance = "at the tolerance" if arrived else f"10^{to_go:.1f} above the tolerance"
        self.told = (
            f"{entry['phase']}  reads {entry['reads']:.3g}  "
            f"log evidence {entry['log_evidence']:.1f}  {distance}"
        )
        left = seconds_left(self.entries)
        if not arrived and left is not None:
            self.told += f"  {time_text(left)} left"
        self.share = 1.0 if arrived else max(1.0 - to_go / first, 0.0) if first > 0 else 0.0
        self.show("fit", self.told, self.share, ends=arrived)

    def reading(self, progress: Progress) -> None:
        """How far the read is that is under way: ``phase`` is its name in Dask's dashboard."""
        told = f"{progress.phase} {progress.done / progress.total:.0%}"
        self.show("fit", f"{self.told}  {told}", self.share)


def tell_work(show: Show, progress: Progress) -> None:
    """Work on many images: how many are done, how fast, and how long it takes yet."""
    done, total = progress.done, progress.total
    parts = [f"{done:,}/{total:,}"]
    if progress.rate:
        parts.append(f"{progress.rate:.1f}/s")
        if done < total:
            parts.append(f"{time_text(progress.seconds_left)} left")
    if progress.skipped:
        parts.append(f"{progress.skipped} skipped")
    show(progress.phase, "  ".join(parts), done / total if total else 1.0, ends=done == total)


# -- where it is shown -------------------------------------------------------------------------


class Lines:
    """Lines on stderr, now and then."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.spoken = -math.inf

    def show(self, name: str, told: str, share: float | None, *, ends: bool = False) -> None:
        now = time.monotonic()
        pause = max(PLAIN_SECONDS, SPARSENESS * (now - self.begun))
        if ends or now - self.spoken > pause:
            self.spoken = now
            print(f"{name} {told}", file=sys.stderr, flush=True)


# -- who hears of it ---------------------------------------------------------------------------


def progress_listener(
    progress: bool | FitListener | None, *, kept: bool = False
) -> tuple[FitListener, ...]:
    """The ``progress`` of a fit as listeners: True is a live line in a notebook, else prints.

    A callable is called; if it has a method ``reading``, that is called with a
    :class:`Progress` of each read of the data. ``kept``: whether a checkpoint holds what a fit
    that is stopped has reached.
    """
    if _check(progress) is not True:
        return () if isinstance(progress, bool) or progress is None else (progress,)
    if not in_notebook():
        return (_print,)
    live: FitListener = notebook_module("progress").LiveFit(kept=kept)
    return (live,)


@contextmanager
def following(listeners: Sequence[FitListener]) -> Iterator[list[Any]]:
    """The listeners that also show where a fit begins and ends, entered while the fit lasts."""
    live: list[Any] = [each for each in listeners if hasattr(each, "__enter__")]
    with ExitStack() as stack:
        for each in live:
            stack.enter_context(each)
        yield live


@contextmanager
def work_listener(progress: bool | Listener | None) -> Iterator[Listener | None]:
    """The ``progress`` of other work as a listener, for as long as the work lasts."""
    if _check(progress) is not True:
        yield None if isinstance(progress, bool) else progress
    elif in_notebook():
        with notebook_module("progress").LiveLine() as line:
            yield partial(tell_work, line.show)
    else:
        yield partial(tell_work, Lines().show)


def _check(progress: Any) -> Any:
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise InputTypeError(f"progress must be True, False, None or a callable, got {progress!r}")
    return progress


def _print(entry: dict[str, Any]) -> None:
    print(describe(entry), file=sys.stderr, flush=True)
