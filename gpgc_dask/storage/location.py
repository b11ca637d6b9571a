"""Files and arrays in a local folder or at any fsspec URL (s3://, memory://).

A write is complete or does not happen: a local file is written next to its place and renamed, an
object store replaces an object in one request.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from glob import has_magic
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore

from gpgc_dask.core.errors import AccessDeniedError, InputError, NotAFolderError
from gpgc_dask.storage.object_store import RetryingStore, client_options
from gpgc_dask.storage.retries import with_retries

__all__ = [
    "MAX_CONCURRENT",
    "UNFINISHED_SUFFIX",
    "Location",
    "check_no_secret",
    "check_writable",
    "is_url",
    "write_error",
    "write_whole",
]

Result = TypeVar("Result")

MAX_CONCURRENT = 16
"""Objects read or written at a time: on an object store each takes a round trip."""

UNFINISHED_SUFFIX = ".partial"
"""Ending of files that are being written, also of Zarr's; a killed process leaves them."""

SECRET_IN_URL = re.compile(r"://(?!arn:)[^/@:\[\]]*:(?!\d*(/|$))")
"""Matches user:password@host and s3://key:secret@bucket, but not host:port."""


@dataclass(frozen=True)
class Location:
    """A folder or a file, local or at a URL.

    Locations are cheap to send to workers. Keys are names within a folder; "" is the location
    itself.

    Attributes
    ----------
    url : str
        Absolute local path, or fsspec URL.
    options : dict
        fsspec's options. They may hold credentials, and are neither shown nor written anywhere.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    @classmethod
    def of(
        cls, url: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> Location:
        """Return the location of a path or URL; a Location is returned unchanged."""
        if isinstance(url, Location):
            return url
        text = os.fspath(url)
        check_no_secret(text)
        if text.startswith(("file://", "local://")):
            text = fsspec.core.strip_protocol(text)
        if is_url(text):
            _check_protocol(text)
            return cls(text.rstrip("/"), storage_options or {})
        return cls(str(Path(text).expanduser().absolute()))

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
        return not is_url(self.url)

    def parent(self) -> tuple[Location, str]:
        """The folder that contains this location, and its name there."""
        folder, _, name = self.url.rpartition("/")
        return Location(folder or "/", self.options), name

    @property
    def is_private(self) -> bool:
        """Whether only this process can read it."""
        return self.url.startswith("memory://")

    @property
    def _fs(self) -> Any:
        if self.is_local:  # also if it looks like a chain of URLs
            return fsspec.filesystem("file")
        return fsspec.core.url_to_fs(self.url, **client_options(self.url, self.options))[0]

    def _path(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def _request(self, key: str, call: Callable[[Any, str], Result]) -> Result:
        """Return ``call(filesystem, path)``; repeat it after transient errors at a URL."""
        path = self._path(key)
        if self.is_local:
            return call(self._fs, path)
        return with_retries(lambda: call(self._fs, path), path)

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or folder of this name."""

        def request(fs: Any, path: str) -> bool:
            fs.invalidate_cache()
            return bool(fs.exists(path))

        return self._request(key, request)

    def read(self, key: str = "") -> bytes:
        """Return the content of a file."""
        return self._request(key, lambda fs, path: bytes(fs.cat_file(path)))

    def write(self, key: str, content: bytes | bytearray | memoryview) -> None:
        """Write a file completely or not at all."""
        if self.is_local:
            write_whole(Path(self._path(key)), content)
        else:
            self._request(key, lambda fs, path: fs.pipe_file(path, bytes(content)))

    def names(self, key: str = "") -> list[str]:
        """Sorted names of the files and folders in a folder; empty if it does not exist."""

        def request(fs: Any, path: str) -> list[str]:
            fs.invalidate_cache()
            try:
                return list(fs.ls(path, detail=False))
            except FileNotFoundError:
                return []

        paths = self._request(key, request)
        return sorted({path.rstrip("/").rsplit("/", 1)[-1] for path in paths} - {""})

    def files(self, key: str = "") -> set[str]:
        """All files below a folder, as paths relative to it."""

        def request(fs: Any, path: str) -> set[str]:
            fs.invalidate_cache()
            root = fsspec.core.strip_protocol(path)
            return {name.removeprefix(root).lstrip("/") for name in fs.find(root)}

        return self._request(key, request)

    def remove(self, key: str) -> None:
        """Remove a file, or a folder with everything in it, if it exists."""
        if not key:
            raise InputError("name what to remove")
        if self.is_local:
            _remove_local(Path(self._path(key)))
        else:
            self._request(key, _remove_remote)

    def clear(self) -> None:
        """Remove everything in this folder, and the folder itself if it is local."""
        for name in self.names():
            self.remove(name)
        if self.is_local and Path(self.url).is_dir():
            Path(self.url).rmdir()

    def move(self, source: str, target: str) -> None:
        """Move a file within this folder; an existing target is replaced.

        If it is interrupted, one or both of the places have the whole file. Nothing happens if
        there is no source: an earlier attempt has moved it.
        """
        if self.is_local:
            place = Path(self._path(target))
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                Path(self._path(source)).replace(place)
            return
        with suppress(FileNotFoundError):
            self._request(source, lambda fs, path: fs.cp_file(path, self._path(target)))
            self._request(source, lambda fs, path: fs.rm_file(path))

    def unlink(self) -> None:
        """Remove the file at this location, if it exists; never a folder."""
        if self.is_local:
            Path(self.url).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            self._request("", lambda fs, path: fs.rm_file(path))

    def remove_unfinished(self, key: str = "") -> None:
        """Remove the unfinished files of processes that were killed."""
        if self.is_local:
            for path in Path(self._path(key)).rglob(f"*{UNFINISHED_SUFFIX}"):
                path.unlink(missing_ok=True)

    def store(self, *, read_only: bool = False) -> Store:
        """Return the Zarr store at this location."""
        if self.is_local:
            return LocalStore(self.url, read_only=read_only)
        return RetryingStore(self.url, self.options, read_only=read_only)

    def group(self, mode: Any = "r") -> zarr.Group:
        """Open the Zarr v3 group at this location."""
        return zarr.open_group(
            self.store(read_only=mode == "r"), mode=mode, zarr_format=3, use_consolidated=False
        )

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        """Return the URL, so that a Location can be passed as a path and keeps its options."""
        return self.url


