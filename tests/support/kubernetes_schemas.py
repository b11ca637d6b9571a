"""Validates manifests against the schemas that a cluster would use."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml


def check(manifest):
    """Raise a ValidationError for a wrong type, a missing or an unknown field.

    Dask's kinds are checked against the CRDs in the wheel of dask-kubernetes, and the pods and the
    service in them against Kubernetes' own schemas; other kinds against the latter only.
    """
    if manifest["apiVersion"].startswith("kubernetes.dask.org/"):
        jsonschema.Draft7Validator(_crd(manifest["kind"])).validate(manifest)
        for part in _inside(manifest):
            _check_core(part)
        return
    _check_core(manifest)


def _check_core(manifest):
    try:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        raise jsonschema.ValidationError(str(error)) from error


def _inside(cluster):
    """Objects that the operator creates from the specs of a DaskCluster."""
    spec = cluster["spec"]
    for kind, part in (("Pod", spec.get("scheduler")), ("Pod", spec.get("worker"))):
        if part is not None:
            yield {
                "apiVersion": "v1",
                "kind": kind,
                "metadata": {"name": "x"},
                "spec": part["spec"],
            }
    if "scheduler" in spec:
        service = spec["scheduler"]["service"]
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": service}


@cache
def _crd(kind):
    (package,) = find_spec("dask_kubernetes").submodule_search_locations
    folder = Path(package) / "operator/deployment/helm/dask-kubernetes-operator/crds"
    for path in folder.glob("*.yaml"):
        for crd in yaml.safe_load_all(path.read_text()):
            if crd["spec"]["names"]["kind"] == kind:
                return _strict(_with_kind(crd["spec"]))
    raise LookupError(f"no CRD of {kind} in {folder}")


def _with_kind(spec):
    """The schema with the fields that every object has and CRDs need not declare."""
    (version,) = spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    common = {
        "apiVersion": {"const": f"{spec['group']}/{version['name']}"},
        "kind": {"const": spec["names"]["kind"]},
        "metadata": {"type": "object", "required": ["name"]},
    }
    required = [*common, *schema.get("required", [])]
    return schema | {"properties": schema["properties"] | common, "required": required}


def _strict(schema):
    """The schema in which undeclared fields are errors, except in metadata."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: _strict(part) for name, part in schema.items()}
    named = isinstance(schema.get("properties"), dict)
    if named and "additionalProperties" not in schema and _is_closed(schema):
        result["additionalProperties"] = False
    return result


def _is_closed(schema):
    return not schema.get("x-kubernetes-preserve-unknown-fields")
