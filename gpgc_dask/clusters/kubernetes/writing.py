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
    """All objects as one stream for ``kubectl apply -f -``."""
    return HEAD + _dump([one for file in manifests(settings).values() for one in file])


def write(settings: Settings, folder: Path) -> list[Path]:
    """Write one file per part into a folder for ``kubectl apply -f``, and return the paths."""
    paths = []
    for name, objects in manifests(settings).items():
        write_whole(folder / name, (HEAD + _dump(objects)).encode())
        paths.append(folder / name)
    return paths


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: they are hard to read, and some tools cannot read them."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(objects: list[Manifest]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100)
