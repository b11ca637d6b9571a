"""Zarr stores at URLs that repeat requests after transient errors.

obstore is used if it is installed and the environment has everything it needs, otherwise fsspec
(s3fs). A store that is sent to a worker is opened again there, from the worker's own environment:
credentials are sent only if the caller passed them as ``storage_options``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any, Self, TypeVar

import fsspec
from zarr.abc.buffer import Buffer, BufferPrototype
from zarr.abc.store import ByteRequest, Store
from zarr.storage import FsspecStore, ObjectStore

from gpgc_dask.storage.retries import with_retries_async

__all__ = ["RetryingStore", "client_options", "uses_obstore"]

Result = TypeVar("Result")

S3_PROTOCOLS = ("s3://", "s3a://")


def client_options(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """fsspec's options for a URL: the given ones, and better defaults for the others.

    botocore does not retry: by default it waits up to 15 seconds in 5 tries, which s3fs may repeat
    5 times. s3fs does not ask for the size of an object before reading it: it does so to read large
    objects in parallel, which chunks are not, and it would be every second request of a fit.
    """
    if not url.startswith(S3_PROTOCOLS):
        return options
    defaults: dict[str, Any] = {"max_concurrency": 1}
    if "AWS_MAX_ATTEMPTS" not in os.environ:
        defaults["config_kwargs"] = {"retries": {"total_max_attempts": 1}}
    return defaults | options


def uses_obstore(url: str, options: dict[str, Any]) -> bool:
    """Whether obstore reads and writes arrays at a URL, with keys and region of the environment.

    It supports neither profiles nor fsspec's options; with these s3fs is used.
    """
    variables = os.environ.keys()
    return (
        url.startswith(S3_PROTOCOLS)
        and not options
        and not fsspec.config.conf.get("s3")
        and {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} <= variables
        and not {"AWS_REGION", "AWS_DEFAULT_REGION", *ENDPOINTS}.isdisjoint(variables)
        and find_spec("obstore") is not None
    )


ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def _obstore(url: str, *, read_only: bool) -> Store:
    from obstore.store import from_url

    endpoint = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), None)
    options: dict[str, Any] = {}
    if endpoint is not None:
        options = {
            "config": {"endpoint": endpoint},
            "client_options": {"allow_http": endpoint.startswith("http://")},
        }
    store = from_url(url.replace("s3a://", "s3://", 1), retry_config={"max_retries": 0}, **options)
    return ObjectStore(store, read_only=read_only)


class RetryingStore(Store):
    """The Zarr store at a URL; requests are repeated after transient errors.

    It is pickled as its URL and options, and is equal to other stores of the same URL.

    Parameters
    ----------
    url : str
        fsspec URL.
    options : dict, optional
        fsspec's options.
    read_only : bool, default False
        Whether writing raises an error.
    """

    def __init__(
        self, url: str, options: dict[str, Any] | None = None, *, read_only: bool = False
    ) -> None:
        super().__init__(read_only=read_only)
        self.url = url
        self._options = options or {}
        # Part of the names of tasks: new for each store, because the content of a URL may change.
        self._token = uuid.uuid4().hex

    @cached_property
    def _inner(self) -> Store:
        if uses_obstore(self.url, self._options):
            return _obstore(self.url, read_only=self.read_only)
        options = client_options(self.url, self._options)
        return FsspecStore.from_url(self.url, options, read_only=self.read_only)

    def __reduce__(self) -> Any:
        return _reopen, (type(self), self.url, self._options, self.read_only, self._token)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self._token

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RetryingStore)
            and (self.url, self._options) == (other.url, other._options)
            and self.read_only == other.read_only
        )

    def __hash__(self) -> int:
        return hash((self.url, self.read_only))

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def with_read_only(self, read_only: bool = False) -> Self:
        return type(self)(self.url, self._options, read_only=read_only)

    async def _request(self, call: Callable[[], Awaitable[Result]], key: str = "") -> Result:
        return await with_retries_async(call, f"{self.url}/{key}" if key else self.url)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return await self._request(partial(self._inner.get, key, prototype, byte_range), key)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        ranges = list(key_ranges)
        return await self._request(partial(self._inner.get_partial_values, prototype, ranges))

    async def exists(self, key: str) -> bool:
        return await self._request(partial(self._inner.exists, key), key)

    @property
    def supports_writes(self) -> bool:
        return True

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._request(partial(self._inner.set, key, value), key)

    @property
    def supports_deletes(self) -> bool:
        return True

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._request(partial(self._inner.delete, key), key)

    @property
    def supports_listing(self) -> bool:
        return True

    async def list(self) -> AsyncIterator[str]:
        for name in await self._request(lambda: _to_list(self._inner.list())):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._request(lambda: _to_list(self._inner.list_prefix(prefix)), prefix):
            yield name

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._request(lambda: _to_list(self._inner.list_dir(prefix)), prefix):
            yield name

    async def getsize(self, key: str) -> int:
        return await self._request(partial(self._inner.getsize, key), key)


def _reopen(
    kind: type[RetryingStore], url: str, options: dict[str, Any], read_only: bool, token: str
) -> RetryingStore:
    store = kind(url, options, read_only=read_only)
    store._token = token
    return store


async def _to_list(names: AsyncIterator[str]) -> Any:
    return [name async for name in names]