def write_whole(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Write a local file completely or not at all."""
    path = path.expanduser().resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(content)  # a pipe or a device is written to, not replaced
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{uuid.uuid4().hex}{UNFINISHED_SUFFIX}")
    try:
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        raise write_error(error, path) from error
    finally:
        new.unlink(missing_ok=True)


def write_error(error: OSError, path: Path) -> OSError:
    """The same error with the path that was to be written; a full disk also has a way out."""
    text = error.strerror
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = "no space is left: free some and try again, the previous content is kept"
    return OSError(error.errno, text, str(path))


def check_writable(path: Path) -> None:
    """Raise an error if a local file or folder cannot be written; changes nothing."""
    place = path.expanduser().absolute()
    while not place.exists() and not place.is_symlink():
        place = place.parent
    if place != path.expanduser().absolute() and not place.is_dir():
        raise NotAFolderError(f"{path} cannot be written: {place} is not a folder")
    if not os.access(place, os.W_OK):
        raise AccessDeniedError(f"{path} cannot be written: {place} may not be written to by you")


def is_url(path: str | PathLike[str]) -> bool:
    """Whether this is a URL and not a local path."""
    return "://" in os.fspath(path)


def check_no_secret(url: str) -> None:
    """Raise an InputError if a URL holds credentials: URLs are printed, logged and saved."""
    if SECRET_IN_URL.search(url):
        scheme = url.partition("://")[0]
        raise InputError(
            f"a {scheme}:// URL holds credentials, which would get into logs and files: remove "
            "them from it, and give them in the environment (AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY) or the standard files (~/.aws/credentials)"
        )


def _remove_remote(fs: Any, path: str) -> None:
    fs.invalidate_cache()
    if has_magic(path):  # rm would treat the name as a pattern
        for name in fs.find(path):
            fs.rm_file(name)
    elif fs.exists(path):
        fs.rm(path, recursive=True)


def _remove_local(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check_protocol(url: str) -> None:
    try:
        fsspec.get_filesystem_class(url.split("://", 1)[0])
    except (ImportError, ValueError) as error:
        raise InputError(
            f"{url} cannot be reached: {error} (for s3:// URLs: pip install 'gpgc_dask[s3]')"
        ) from None
