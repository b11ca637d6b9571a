"""Verdicts of people in and out of a dataset: as a table, as masks, and from other tools."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from gpgc_dask.results.verdicts.base import Entry, ImportFormat
    from gpgc_dask.results.verdicts.reading import ImportReport, import_verdicts
    from gpgc_dask.results.verdicts.registry import IMPORTS
    from gpgc_dask.results.verdicts.table import list_verdicts
    from gpgc_dask.results.verdicts.writing import WriteReport, write_verdicts

__all__ = [
    "IMPORTS",
    "Entry",
    "ImportFormat",
    "ImportReport",
    "WriteReport",
    "import_verdicts",
    "list_verdicts",
    "write_verdicts",
]

# `gpgc verdicts --help` lists the formats and need not wait for the rest.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Entry", "ImportFormat"],
        "reading": ["ImportReport", "import_verdicts"],
        "registry": ["IMPORTS"],
        "table": ["list_verdicts"],
        "writing": ["WriteReport", "write_verdicts"],
    },
)
