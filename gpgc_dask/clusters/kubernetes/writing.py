"""Manifests as YAML."""

from __future__ import annotations

from pathlib import Path

import yaml

from gpgc_dask.clusters.kubernetes.manifests import manifests
from gpgc_dask.clusters.kubernetes.pods import Manifest
from gpgc_dask.clusters.kubernetes.settings import (
    CLUSTER_FILE,
    JOB_FILE,
    NAMESPACE_FILE,
    Settings,
)
from gpgc_dask.storage.location import write_whole

__all__ = ["DELETE_WARNING", "to_yaml", "write"]

HEAD = "# Written by gpgc deploy: change the settings there, not here.\n"

DELETE_WARNING = (
    "kubectl delete of the namespace, also by -f of the whole folder, deletes everything in it: "
    f"Secrets, volumes, other clusters. To delete this cluster only: kubectl delete -f {JOB_FILE} "
    f"-f {CLUSTER_FILE}"
)


def to_yaml(settings: Settings) -> str:
    """All objects as one stream for ``kubectl apply -f -``."""
    return HEAD + _dump([one for file in manifests(settings).values() for one in file])


def write(settings: Settings, folder: Path) -> list[Path]:
    """Write one file per part into a folder for ``kubectl apply -f``, and return the paths.

    kubectl takes the files in the order of their names, so the namespace is the first.
    """
    paths = []
    for name, objects in manifests(settings).items():
        head = HEAD + (f"# {DELETE_WARNING}.\n" if name == NAMESPACE_FILE else "")
        write_whole(folder / name, (head + _dump(objects)).encode())
        paths.append(folder / name)
    return paths


class _Dumper(yaml.SafeDumper):
    """Writes no anchors: they are hard to read, and some tools cannot read them."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _dump(objects: list[Manifest]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100)
