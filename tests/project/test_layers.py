"""The layers of the package are enforced, and files and functions stay short."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpgc_dask"
FILES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])

MAX_TOP_LEVEL_MODULES = 4
MAX_FILE_LINES = 500
MAX_BODY_LINES = 60
"""Lines from the first to the last statement: signatures and docstrings are not counted."""


@pytest.fixture
def checkout(tmp_path):
    """A copy of the package and of the contracts in pyproject.toml."""
    shutil.copytree(PACKAGE, tmp_path / "gpgc_dask", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(folder):
    """Run import-linter on a copy: (exit code, output)."""
    run = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--config=pyproject.toml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, " ".join(run.stdout.split())


def test_the_contracts_hold(checkout):
    code, output = lint_imports(checkout)
    assert code == 0, output
    assert "0 broken" in output


@pytest.mark.parametrize(
    ("files", "contract"),
    [
        ({"gp/evidence.py": "from gpgc_dask.models import gp"}, "Layers"),
        ({"results/ranking.py": "import gpgc_dask.pipelines.train"}, "Layers"),
        ({"core/text.py": "def f():\n    import dask.array"}, "Dask is unknown"),
        (
            {
                "core/planted_a.py": "from gpgc_dask.core import planted_b",
                "core/planted_b.py": "def f():\n    from gpgc_dask.core import planted_a",
            },
            "No cycles",
        ),
    ],
    ids=["upward import", "import of a neighbour", "Dask in core", "cycle"],
)
def test_planted_imports_break_a_contract(checkout, files, contract):
    for name, line in files.items():
        path = checkout / "gpgc_dask" / name
        before = path.read_text() if path.exists() else ""
        path.write_text(f"{before}\n{line}\n")
    code, output = lint_imports(checkout)
    assert code == 1, output
    broken = output.split("Broken contracts", 1)[1]
    assert contract in broken


def test_a_new_package_needs_a_layer(checkout):
    (checkout / "gpgc_dask/elsewhere").mkdir()
    (checkout / "gpgc_dask/elsewhere/__init__.py").touch()
    code, output = lint_imports(checkout)
    assert code == 1
    assert "elsewhere" in output


def test_few_modules_at_the_top_level():
    assert len(list(PACKAGE.glob("*.py"))) <= MAX_TOP_LEVEL_MODULES


def test_files_are_short():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def body_lines(function):
    """Lines from the first to the last statement after the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_are_short():
    long = {
        f"{path.relative_to(ROOT)}: {node.name}": body_lines(node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and body_lines(node) > MAX_BODY_LINES
    }
    assert long == {}
