"""The notebooks of examples/ as pages: copied to where Sphinx looks, those that are there.

``{pages}`` is a toctree of such pages, which leaves out what is not there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = "notebooks"

PLACES = {b"](../deploy/README.md": b"](../kubernetes.md", b"](../docs/": b"](../"}
"""Links of a notebook in examples/, and the same here."""


def copy(app: Sphinx) -> None:
    """Make docs/notebooks what examples/*.ipynb is; what has not changed is not touched."""
    folder = Path(app.srcdir) / FOLDER
    found = {path.name: _moved(path.read_bytes()) for path in EXAMPLES.glob("*.ipynb")}
    if found:
        folder.mkdir(exist_ok=True)
    for path in folder.glob("*.ipynb"):
        if path.name not in found:
            path.unlink()
    for name, content in found.items():
        target = folder / name
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)


def _moved(content: bytes) -> bytes:
    for there, here in PLACES.items():
        content = content.replace(there, here)
    return content


def link(app: Sphinx, page: str, source: list[str]) -> None:
    """Links of other pages to the notebooks, which GitHub finds in examples/, lead to them here."""
    here = "../" * page.count("/") + FOLDER
    source[0] = re.sub(r"(?<=\]\()[./]+examples/(?=\w+\.ipynb)", f"{here}/", source[0])


class Pages(TocTree):
    """A toctree, as long as any of its pages is there."""

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.doc2path(self.env.docname)).parent
        there = [name for name in self.content if any(folder.glob(f"{name}.*"))]
        self.content = StringList(there, self.content.source(0))
        return super().run() if there else []


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", copy)
    app.connect("source-read", link)
    app.add_directive("pages", Pages)
    return {"parallel_read_safe": True}
