"""Manifests as YAML."""

from __future__ import annotations

from pathlib import Path

import yaml

from gpgc_dask.clusters.kubernetes.manifests import manifests
from gpgc_dask.clusters.kubernetes.pods import Manifest
from gpgc_dask.clusters.kubernetes.settings import Settings
from gpgc_dask.storage.location import write_whole

__all__ = ["to_yaml", "write"]

HEAD = "# Written by gpgc deploy: change the settings there, not here.\n"


def to_yaml(settings: Settings) -> str:
    """All objects in one stream, as ``kubectl apply -f -`` takes it."""
    return HEAD + _dump([one for file in manifests(settings).values() for one in file])


def write(settings: Settings, folder: Path) -> list[Path]:
    """A file for each part, in a folder that ``kubectl apply -f`` takes; returns their paths."""
    paths = []
    for name, objects in manifests(settings).items():
        write_whole(folder / name, (HEAD + _dump(objects)).encode())
        paths.append(folder / name)
    return paths


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice twice: anchors are hard to read, and tools trip over them."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(objects: list[Manifest]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100)
