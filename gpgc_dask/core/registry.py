"""Registries of kinds by name: a new kind takes one file and one line.

An entry has the form ``"package.module:attribute"`` and is imported when it is used: ``--help`` and
error messages list all names without importing any of them. Other packages add kinds by an entry
point in the registry's group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from gpgc_dask.core.errors import InputError

__all__ = ["Registry"]

Kind = TypeVar("Kind")


class Registry(Generic[Kind]):
    """Kinds of one thing by name.

    Parameters
    ----------
    what : str
        Name of such a kind in messages, for example "backbone".
    places : mapping of str to str
        {name: "package.module:attribute"}.
    group : str
        Group of entry points by which other packages add kinds, such as "gpgc_dask.backbones".

    Examples
    --------
    >>> from gpgc_dask.core.registry import Registry
    >>> roots = Registry("root", {"square": "math:sqrt", "cube": "math:cbrt"}, "example.roots")
    >>> roots.names()
    ('square', 'cube')
    >>> roots["square"](9)
    3.0
    """

    def __init__(self, what: str, places: Mapping[str, str], group: str) -> None:
        self.what, self.group = what, group
        self._places = dict(places)
        self._loaded: dict[str, Kind] = {}

    def add(self, name: str, kind: Kind) -> Kind:
        """Add a kind in this process; it may replace one of the same name."""
        self._loaded[name] = kind
        return kind

    def remove(self, name: str) -> None:
        """Remove a kind that was added by :meth:`add`."""
        del self._loaded[name]

    def names(self) -> tuple[str, ...]:
        """Names of all kinds: those of this package first, then those of other packages."""
        return tuple(dict.fromkeys([*self._places, *self._loaded, *self._plugins()]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __getitem__(self, name: str) -> Kind:
        """Return the kind of this name; an :class:`InputError` lists the names if there is none."""
        if name in self._loaded:
            return self._loaded[name]
        if name in self._places:
            module, _, attribute = self._places[name].partition(":")
            return self.add(name, getattr(import_module(module), attribute))
        plugins = self._plugins()
        if name in plugins:
            return self.add(name, plugins[name].load())
        raise InputError(f"there is no {self.what} {name!r}: choose one of {', '.join(self)}")

    def _plugins(self) -> dict[str, Any]:
        return {point.name: point for point in entry_points(group=self.group)}
