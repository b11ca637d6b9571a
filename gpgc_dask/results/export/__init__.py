"""A ranking in the files that Label Studio, CVAT, FiftyOne and cleanlab read."""

from gpgc_dask.results.export.writing import FORMATS, ExportReport, export

__all__ = ["FORMATS", "ExportReport", "export"]
