"""One way to keep small and large things, in a local folder or at any fsspec URL (s3://, memory://).

A write is whole or not at all: a local file is written beside its place and renamed, an object
store replaces an object in one request.
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
from gpgc_dask.storage.object_store import PatientStore, client_options
from gpgc_dask.storage.retries import patiently

__all__ = [
    "AT_A_TIME",
    "UNFINISHED_SUFFIX",
    "Location",
    "check_no_secret",
    "check_writable",
    "is_url",
    "retold",
    "write_whole",
]

Result = TypeVar("Result")

AT_A_TIME = 16
"""Objects read or written at a time: on an object store each is a round trip."""

UNFINISHED_SUFFIX = ".partial"
"""Ending of files still being written, Zarr's own among them; what a kill leaves behind."""

SECRET_IN_URL = re.compile(r"://(?!arn:)[^/@:\[\]]*:(?!\d*(/|$))")
"""user:password@host, or s3://key:secret@bucket, though not host:port."""


@dataclass(frozen=True)
class Location:
    """A folder, or a file: ``url`` is an absolute local path or an fsspec URL.

    Cheap to send to workers. Keys are names within a folder; "" is the place itself.

    ``options`` may hold credentials: they are neither shown nor written anywhere.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    @classmethod
    def of(
        cls, url: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> Location:
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
        return not is_url(self.url)

    def parent(self) -> tuple[Location, str]:
        """(the folder that this lies in, its name there)."""
        folder, _, name = self.url.rpartition("/")
        return Location(folder or "/", self.options), name

    @property
    def is_private(self) -> bool:
        """Whether other processes see something else here."""
        return self.url.startswith("memory://")

    @property
    def _fs(self) -> Any:
        if self.is_local:  # a path is a path, also where it looks like a chain of URLs
            return fsspec.filesystem("file")
        return fsspec.core.url_to_fs(self.url, **client_options(self.url, self.options))[0]

    def _path(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def _ask(self, key: str, call: Callable[[Any, str], Result]) -> Result:
        """``call(filesystem, path)``, patiently where it is far away."""
        path = self._path(key)
        if self.is_local:
            return call(self._fs, path)
        return patiently(lambda: call(self._fs, path), path)

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or folder of this name."""

        def ask(fs: Any, path: str) -> bool:
            fs.invalidate_cache()
            return bool(fs.exists(path))

        return self._ask(key, ask)

    def read(self, key: str = "") -> bytes:
        return self._ask(key, lambda fs, path: bytes(fs.cat_file(path)))

    def write(self, key: str, content: bytes | bytearray | memoryview) -> None:
        """Put ``content`` in the place of ``key``, whole or not at all."""
        if self.is_local:
            write_whole(Path(self._path(key)), content)
        else:
            self._ask(key, lambda fs, path: fs.pipe_file(path, bytes(content)))

    def names(self, key: str = "") -> list[str]:
        """Names of what lies directly in a folder, sorted; none where there is no such folder."""

        def ask(fs: Any, path: str) -> list[str]:
            fs.invalidate_cache()
            try:
                return list(fs.ls(path, detail=False))
            except FileNotFoundError:
                return []

        found = self._ask(key, ask)
        return sorted({name.rstrip("/").rsplit("/", 1)[-1] for name in found} - {""})

    def files(self, key: str = "") -> set[str]:
        """All files below a folder, as paths within it."""

        def ask(fs: Any, path: str) -> set[str]:
            fs.invalidate_cache()
            root = fsspec.core.strip_protocol(path)
            return {name.removeprefix(root).lstrip("/") for name in fs.find(root)}

        return self._ask(key, ask)

    def remove(self, key: str) -> None:
        """Remove a file, or a folder with all that is in it, where there is one."""
        if not key:
            raise InputError("name what to remove")
        if self.is_local:
            _remove_local(Path(self._path(key)))
        else:
            self._ask(key, _remove_remote)

    def unlink(self) -> None:
        """Remove the file that is here, if there is one; never a folder."""
        if self.is_local:
            Path(self.url).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            self._ask("", lambda fs, path: fs.rm_file(path))

    def remove_unfinished(self, key: str = "") -> None:
        """Remove what writers that were killed have left behind."""
        if self.is_local:
            for path in Path(self._path(key)).rglob(f"*{UNFINISHED_SUFFIX}"):
                path.unlink(missing_ok=True)

    def store(self, *, read_only: bool = False) -> Store:
        """The Zarr store that lives here."""
        if self.is_local:
            return LocalStore(self.url, read_only=read_only)
        return PatientStore(self.url, self.options, read_only=read_only)

    def group(self, mode: Any = "r") -> zarr.Group:
        """The Zarr v3 group that lives here."""
        return zarr.open_group(
            self.store(read_only=mode == "r"), mode=mode, zarr_format=3, use_consolidated=False
        )

    def __str__(self) -> str:
        return self.url

    def __fspath__(self) -> str:
        """So that it serves wherever a path or URL does, and keeps its options there."""
        return self.url


def write_whole(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Put ``content`` in the place of a local file, whole or not at all."""
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
        raise retold(error, path) from error
    finally:
        new.unlink(missing_ok=True)


def retold(error: OSError, path: Path) -> OSError:
    """The error as one of ``path``, which was to be written; of a full disk also what to do."""
    text = error.strerror
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = "no space is left: make room and do it again, what was there before is kept"
    return OSError(error.errno, text, str(path))


def check_writable(path: Path) -> None:
    """Complain where a local file or folder could not be written; changes nothing."""
    place = path.expanduser().absolute()
    while not place.exists() and not place.is_symlink():
        place = place.parent
    if place != path.expanduser().absolute() and not place.is_dir():
        raise NotAFolderError(f"{path} cannot be written: {place} is not a folder")
    if not os.access(place, os.W_OK):
        raise AccessDeniedError(f"{path} cannot be written: {place} is not yours to write to")


def is_url(path: str | PathLike[str]) -> bool:
    """Whether this is a URL, not a local path."""
    return "://" in os.fspath(path)


def check_no_secret(url: str) -> None:
    """Complain about credentials in a URL: it is told, logged and kept with models."""
    if SECRET_IN_URL.search(url):
        scheme = url.partition("://")[0]
        raise InputError(
            f"a {scheme}:// URL holds credentials, which would get into logs and files: leave "
            "them out of it, and give them in the environment (AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY) or the standard files (~/.aws/credentials)"
        )


def _remove_remote(fs: Any, path: str) -> None:
    fs.invalidate_cache()
    if has_magic(path):  # rm would take the name for a pattern
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
