"""Registry of the models, for ``gpgc fit --method`` and :func:`gpgc_dask.load`."""

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
    """The estimator class of a name such as "GPGC"; None if there is none."""
    return next((kind for method in MODELS if (kind := MODELS[method]).__name__ == name), None)
