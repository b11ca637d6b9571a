"""Dask's performance report of the work on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version

from distributed import Client, performance_report

from gpgc_dask.core.errors import MissingDependencyError

__all__ = ["with_performance_report"]


@contextmanager
def with_performance_report(client: AbstractContextManager[Client], page: str) -> Iterator[Client]:
    """Open a client; when the context ends, write Dask's performance report to a file.

    The page is self-contained: it needs no network.
    """
    with client as opened:
        try:
            opened.run_on_scheduler(version, "bokeh")
        except PackageNotFoundError:
            raise MissingDependencyError(
                "the scheduler draws the performance report with bokeh, which is not installed: "
                'pip install "gpgc_dask[dashboard]" where it runs, or leave --performance-report '
                "out"
            ) from None
        report = performance_report(page, mode="inline")
        report.__enter__()
        try:
            yield opened
        except BaseException:
            with suppress(Exception):  # the scheduler may be gone, which must not hide the cause
                report.__exit__(None, None, None)
            raise
        report.__exit__(None, None, None)
