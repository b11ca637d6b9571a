"""Progress of a computation while it runs, by the number of its finished tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dask.callbacks import Callback
from distributed import Client
from distributed.comm import CommClosedError

from gpgc_dask.core.progress import Listener, Meter
from gpgc_dask.execution.private import ask_scheduler

__all__ = ["ANSWER_SECONDS", "Watch"]

MAX_POLLED = 500
"""Number of tasks whose states are requested at a time; of more tasks, a sample."""

ANSWER_SECONDS = 5.0
"""Seconds within which a scheduler must answer."""

DONE = ("memory", "released")
"""States of tasks whose result is in memory, or has been used already."""


class Watch:
    """Reports to a listener how many of the tasks with these keys are done.

    Parameters
    ----------
    listener : callable
        Called with a :class:`~gpgc_dask.core.progress.Progress`.
    phase : str
        Name of the computation.
    keys : sequence
        Keys of the tasks.
    """

    def __init__(self, listener: Listener, phase: str, keys: Sequence[Any]) -> None:
        self.keys = list(keys)
        self.meter = Meter(listener, phase, len(self.keys))

    def on_threads(self) -> Callback:
        """A context in which Dask's schedulers without a cluster report every finished task."""
        keys = set(self.keys)

        def after(key: Any, *rest: Any) -> None:
            if key in keys:
                self.meter(1, 0)

        return Callback(posttask=after)

    def poll(self, client: Client) -> None:
        """Request the states of tasks from the scheduler once, and report them."""
        sample = self.keys[:: -(-len(self.keys) // MAX_POLLED)]
        with suppress(TimeoutError, OSError, CommClosedError):
            states = ask_scheduler(client, "get_task_status", ANSWER_SECONDS, keys=sample)
            share = sum(states.get(key) in DONE for key in sample) / len(sample)
            # Results that were lost with a worker are computed again: the number must not fall.
            self.meter(max(int(share * self.meter.total) - self.meter.done, 0), 0)
