"""``{commands}``: a directive for the help of all commands of the program."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from gpgc_dask.cli import app as program

CODE = re.compile(r"(?<![\w`-])(--?[a-z][\w-]*|gpgc [a-z]+|pip install \S+)")
"""Options and commands, which are set as code."""


class Commands(SphinxDirective):
    """One section per command: usage, description, examples, arguments and options by panel."""

    def run(self) -> list[nodes.Node]:
        group: Any = typer.main.get_command(program)
        above = typer.Context(group, info_name="gpgc")
        lines: list[str] = []
        for name, command in group.commands.items():
            lines += _section(command, typer.Context(command, info_name=name, parent=above))
        holder = nodes.container(document=self.state.document)
        content = StringList(lines, "gpgc --help")
        self.state.nested_parse(content, self.content_offset, holder, match_titles=True)
        return holder.children


def _section(command: Any, context: Any) -> list[str]:
    path = context.command_path
    lines = [f"## {path}", "", *_set_code(command.help), "", f"```{{program}} {path}", "```", ""]
    examples = [line for line in (command.epilog or "").splitlines() if line.startswith("gpgc ")]
    lines += ["```sh", *examples, "```", ""]
    parameters = [(_panel(each), each) for each in command.params]
    order = list(dict.fromkeys(panel for panel, _ in parameters))
    parameters.sort(key=lambda pair: order.index(pair[0]))
    for panel, members in groupby(parameters, key=lambda pair: pair[0]):
        lines += [f"```{{rubric}} {panel}", "```", ""]
        for _, each in members:
            lines += _parameter(each, context)
    return lines


def _panel(parameter: Any) -> str:
    if not parameter.opts[0].startswith("-"):
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or "Options"


def _parameter(parameter: Any, context: Any) -> list[str]:
    name, description = parameter.get_help_record(context)
    if not parameter.opts[0].startswith("-"):
        name = parameter.name.upper()
    text, _, rest = description.partition("  [")
    more = [f"*{part}*" for part in rest.rstrip("]").split("; ") if part]
    return [
        f"```{{option}} {name}",
        *_set_code(text + ("  " + ", ".join(more) if more else "")),
        "```",
        "",
    ]


def _set_code(text: str) -> list[str]:
    """The lines of a text, with options and commands set as code."""
    return CODE.sub(r"`\1`", text).splitlines()


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
