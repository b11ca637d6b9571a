"""Forwarded ports of a scheduler whose pod is gone: one line instead of tracebacks."""

from __future__ import annotations

import logging
import threading
import time
import traceback

__all__ = ["report_lost_ports_once"]

log = logging.getLogger("gpgc_dask")

FORWARDING = "kr8s/_portforward.py"
"""File of kr8s in which connections to a pod are forwarded."""

QUIET_SECONDS = 60.0
"""Failures that follow each other more closely are of one event."""


class _LostPorts(logging.Filter):
    """Drops asyncio's reports of failed connections to a pod, and reports the first in one line.

    The connection is tried again and again while the operator starts another scheduler, and asyncio
    logs each failure with its traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._last = -QUIET_SECONDS

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is of something else."""
        if not _is_of_forwarding(record) or log.isEnabledFor(logging.DEBUG):
            return True
        now = time.monotonic()
        with self._lock:  # each forwarded port has a thread
            is_first = now - self._last >= QUIET_SECONDS
            self._last = now
        if is_first:
            error = record.exc_info[1] if record.exc_info else None
            log.warning(
                "the connection to the scheduler's pod is lost (%s): it is tried again, while the "
                "operator starts another pod",
                error,
            )
        return False


def report_lost_ports_once() -> None:
    """Replace the tracebacks of lost connections to pods by one line, in this process."""
    logger = logging.getLogger("asyncio")
    if not any(isinstance(each, _LostPorts) for each in logger.filters):
        logger.addFilter(_LostPorts())


def _is_of_forwarding(record: logging.LogRecord) -> bool:
    if not record.exc_info or record.exc_info[2] is None:
        return False
    frames = traceback.walk_tb(record.exc_info[2])
    names = (frame.f_code.co_filename.replace("\\", "/") for frame, _ in frames)
    return any(name.endswith(FORWARDING) for name in names)
