"""The review page: people look at the worst masks, and their verdicts are kept in the dataset."""

from gpgc_dask.review.server import ReviewServer, serve_review

__all__ = ["ReviewServer", "serve_review"]
