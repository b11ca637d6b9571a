"""Docstrings that are not numpydoc yet. This file goes when none is left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

OLD = (".grabcut", ".GPGC", ".MarginSVM", ".review", ".write_folder", ".Plan", ".Settings")
ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (.*)$")
NEXT = re.compile(r";  (?=\w+(?:, \w+)* : )")
LITERAL = re.compile(r"(``.+?``|:\w+(?::\w+)?:`.+?`|`[^`]+`_*)")
TRAILING = re.compile(r"\b([A-Za-z]\w*_)(?!\w)")


def render(lines: list[str]) -> list[str]:
    """A docstring's lines as reStructuredText."""
    found: list[str] = []
    for block in _blocks(lines):
        if len(block) > 1 and block[1] and set(block[1]) == {"-"}:
            found += [f".. rubric:: {block[0]}", ""]
            block = block[2:]
        if block and ENTRY.match(block[0]):
            found += _definitions(block)
        elif block and block[0].startswith(">>>"):
            found += block
        else:
            found += map(_escaped, block)
        found.append("")
    return found


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs, as lists of lines."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []


def _definitions(block: list[str]) -> Iterator[str]:
    entries: list[list[str]] = []
    for line in block:
        if line[:1].isspace():
            entries[-1].append(line.strip())
        else:
            entries.append([line])
    for entry in entries:
        for one in NEXT.split(" ".join(entry)):
            names, text = ENTRY.fullmatch(one).groups()
            yield ", ".join(f"**{name}**".replace("_*", r"\_*") for name in names.split(", "))
            yield f"    {_escaped(text)}"


def _escaped(line: str) -> str:
    """Names that end in an underscore as code: to reStructuredText they are links."""
    parts = LITERAL.split(line)
    return "".join(
        part if number % 2 else TRAILING.sub(r"``\1``", part) for number, part in enumerate(parts)
    )


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if name.endswith(OLD):
        lines[:] = render(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", process, priority=100)
    return {"parallel_read_safe": True}
