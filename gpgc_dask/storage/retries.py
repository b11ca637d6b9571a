"""Requests to stores that fail temporarily are repeated, with longer and longer pauses.

obstore's and botocore's own retries are turned off (see :mod:`gpgc_dask.storage.object_store`):
they neither log what they repeat nor count it, and two layers would multiply the waiting. The
settings ``gpgc.store.*`` are described in :data:`gpgc_dask.core.config.DEFAULTS`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpgc_dask.core import config
from gpgc_dask.core.errors import AccessDeniedError, StoreError

__all__ = ["hide_secrets", "is_transient", "with_retries", "with_retries_async"]

log = logging.getLogger("gpgc_dask")

Result = TypeVar("Result")

PAUSE_GROWTH = 3.0

PERMANENT_ERRORS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
PERMANENT_NUMBERS = {
    errno.EDQUOT,
    errno.EINVAL,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOSYS,
    errno.EPERM,
    errno.EROFS,
    getattr(errno, "EREMCHG", errno.EINVAL),  # a bucket of another region; only Linux has it
}
"""Errors of files, and those that s3fs translates to them, that no waiting fixes."""

TRANSIENT_NAMES = {
    "aiohttp.client_exceptions.ClientError",
    "botocore.exceptions.ConnectionError",
    "botocore.exceptions.HTTPClientError",
    "botocore.parsers.ResponseParserError",
    "obstore.exceptions.GenericError",
}
"""Errors of connections, and answers such as "slow down", that are not OSErrors.

They are listed by name because none of these packages need be installed.
"""

DENIED_NAMES = {
    "botocore.exceptions.NoCredentialsError",
    "botocore.exceptions.PartialCredentialsError",
    "obstore.exceptions.PermissionDeniedError",
    "obstore.exceptions.UnauthenticatedError",
}

CLIENT_ERROR = re.compile(r"with status (?!408|429)4\d\d")
"""Part of obstore's messages: an answer that would be the same the next time."""

SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
MIN_SECRET_LENGTH = 8
"""Characters of a value that is hidden; shorter values occur within words."""


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, (StoreError, *PERMANENT_ERRORS)) or _is_denied(error):
        return False
    if isinstance(error, OSError):
        return error.errno not in PERMANENT_NUMBERS
    return not TRANSIENT_NAMES.isdisjoint(_class_names(error))


def _is_denied(error: BaseException) -> bool:
    """Whether a store, not the file system, denies access: keys or region are wrong."""
    if isinstance(error, PermissionError):
        return error.filename is None
    names = _class_names(error)
    is_client_error = "obstore.exceptions.GenericError" in names and CLIENT_ERROR.search(str(error))
    return bool(is_client_error) or not DENIED_NAMES.isdisjoint(names)


def with_retries(call: Callable[[], Result], target: str) -> Result:
    """Return ``call()``; repeat it after transient errors.

    Parameters
    ----------
    call : callable
        The request.
    target : str
        Name of the requested object, for messages.

    Raises
    ------
    StoreError
        If the last request that the settings allow fails as well.
    AccessDeniedError
        If the credentials are wrong or missing.
    """
    attempts = _Attempts(target)
    while True:
        try:
            return call()
        except Exception as error:
            pause = attempts.pause_after(error)
        time.sleep(pause)


async def with_retries_async(call: Callable[[], Awaitable[Result]], target: str) -> Result:
    """Asynchronous :func:`with_retries`."""
    attempts = _Attempts(target)
    while True:
        try:
            return await call()
        except Exception as error:
            pause = attempts.pause_after(error)
        await asyncio.sleep(pause)


class _Attempts:
    """The attempts of one request."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.start = time.monotonic()
        self.count = 0

    def pause_after(self, error: Exception) -> float:
        """Seconds to wait before the next attempt; raises if there is none."""
        self.count += 1
        if isinstance(error, (StoreError, AccessDeniedError)):
            raise error
        if _is_denied(error):
            # Without the cause: a store's whole answer may repeat what it was sent.
            raise AccessDeniedError(
                f"{self.target} cannot be accessed with these credentials ({_summary(error)}): "
                "check those in the environment or the standard files, and the region"
            ) from None
        if not is_transient(error):
            if isinstance(error, OSError) and error.filename is None:
                error.add_note(f"at {self.target}")
            raise error
        return self._pause(error)

    def _pause(self, error: Exception) -> float:
        max_count = int(config.number("store.tries"))
        seconds = time.monotonic() - self.start
        pause = config.number("store.wait") * PAUSE_GROWTH ** (self.count - 1)
        pause *= random.uniform(0.5, 1.5)  # workers that failed together do not retry together
        if self.count >= max_count or seconds + pause > config.number("store.seconds"):
            raise StoreError(
                f"{self.target} could not be reached: tried {self.count} times in {seconds:.0f} "
                f"s, last error {_summary(error)}. Try again when the store is available; a fit "
                "resumes with resume=True (--resume), or with the same checkpoint"
            ) from None
        log.warning(
            "%s: %s; again in %.1f s (try %d of %d)",
            self.target,
            _summary(error),
            pause,
            self.count + 1,
            max_count,
        )
        return pause


def _class_names(error: BaseException) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}


def _summary(error: BaseException) -> str:
    """An error in one line, without credentials."""
    lines = str(error).strip().splitlines()
    return hide_secrets(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


def hide_secrets(text: str) -> str:
    """Replace the credentials that are in this process's environment by their names."""
    for name in SECRETS:
        value = os.environ.get(name, "")
        if len(value) >= MIN_SECRET_LENGTH:
            text = text.replace(value, f"[{name}]")
    return text
