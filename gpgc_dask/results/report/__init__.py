"""The report: one HTML page that shows suspect masks, opens from disk and needs no network."""

from gpgc_dask.results.report.page import ReportSummary, write_report

__all__ = ["ReportSummary", "write_report"]
