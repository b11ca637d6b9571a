"""From a folder of photos and their masks to a dataset.

An ingest has two stages, both run on a Dask cluster:

1. **Staging** (``staging.py``). Workers compute superpixels, features and labels of some photos at
   a time and write each batch as a *part* in the folder of unfinished work next to the dataset.
2. **Assembling** (``assemble.py``). Once all photos are staged, the shape of the dataset is known.
   Workers copy rows from the parts to whole chunks of the large arrays; a part is removed when no
   chunk needs it. The small arrays and the attributes that mark the dataset as finished come last.

A resumed ingest reads which photos are staged, unchanged and with the same settings, stages the
others, and writes the chunks that are missing. If the set of photos has changed after the first
chunk was written, assembling restarts, and photos whose parts are gone are staged again. The
result depends on photos and settings alone, not on the number of workers or attempts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lazy_loader import attach

if TYPE_CHECKING:
    from gpgc_dask.imaging.features import Recipe
    from gpgc_dask.imaging.image_info import ImageInfo
    from gpgc_dask.imaging.mask_sources import MaskOptions
    from gpgc_dask.pipelines.ingest.run import IngestReport, ingest
    from gpgc_dask.pipelines.options import RunOptions

__all__ = ["ImageInfo", "IngestReport", "MaskOptions", "Recipe", "RunOptions", "ingest"]

# Workers of an ingest need a module or two of this package, and the others take a second to load.
__getattr__, __dir__, _ = attach(
    __name__,
    submod_attrs={
        "run": ["ImageInfo", "IngestReport", "MaskOptions", "Recipe", "RunOptions", "ingest"]
    },
)
