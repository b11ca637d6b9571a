"""What a release consists of agrees with itself."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpgc_dask

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RECIPE = ROOT / "conda/recipe.yaml"

CONDA_NAMES = {"dask": "dask-core"}
"""Other names on conda-forge; dask's extra "distributed" is a package of its own there."""


def requirements(texts):
    """{name: requirement}."""
    listed = [Requirement(text) for text in texts]
    return {canonicalize_name(each.name): each for each in listed}


@cache
def imported():
    """Distributions of the modules that the package imports, anywhere in it."""
    modules = set()
    for path in (ROOT / "gpgc_dask").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules |= {each.name.partition(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add((node.module or "").partition(".")[0])
    known = packages_distributions()
    ours = modules - set(sys.stdlib_module_names) - {"gpgc_dask"}
    return {canonicalize_name(name) for module in ours for name in known.get(module, [module])}


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    recipe = yaml.safe_load(RECIPE.read_text())
    changes = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[:2] == ["Unreleased", gpgc_dask.__version__]
    assert citation["version"] == recipe["context"]["version"] == gpgc_dask.__version__
    assert citation["license"] == recipe["about"]["license"] == PROJECT["license"]


def test_every_required_dependency_is_imported():
    required = set(requirements(PROJECT["dependencies"]))
    assert required <= imported() | {"dask"}, required - imported()


def test_every_import_is_declared():
    """As a dependency or in an extra, and not by luck through another package."""
    extras = [text for own in PROJECT["optional-dependencies"].values() for text in own]
    declared = set(requirements([*PROJECT["dependencies"], *extras]))
    through = {
        "botocore": "s3fs",
        "distributed": "dask",
        "httpx": "dask-kubernetes",
        "ipython": "ipykernel",
        "kr8s": "dask-kubernetes",
        "markupsafe": "jinja2",
        "psutil": "dask",
    }
    assert set(through.values()) <= declared
    assert imported() <= declared | set(through), imported() - declared


def test_the_recipe_has_the_required_dependencies():
    recipe = yaml.safe_load(RECIPE.read_text())
    run = requirements(each for each in recipe["requirements"]["run"] if "$" not in each)
    own = requirements(PROJECT["dependencies"])
    expected = {CONDA_NAMES.get(name, name): each.specifier for name, each in own.items()}
    expected["distributed"] = own["dask"].specifier
    assert {name: each.specifier for name, each in run.items()} == expected
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    command = PROJECT["scripts"]["gpgc"]
    assert recipe["build"]["python"]["entry_points"] == [f"gpgc = {command}"]


def test_the_oldest_versions_are_those_of_the_project():
    lines = (ROOT / "tests/lower-bounds.txt").read_text().splitlines()
    pins = requirements(line for line in lines if not line.startswith("#"))
    extras = PROJECT["optional-dependencies"]
    for name, each in requirements([*PROJECT["dependencies"], *extras["tls"]]).items():
        (bound,) = each.specifier
        (pin,) = pins[name].specifier
        assert bound.operator == ">="
        assert pin.version.startswith(bound.version), name
