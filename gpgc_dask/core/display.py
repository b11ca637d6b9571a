"""The hook through which lower layers reach the displays of a notebook.

``gpgc_dask.notebook`` is loaded by name, when something is shown: no layer below it imports it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__ = ["in_notebook", "notebook_module", "render_card"]


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, which can replace what it has shown."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


def notebook_module(name: str) -> Any:
    """The module ``gpgc_dask.notebook.NAME``."""
    return import_module(f"gpgc_dask.notebook.{name}")


def render_card(kind: str, *shown: Any) -> str:
    """HTML of a dataset, a plan or a model, as a notebook shows it."""
    return str(getattr(notebook_module("cards"), f"{kind}_card")(*shown))
