"""A ranking in the files that Label Studio, CVAT, FiftyOne and cleanlab read."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from gpgc_dask.results.export.base import ExportFormat, ExportReport
    from gpgc_dask.results.export.registry import EXPORTS
    from gpgc_dask.results.export.writing import export

__all__ = ["EXPORTS", "ExportFormat", "ExportReport", "export"]

# `gpgc export --help` lists the formats and need not wait for the rest.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["ExportFormat", "ExportReport"],
        "registry": ["EXPORTS"],
        "writing": ["export"],
    },
)
