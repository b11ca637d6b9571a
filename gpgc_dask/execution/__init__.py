"""Everything that talks to dask.distributed."""
