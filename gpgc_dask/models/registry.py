"""The models: what ``gpgc fit --method`` offers and what :func:`gpgc_dask.load` can read."""

from __future__ import annotations

from typing import Any

from gpgc_dask.core.registry import Registry

__all__ = ["MODELS", "model_class"]

MODELS: Registry[Any] = Registry(
    "method",
    {
        "gpgc": "gpgc_dask.models.gp:GPGC",
        "gp": "gpgc_dask.models.gp:GP",
        "svm": "gpgc_dask.models.svm:MarginSVM",
    },
    "gpgc_dask.models",
)
"""{method: estimator class}."""


def model_class(name: str) -> Any:
    """The estimator class of this name, such as "GPGC"; None where there is none."""
    return next((found for method in MODELS if (found := MODELS[method]).__name__ == name), None)
