"""From folders of photos and masks to a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from gpgc_dask.pipelines.ingest.run import IngestReport, ingest

__all__ = ["IngestReport", "ingest"]

# Workers of an ingest need a module or two of this package, and the others take a second to load.
__getattr__, __dir__, _ = attach(__name__, submod_attrs={"run": ["IngestReport", "ingest"]})
