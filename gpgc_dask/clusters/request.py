"""What a user asks of a cluster, the same for every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dask.utils import parse_bytes

from gpgc_dask.clusters.tls import TlsFiles
from gpgc_dask.core.errors import InputError

__all__ = ["MIN_MEMORY", "ClusterRequest"]

MIN_MEMORY = 256_000_000
"""Bytes. A worker with less is killed before it has done anything."""


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """What a user asks of a cluster.

    Attributes
    ----------
    workers : int or None
        Number of workers to start with; None leaves it to the kind of cluster.
    min_workers, max_workers : int or None
        Bounds between which the number of workers follows the work. None and None: it is fixed.
    memory_limit : str, int or None
        Memory per worker, such as "4GB" or a number of bytes.
    tls : TlsFiles or None
        Certificates.
    settings : dict
        Further settings that only one kind of cluster has.
    """

    workers: int | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    memory_limit: str | int | None = None
    tls: TlsFiles | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("workers", "min_workers", "max_workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be 1 or more, got {value}")
        bounds = [self.min_workers, self.workers, self.max_workers]
        given = [bound for bound in bounds if bound is not None]
        if given != sorted(given):
            raise InputError(
                "the number of workers must be between min_workers and max_workers "
                f"(--workers, --min-workers, --max-workers): got {self.workers}, "
                f"{self.min_workers} and {self.max_workers}"
            )
        if self.memory_limit is not None:
            _check_memory(self.memory_limit)

    @property
    def is_adaptive(self) -> bool:
        """Whether the number of workers follows the work."""
        return self.min_workers is not None or self.max_workers is not None

    def start_count(self, default: int) -> int:
        """Number of workers to start with."""
        if self.workers is not None:
            return self.workers
        return (self.min_workers or 1) if self.is_adaptive else default

    def bounds(self, default: int) -> tuple[int, int]:
        """Smallest and largest number of workers of an adaptive cluster."""
        low = self.min_workers or 1
        return low, self.max_workers or max(self.workers or default, low)

    def reject_settings(self, kind: str) -> None:
        """Raise an InputError if there are settings of another kind of cluster."""
        if self.settings:
            names = ", ".join(self.settings)
            raise InputError(f"a {kind} cluster has no setting {names}: leave it out")


def _check_memory(limit: str | int) -> None:
    try:
        n_bytes = parse_bytes(limit)
    except ValueError:
        raise InputError(
            f"{limit!r} is no amount of memory: give it as 4GB (--memory-limit)"
        ) from None
    if n_bytes < MIN_MEMORY:
        raise InputError(
            f"{limit} of memory is too little for a worker: give it {MIN_MEMORY // 10**6} MB or "
            "more (--memory-limit); gpgc plan shows how much a fit needs"
        )
