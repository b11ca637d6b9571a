"""Progress for people: what work says of itself, and where that is shown."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

from gpgc_dask import meter
from gpgc_dask.live import DONE, STOPPED, LiveLine, in_notebook
from gpgc_dask.meter import Progress, time_text

__all__ = [
    "BEGINNING",
    "FitProgress",
    "Lines",
    "course",
    "decades_to_go",
    "describe",
    "following",
    "progress_listener",
    "seconds_left",
    "tell_work",
    "work_listener",
]

Listener = Callable[[dict[str, Any]], None]

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


# -- who hears of it ---------------------------------------------------------------------------


def progress_listener(
    progress: bool | Listener | None, *, kept: bool = False
) -> tuple[Listener, ...]:
    """The ``progress`` of a fit as listeners: True is a live line in a notebook, else prints.

    A callable is called; if it has a method ``reading``, that is called with a
    :class:`~gpgc_dask.meter.Progress` of each read of the data. ``kept``: see :class:`LiveFit`.
    """
    if _check(progress) is not True:
        return () if isinstance(progress, bool) or progress is None else (progress,)
    return (LiveFit(kept=kept),) if in_notebook() else (_print,)


@contextmanager
def following(listeners: Sequence[Listener]) -> Iterator[list[LiveFit]]:
    """Those of a fit's listeners that show its beginning and its end, while it lasts."""
    live = [each for each in listeners if isinstance(each, LiveFit)]
    with ExitStack() as stack:
        for each in live:
            stack.enter_context(each)
        yield live


@contextmanager
def work_listener(progress: bool | meter.Listener | None) -> Iterator[meter.Listener | None]:
    """The ``progress`` of other work as a listener, for as long as the work lasts."""
    if _check(progress) is not True:
        yield None if isinstance(progress, bool) else progress
    elif in_notebook():
        with LiveLine() as line:
            yield partial(tell_work, line.show)
    else:
        yield partial(tell_work, Lines().show)


def _check(progress: Any) -> Any:
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress must be True, False, None or a callable, got {progress!r}")
    return progress


def _print(entry: dict[str, Any]) -> None:
    print(describe(entry), file=sys.stderr, flush=True)
