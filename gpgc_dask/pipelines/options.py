"""Options that all pipelines share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from gpgc_dask.core.errors import InputError
from gpgc_dask.execution.client import Client

__all__ = ["OnError", "RunOptions"]

OnError = Literal["raise", "skip"]


@dataclass(frozen=True)
class RunOptions:
    """How a pipeline runs: on which cluster, and what it does with existing results.

    Parameters
    ----------
    resume : bool, default False
        Continue the same call after it was stopped; what is finished is kept.
    overwrite : bool, default False
        Replace an existing result.
    on_error : {"raise", "skip"}, default "raise"
        Whether to stop at a file that cannot be used, or to skip it and list it in the report.
    progress : bool or callable, optional
        True shows a live line in a notebook and prints lines to stderr elsewhere. A callable is
        called with the progress now and then.
    client : Client or context manager, optional
        A Dask client, or a context that gives one and is entered when there is work to do. By
        default the active client, else threads of this process.

    Examples
    --------
    >>> from gpgc_dask import Recipe, RunOptions, ingest
    >>> quick, again = Recipe(backbone="colour", superpixels=20), RunOptions(overwrite=True)
    >>> ingest("photos", "masks", "quick.zarr", recipe=quick, run=again).images
    12
    """

    resume: bool = False
    overwrite: bool = False
    on_error: OnError = "raise"
    progress: bool | Callable[[Any], None] | None = None
    client: Client | AbstractContextManager[Client] | None = None

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise InputError(
                "resume keeps the existing result and overwrite replaces it: choose one"
            )
        if self.on_error not in ("raise", "skip"):
            raise InputError(f'on_error must be "raise" or "skip", got {self.on_error!r}')
