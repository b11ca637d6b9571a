"""A database of its own for the tests, and samples with wrong masks."""

from __future__ import annotations

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

PLUGINS = Path(__file__).parents[1]

os.environ["FIFTYONE_DO_NOT_TRACK"] = "true"
os.environ["FIFTYONE_PLUGINS_DIR"] = str(PLUGINS)
os.environ.setdefault("FIFTYONE_DATABASE_DIR", tempfile.mkdtemp(prefix="gpgc-fiftyone-"))

if find_spec("fiftyone") is None:
    collect_ignore_glob = ["test_*.py"]
