"""``{rooms}``: the modules of a package and what each says of itself, in a table."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGE = Path(__file__).parents[2] / "gpgc_dask"


def told(path: Path) -> str:
    """The first sentence of a module's docstring, without markup."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return first.replace("``", "`").rstrip(".")


def rooms(folder: str) -> list[tuple[str, str]]:
    """(module, what it says) of a folder of the package, the package itself first."""
    place = PACKAGE / folder if folder else PACKAGE
    own = [] if not folder else [(folder.replace("/", "."), told(place / "__init__.py"))]
    prefix = f"{folder.replace('/', '.')}." if folder else ""
    modules = [path for path in sorted(place.glob("*.py")) if not path.stem.startswith("__")]
    return own + [(f"{prefix}{path.stem}", told(path)) for path in modules]


class Rooms(SphinxDirective):
    """A table of the modules in the folders that are named, or of some of them.

    The argument is a list of folders and modules, as ``imaging`` or ``dataset``; the content of the
    directive is empty.
    """

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        rows = []
        for name in self.arguments[0].split():
            folder = PACKAGE / name
            if folder.is_dir():
                rows += rooms(name)
            else:
                rows.append((name.replace("/", "."), told(PACKAGE / f"{name}.py")))
        self.env.note_dependency(__file__)
        return [table(rows)]


def table(rows: list[tuple[str, str]]) -> nodes.table:
    group = nodes.tgroup(cols=2)
    group += [nodes.colspec(colwidth=25), nodes.colspec(colwidth=75)]
    body = nodes.tbody()
    for name, text in rows:
        row = nodes.row()
        row += nodes.entry("", nodes.paragraph("", "", nodes.literal("", name)))
        row += nodes.entry("", nodes.paragraph("", "", *pieces(text)))
        body += row
    group += body
    return nodes.table("", group, classes=["rooms"])


def pieces(text: str) -> list[nodes.Node]:
    """Text with `code` in it."""
    parts = text.split("`")
    return [nodes.literal("", part) if n % 2 else nodes.Text(part) for n, part in enumerate(parts)]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("rooms", Rooms)
    return {"parallel_read_safe": True}
