"""Workers, threads and memory that a fit may use."""

from __future__ import annotations

from dataclasses import dataclass

from dask.utils import parse_bytes

from gpgc_dask.core.errors import InputError
from gpgc_dask.execution.client import cluster_resources

__all__ = ["Resources"]


@dataclass(frozen=True)
class Resources:
    """Workers, their threads and their memory.

    Attributes
    ----------
    workers : int
        Number of worker processes.
    threads : int
        Threads per worker.
    memory_limit : int or None
        Bytes of memory per worker. None: unknown.
    separate : bool
        Whether the workers are other processes than the driver.
    """

    workers: int
    threads: int
    memory_limit: int | None
    separate: bool

    @classmethod
    def detect(
        cls,
        is_dask: bool,
        workers: int | None = None,
        memory_limit: int | str | None = None,
        threads: int | None = None,
    ) -> Resources:
        """Resources of the active Dask cluster or of this machine; arguments take precedence.

        Parameters
        ----------
        is_dask : bool
            Whether X is a dask array. Anything else is computed by this process.
        workers : int, optional
            Number of worker processes.
        memory_limit : int or str, optional
            Memory per worker: bytes, or text such as "4GB".
        threads : int, optional
            Threads per worker.

        Raises
        ------
        InputError
            If a number is below 1 or the memory cannot be parsed.
        """
        for name, value in (("workers", workers), ("threads", threads)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be 1 or more, got {value!r}")
        n_workers, n_threads, n_bytes, separate = cluster_resources()
        if workers is not None and not separate:
            # Processes of one thread that share this machine, as gpgc fit --workers starts them.
            n_threads = 1
            n_bytes = None if n_bytes is None else n_bytes // workers
        if workers is not None:
            n_workers, separate = workers, True
        if memory_limit is not None:
            n_bytes = _parse_memory(memory_limit)
        if not is_dask:
            n_workers, separate = 1, False
        return cls(n_workers, threads or n_threads, n_bytes, separate)


def _parse_memory(memory: int | str) -> int:
    try:
        n_bytes = int(parse_bytes(memory))
    except ValueError:
        n_bytes = 0
    if n_bytes <= 0:
        raise InputError(f'memory_limit must be bytes or text such as "4GB", got {memory!r}')
    return n_bytes
