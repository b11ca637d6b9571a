"""How far a computation is while it runs, by the number of its tasks that are done."""

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

MOST_ASKED = 500
"""Tasks that a scheduler is asked about at once: of more, as many spread over all."""

ANSWER_SECONDS = 5.0
"""How long a scheduler may take to answer."""

DONE = ("memory", "released")
"""What a scheduler calls tasks whose result is there, or has been used up already."""


class Watch:
    """Tells a listener how many of the tasks with these keys are done, under the name ``phase``."""

    def __init__(self, listener: Listener, phase: str, keys: Sequence[Any]) -> None:
        self.keys = list(keys)
        self.meter = Meter(listener, phase, len(self.keys))

    def on_threads(self) -> Callback:
        """A context in which Dask's own schedulers tell of every task that is done."""
        known = set(self.keys)

        def after(key: Any, *rest: Any) -> None:
            if key in known:
                self.meter(1, 0)

        return Callback(posttask=after)

    def ask(self, client: Client) -> None:
        """Ask the scheduler once, and tell."""
        asked = self.keys[:: -(-len(self.keys) // MOST_ASKED)]
        with suppress(TimeoutError, OSError, CommClosedError):
            states = ask_scheduler(client, "get_task_status", ANSWER_SECONDS, keys=asked)
            share = sum(states.get(key) in DONE for key in asked) / len(asked)
            # What died with a worker is done again, without saying so.
            self.meter(max(int(share * self.meter.total) - self.meter.done, 0), 0)
