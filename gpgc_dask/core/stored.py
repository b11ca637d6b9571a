"""Values that were stored as JSON, and may be anything if the file is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpgc_dask.core.errors import CorruptedError, GpgcError

__all__ = ["reading_stored"]


@contextmanager
def reading_stored(title: str) -> Iterator[None]:
    """Raise a CorruptedError where stored values are not of the expected kind.

    Parameters
    ----------
    title : str
        What is read, for the message.
    """
    try:
        yield
    except GpgcError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CorruptedError(
            f"the stored {title} cannot be read ({type(error).__name__}: {error}): the dataset or "
            "model is corrupted, or not trustworthy; restore it from a copy, or create it again"
        ) from error
