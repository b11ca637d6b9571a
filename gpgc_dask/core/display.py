"""Displays in notebooks for the layers below ``gpgc_dask.notebook``.

That package is loaded by name when something is displayed: no layer below it imports it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__all__ = ["in_notebook", "notebook_module", "render_card"]


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, which can update what it displays."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


def notebook_module(name: str) -> Any:
    """Import the module ``gpgc_dask.notebook.NAME``."""
    return import_module(f"gpgc_dask.notebook.{name}")


def render_card(kind: str, *things: Any) -> str:
    """HTML of a dataset, a plan or a model for a notebook."""
    return str(getattr(notebook_module("cards"), f"{kind}_card")(*things))
