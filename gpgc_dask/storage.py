"""One way to keep small and large things, in a local folder or at any fsspec URL (s3://, memory://).

A write is whole or not at all: a local file is written beside its place and renamed, an object
store replaces an object in one request.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from glob import has_magic
from os import PathLike
from pathlib import Path
from typing import Any

import fsspec
import zarr
from zarr.storage import LocalStore

__all__ = ["UNFINISHED_SUFFIX", "Location", "check_writable", "retold", "write_whole"]

UNFINISHED_SUFFIX = ".partial"
"""Ending of files still being written, Zarr's own among them; what a kill leaves behind."""


@dataclass(frozen=True)
class Location:
    """A folder: ``url`` is an absolute local path or an fsspec URL. Cheap to send to workers."""

    url: str
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls, url: str | PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> Location:
        text = os.fspath(url)
        if text.startswith(("file://", "local://")):
            text = fsspec.core.strip_protocol(text)
        if "://" in text:
            _check_protocol(text)
            return cls(text.rstrip("/"), storage_options or {})
        return cls(str(Path(text).expanduser().absolute()))

    @property
    def is_local(self) -> bool:
        return "://" not in self.url

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
        return fsspec.core.url_to_fs(self.url, **self.options)[0]

    def _path(self, key: str) -> str:
        return f"{self.url}/{key}" if key else self.url

    def exists(self, key: str = "") -> bool:
        """Whether there is a file or folder of this name."""
        fs = self._fs
        fs.invalidate_cache()
        return bool(fs.exists(self._path(key)))

    def read(self, key: str) -> bytes:
        return bytes(self._fs.cat_file(self._path(key)))

    def write(self, key: str, content: bytes | bytearray | memoryview) -> None:
        """Put ``content`` in the place of ``key``, whole or not at all."""
        if not self.is_local:
            self._fs.pipe_file(self._path(key), bytes(content))
            return
        write_whole(Path(self._path(key)), content)

    def names(self, key: str = "") -> list[str]:
        """Names of what lies directly in a folder, sorted; none where there is no such folder."""
        fs = self._fs
        fs.invalidate_cache()
        try:
            found: Iterable[str] = fs.ls(self._path(key), detail=False)
        except FileNotFoundError:
            return []
        return sorted({name.rstrip("/").rsplit("/", 1)[-1] for name in found} - {""})

    def files(self, key: str = "") -> set[str]:
        """All files below a folder, as paths within it."""
        fs = self._fs
        fs.invalidate_cache()
        root = fs._strip_protocol(self._path(key))
        return {name.removeprefix(root).lstrip("/") for name in fs.find(root)}

    def remove(self, key: str) -> None:
        """Remove a file, or a folder with all that is in it, where there is one."""
        if not key:
            raise ValueError("name what to remove")
        if self.is_local:
            _remove_local(Path(self._path(key)))
            return
        fs, path = self._fs, self._path(key)
        fs.invalidate_cache()
        if has_magic(path):  # rm would take the name for a pattern
            for name in fs.find(path):
                fs.rm_file(name)
        elif fs.exists(path):
            fs.rm(path, recursive=True)

    def remove_unfinished(self, key: str = "") -> None:
        """Remove what writers that were killed have left behind."""
        if self.is_local:
            for path in Path(self._path(key)).rglob(f"*{UNFINISHED_SUFFIX}"):
                path.unlink(missing_ok=True)

    def group(self, mode: Any = "r") -> zarr.Group:
        """The Zarr v3 group that lives here."""
        if self.is_local:
            return zarr.open_group(
                LocalStore(self.url), mode=mode, zarr_format=3, use_consolidated=False
            )
        return zarr.open_group(
            self.url,
            mode=mode,
            zarr_format=3,
            use_consolidated=False,
            storage_options=self.options or None,
        )

    def __str__(self) -> str:
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
        raise NotADirectoryError(f"{path} cannot be written: {place} is not a folder")
    if not os.access(place, os.W_OK):
        raise PermissionError(f"{path} cannot be written: {place} is not yours to write to")


def _remove_local(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check_protocol(url: str) -> None:
    try:
        fsspec.get_filesystem_class(url.split("://", 1)[0])
    except (ImportError, ValueError) as error:
        raise ValueError(
            f"{url} cannot be reached: {error} (for s3:// URLs: pip install 'gpgc_dask[s3]')"
        ) from None
