"""Messages in the words of Python and of the program."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gpgc_dask
from gpgc_dask.core.text import options_only

pytestmark = pytest.mark.quick

PACKAGE = Path(gpgc_dask.__file__).parent

ARRAYS = ("execution/row_blocks.py", "gp/oracle/kernels.py", "models/validation.py")
"""Messages about arrays, which only Python users can pass."""

ARGUMENT = re.compile(r"""\b[a-z_]+=(True|False|None|["'{]|\d)|\bin Python\b|[a-z_]\(\)""")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("stop: resume=True (--resume).", "stop: --resume."),
        ('skip with on_error="skip" (--on-error skip).', "skip with --on-error skip."),
        ("give Shape.from_images(10, features=4) (--images or --plan)", "give --images or --plan"),
        ("do it (gpgc fit, or in Python model.review(dataset)).", "do it (gpgc fit)."),
        ("more memory; in Python fit(..., force=True) skips it", "more memory"),
        ("a sample (in Python max_rows=3), or more", "a sample, or more"),
        ("gpgc fit, or in Python a.b(c). Then go on", "gpgc fit. Then go on"),
        ("x.zarr (12×3) has a=b in Python files", "x.zarr (12×3) has a=b in Python files"),
    ],
)
def test_the_spelling_of_the_program(message, shown):
    assert options_only(message) == shown


def messages(path):
    """(line, text) of the texts in a file that are not docstrings; values are shown as {}."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield node.lineno, "".join(parts)
            hidden |= {id(part) for value in node.values for part in ast.walk(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in hidden:
            if not isinstance(node.value, str):
                continue
            yield node.lineno, node.value


def test_the_program_shows_no_python():
    wrong = [
        f"{path}:{line}: {options_only(text)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if not str(path).endswith(ARRAYS)
        for line, text in messages(path)
        if re.search(r"[a-z]+ [a-z]+ ", text)
        and "<" not in text
        and ARGUMENT.search(options_only(text.replace("{}", "x")))
    ]
    assert not wrong, "\n".join(wrong)
