"""Stores that fail for a while: the same request again, a few times, waiting longer each time.

All waiting for stores is done here. What may be set, by ``dask.config`` or by the environment of
each process (``DASK_GPGC__STORE__TRIES=10``, for example):

    gpgc.store.tries     requests at most, the first one among them
    gpgc.store.wait      seconds before the second one; three times as long before each next
    gpgc.store.seconds   no request is repeated later than this after the first one
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

__all__ = ["hide_secrets", "may_pass", "patiently", "patiently_async"]

log = logging.getLogger("gpgc_dask")

Result = TypeVar("Result")

GROWTH = 3.0

LASTING = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
LASTING_NUMBERS = {
    errno.EDQUOT,
    errno.EINVAL,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOSYS,
    errno.EPERM,
    errno.EROFS,
    getattr(errno, "EREMCHG", errno.EINVAL),  # a bucket of another region; Linux alone knows it
}
"""What no waiting mends, among the errors of files and those that s3fs translates to them."""

PASSING = {
    "aiohttp.client_exceptions.ClientError",
    "botocore.exceptions.ConnectionError",
    "botocore.exceptions.HTTPClientError",
    "botocore.parsers.ResponseParserError",
    "obstore.exceptions.GenericError",
}
"""Errors of connections, and answers such as "slow down", that are no OSError. By name: none of
these packages need be installed."""

DENIED = {
    "botocore.exceptions.NoCredentialsError",
    "botocore.exceptions.PartialCredentialsError",
    "obstore.exceptions.PermissionDeniedError",
    "obstore.exceptions.UnauthenticatedError",
}

REFUSED = re.compile(r"with status (?!408|429)4\d\d")
"""In what obstore tells: an answer that is the same the next time."""

SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")
LEAST_SECRET = 8
"""Characters of a value that is worth hiding; shorter ones occur in words."""


def may_pass(error: BaseException) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, (StoreError, *LASTING)) or _is_denied(error):
        return False
    if isinstance(error, OSError):
        return error.errno not in LASTING_NUMBERS
    return not PASSING.isdisjoint(_names(error))


def _is_denied(error: BaseException) -> bool:
    """Whether a store, not the file system, will not have us: keys, or the region, are wrong."""
    if isinstance(error, PermissionError):
        return error.filename is None
    names = _names(error)
    refused = "obstore.exceptions.GenericError" in names and REFUSED.search(str(error))
    return bool(refused) or not DENIED.isdisjoint(names)


def patiently(call: Callable[[], Result], what: str) -> Result:
    """``call()``, again if it fails in a way that may pass. ``what`` names the object to people."""
    tries = _Tries(what)
    while True:
        try:
            return call()
        except Exception as error:
            wait = tries.after(error)
        time.sleep(wait)


async def patiently_async(call: Callable[[], Awaitable[Result]], what: str) -> Result:
    """As :func:`patiently`, and others may work meanwhile."""
    tries = _Tries(what)
    while True:
        try:
            return await call()
        except Exception as error:
            wait = tries.after(error)
        await asyncio.sleep(wait)


class _Tries:
    """The tries of one request."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.start = time.monotonic()
        self.done = 0

    def after(self, error: Exception) -> float:
        """Seconds to wait before the next try; an error where there is none."""
        self.done += 1
        if isinstance(error, (StoreError, AccessDeniedError)):
            raise error
        if _is_denied(error):
            # Without the first one: a store's whole answer may repeat what it was sent.
            raise AccessDeniedError(
                f"{self.what} is not open to the credentials at hand ({_told(error)}): check those "
                "of the environment or the standard files, and the region"
            ) from None
        if not may_pass(error):
            if isinstance(error, OSError) and error.filename is None:
                error.add_note(f"at {self.what}")
            raise error
        tries = int(config.number("store.tries"))
        seconds = time.monotonic() - self.start
        wait = config.number("store.wait") * GROWTH ** (self.done - 1)
        wait *= random.uniform(0.5, 1.5)  # so that workers who failed together part company
        limit = config.number("store.seconds")
        if self.done >= tries or seconds + wait > limit:
            raise StoreError(
                f"{self.what} could not be reached: tried {self.done} times in {seconds:.0f} s, at "
                f"last {_told(error)}. Try again when the store is well: a fit goes on with "
                "--resume (resume=True), or with the same checkpoint"
            ) from None
        log.warning(
            "%s: %s; again in %.1f s (try %d of %d)",
            self.what,
            _told(error),
            wait,
            self.done + 1,
            tries,
        )
        return wait


def _names(error: BaseException) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}


def _told(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return hide_secrets(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


def hide_secrets(text: str) -> str:
    """The text without the credentials that this process has in its environment."""
    for name in SECRETS:
        value = os.environ.get(name, "")
        if len(value) >= LEAST_SECRET:
            text = text.replace(value, f"[{name}]")
    return text
