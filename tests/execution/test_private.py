"""Interfaces that dependencies do not document: clear messages if a new version changes one.

All of them are used in gpgc_dask/execution/private.py only.
"""

from __future__ import annotations

import ast
import inspect
import time
from pathlib import Path

import dask
import dask.array as da
import pytest
from distributed import Security

import gpgc_dask
from gpgc_dask.execution import private

PACKAGE = Path(gpgc_dask.__file__).parent
DEPENDENCIES = ("dask", "distributed", "zarr", "fsspec", "sklearn", "scipy", "numpy", "rich")

CHANGED = "{} has changed: adapt gpgc_dask/execution/private.py, which says why it is used"


def test_nodes_of_graphs():
    """Blocks are read by tasks from parts of Dask's graphs: see execution/row_blocks.py."""
    lazy = da.ones((4, 2), chunks=(2, 2)) + 1
    (optimised,) = dask.optimize(lazy)
    nodes = dict(optimised.__dask_graph__()).values()
    message = CHANGED.format("dask._task_spec")
    assert all(isinstance(node, private.GraphNode) for node in nodes), message
    assert all(isinstance(node.dependencies, (set, frozenset)) for node in nodes), message
    node = private.DataNode("key", 3)
    assert (node.value, isinstance(node, private.GraphNode)) == (3, True), message


def test_answers_of_the_scheduler(client):
    future = client.submit(sum, [1, 2], pure=False)
    assert future.result(timeout=30) == 3
    message = CHANGED.format("a handler of distributed's scheduler")
    states = private.ask_scheduler(client, "get_task_status", 30, keys=[future.key])
    assert states == {future.key: "memory"}, message
    workers = private.ask_scheduler(client, "processing", 30, workers=None)
    assert set(workers) == set(client.nthreads()), message


def executing(dask_worker):
    return [task.key for task in dask_worker.state.executing]


def late(dask_worker):
    time.sleep(2)


def test_functions_on_workers_have_a_time_limit(client):
    found = private.run_on_workers(client, executing, 30)
    assert set(found) == set(client.nthreads()), CHANGED.format("distributed.Client.run")
    assert all(isinstance(keys, list) for keys in found.values())
    try:
        private.run_on_workers(client, late, 0.2)
    except TimeoutError:
        return
    pytest.fail(CHANGED.format("the time limit of distributed.Client.run"))


def test_encrypted_pods():
    operator = pytest.importorskip("dask_kubernetes.operator")
    message = CHANGED.format("dask_kubernetes.operator.KubeCluster")
    source = inspect.getsource(operator.KubeCluster)
    for name in ("_connect_cluster", "_get_scheduler_address"):
        assert inspect.iscoroutinefunction(getattr(operator.KubeCluster, name, None)), message
    for name in ("_resource_timeout", "scheduler_comm", "forwarded_dashboard_port"):
        assert f"self.{name} = " in source, message
    made = private.encrypted_kube_cluster(Security(require_encryption=True))
    assert issubclass(made, operator.KubeCluster)


def private_imports(path):
    """Imports of modules of dependencies whose names begin with an underscore."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first in DEPENDENCIES and (
                any(part.startswith("_") for part in rest) or name.startswith("zarr.core")
            ):
                yield name


def private_attributes(path):
    """Attributes with one underscore of anything but the module's own objects."""
    own = {"self", "cls", "other", "store", "super()"}
    tree = ast.parse(path.read_text())
    defined = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    } | {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in own
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and node.attr not in defined
        ):
            yield f"{ast.unparse(node.value)}.{node.attr}"


def test_private_interfaces_are_used_in_one_module():
    found = {
        str(path.relative_to(PACKAGE)): [*private_imports(path)]
        for path in PACKAGE.rglob("*.py")
        if path.name != "private.py"
    }
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("package", ["core", "storage", "execution", "clusters", "cli"])
def test_private_attributes_are_used_in_one_module(package):
    found = {
        str(path.relative_to(PACKAGE)): [*private_attributes(path)]
        for path in (PACKAGE / package).rglob("*.py")
        if path.name != "private.py"
    }
    assert {name: names for name, names in found.items() if names} == {}
