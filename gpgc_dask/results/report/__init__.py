"""One HTML page that shows which masks are suspect: opens from disk, needs no network."""

from gpgc_dask.results.report.page import ReportSummary, write_report

__all__ = ["ReportSummary", "write_report"]
