"""Bringing a dataset up to date with its photos and masks.

1. **Changes** (``changes.py``). Files are compared with what the dataset knows of them: size and
   time first, then the content of photos. Nothing is written if nothing has changed.
2. **Staging** (``work.py``). Features of new photos are computed as in an ingest. Changed masks are
   read again on the superpixels of the dataset; no features are computed.
3. **Assembling** (``assemble.py``). The chunks that differ from those of the dataset, and all small
   arrays, are written to a folder within the dataset.
4. **Replacing** (:mod:`gpgc_dask.data.replacement`). They become the dataset's own, all or none.

Steps 2 and 3 keep finished work. The folder with the new chunks is named after its content, so that
tasks of an earlier attempt that are still running cannot write into that of a later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from gpgc_dask.pipelines.update.run import UpdateReport, update

__all__ = ["UpdateReport", "update"]

__getattr__, __dir__, _ = attach(__name__, submod_attrs={"run": ["UpdateReport", "update"]})
