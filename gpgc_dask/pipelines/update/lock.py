"""One update of a dataset at a time.

In a local folder the operating system releases the lock of a process that has died. An object store
has no locks: there the owner writes a new value every few seconds, and an owner whose value does
not change for some time has died.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

from gpgc_dask.core import config
from gpgc_dask.core.errors import StoppedError
from gpgc_dask.data.schema import UPDATE_FOLDER
from gpgc_dask.storage.location import Location

__all__ = ["UpdateLock", "update_lock"]

KEY = f"{UPDATE_FOLDER}/lock"

BEATS = 5
"""New values of a living owner until it would be taken for dead."""


class UpdateLock(Protocol):
    """The right to update a dataset, while the context lasts."""

    def __enter__(self) -> Self:
        """Take the lock; raise a StoppedError if another process has it."""

    def __exit__(self, *error: Any) -> None: ...

    def check(self) -> None:
        """Raise a StoppedError if another process has taken the lock."""


def update_lock(location: Location) -> UpdateLock:
    """The lock of a dataset."""
    return LocalLock(location) if location.is_local else RemoteLock(location)


def _locked_error(location: Location) -> StoppedError:
    return StoppedError(f"another gpgc update of {location} is running: wait until it has finished")


def _lost_error(location: Location) -> StoppedError:
    return StoppedError(
        f"another gpgc update works on {location} now, so this one stops: let one finish"
    )


class LocalLock:
    """A lock on a file of a local dataset."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.path = Path(location.url) / KEY

    def __enter__(self) -> Self:
        import fcntl  # which Windows does not have

        while True:
            self.path.parent.mkdir(exist_ok=True)
            try:
                self.file = os.open(self.path, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:  # the previous owner has just removed the folder
                continue
            try:
                fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self.file)
                raise _locked_error(self.location) from None
            if self._is_own():
                return self
            # The previous owner has removed the file between the two calls.
            os.close(self.file)

    def _is_own(self) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.file), os.stat(self.path))
        return False

    def check(self) -> None:
        if not self._is_own():
            raise _lost_error(self.location)

    def __exit__(self, *error: Any) -> None:
        if self._is_own():
            self.path.unlink()
            with suppress(OSError):  # it is not empty: unfinished work is kept
                self.path.parent.rmdir()
        os.close(self.file)


class RemoteLock:
    """An object that its owner writes again and again."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.token = uuid.uuid4().hex
        self.seconds = config.seconds("update.stale-after")
        self.stopped = threading.Event()
        self.writer = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Self:
        self._wait_for_owner()
        self._write(0)
        self.check()
        self.writer.start()
        return self

    def _wait_for_owner(self) -> None:
        """Return when there is no owner, or it has died; raise a StoppedError if it lives."""
        first, start = self._read(), time.monotonic()
        while first is not None and time.monotonic() - start < self.seconds:
            time.sleep(min(self.seconds / BEATS, 1.0))
            now = self._read()
            if now is None:
                return
            if now != first:
                raise _locked_error(self.location)

    def _read(self) -> str | None:
        try:
            return self.location.read(KEY).decode()
        except FileNotFoundError:
            return None

    def _write(self, number: int) -> None:
        self.location.write(KEY, f"{self.token} {number}".encode())

    def _keep(self) -> None:
        number = 0
        while not self.stopped.wait(self.seconds / BEATS):
            number += 1
            # A request that fails is noticed by the next check.
            with suppress(Exception):
                self.check()
                self._write(number)

    def check(self) -> None:
        if (self._read() or "").partition(" ")[0] != self.token:
            raise _lost_error(self.location)

    def __exit__(self, *error: Any) -> None:
        self.stopped.set()
        self.writer.join()
        with suppress(StoppedError):
            self.check()
            self.location.remove(KEY)
