"""Snapshots of what others rely on: commands, public names, file formats, and the numbers of a fit.

A change of structure must leave them as they are; a change that is meant is written with
``python -m tests.support.golden`` and listed in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import typer.main

import gpgc_dask
from gpgc_dask import GP, GPGC, MarginSVM, open_dataset
from gpgc_dask.cli import app
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK
from tests.support.problems import classification


def commands() -> dict[str, Any]:
    """{command: {option: default}}; arguments are listed by their names."""
    program: Any = typer.main.get_command(app)
    return {
        name: {
            " ".join(parameter.opts + parameter.secondary_opts): _plain(parameter.default)
            for parameter in command.params
        }
        for name, command in sorted(program.commands.items())
    }


def names() -> dict[str, Any]:
    """Public names, parameters of the estimators, and what they have learned after a fit."""
    data = classification(200, 5, 12)
    found: dict[str, Any] = {"gpgc_dask": sorted(gpgc_dask.__all__)}
    for estimator in (GPGC, GP, MarginSVM):
        model = estimator().fit(data.X, data.y, groups=data.groups)
        own = estimator.__name__
        found[f"{own} parameters"] = {k: _plain(v) for k, v in estimator().get_params().items()}
        found[f"{own} learned"] = sorted(name for name in vars(model) if name.endswith("_"))
        methods = inspect.getmembers(estimator, inspect.isfunction)
        found[f"{own} methods"] = [
            name
            for name, method in methods
            if not name.startswith("_") and method.__module__.startswith("gpgc_dask")
        ]
    return found


def formats() -> dict[str, Any]:
    """{dataset or model: {array: [dimensions, type, codecs]}}, and the names of the attributes."""
    with tempfile.TemporaryDirectory() as folder:
        data, model = _photos(Path(folder))
        return {"dataset": _described(data), "model": _described(model)}


def fits() -> dict[str, Any]:
    """Evidence, noise and scales of small fits, and the ranking of a folder of photos."""
    found: dict[str, Any] = {}
    for name, estimator, classes in (
        ("GPGC", GPGC(), 2),
        ("GPGC, paper", GPGC(redundancy=1.0, solver="lbfgs"), 2),
        ("GPGC, three classes", GPGC(solver="fixed-point"), 3),
        ("GP", GP(), 2),
    ):
        data = classification(600, 8, 20, n_classes=classes)
        model = estimator.fit(data.X, data.y, groups=data.groups)
        found[name] = {
            "log_evidence": model.log_evidence_,
            "log_noise": np.log(np.atleast_1d(model.noise_variance_)).tolist(),
            "redundancy": model.redundancy_,
            "scales": list(model.feature_scales_.values()),
            "leave_out": np.ravel(model.leave_group_out(data.X, data.y, data.groups))[
                ::50
            ].tolist(),
        }
    with tempfile.TemporaryDirectory() as folder:
        data, _ = _photos(Path(folder))
        model = GPGC().fit(open_dataset(data))
        review = model.review(open_dataset(data))
        found["photos"] = {
            "log_evidence": model.log_evidence_,
            "log_noise": np.log(model.noise_variance_).tolist(),
            "agreement": review["agreement"].tolist(),
            "flags": review["flags"].tolist(),
        }
    return found


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "commands": commands,
    "names": names,
    "formats": formats,
    "fits": fits,
}


def taken(kind: str) -> dict[str, Any]:
    """The snapshot of today, as JSON holds it."""
    return json.loads(text_of(KINDS[kind]()))


def path_of(kind: str) -> Path:
    return Path(__file__).with_name(f"{kind}.json")


def text_of(snapshot: dict[str, Any]) -> str:
    return json.dumps(snapshot, indent=1, ensure_ascii=False) + "\n"


def _photos(folder: Path) -> tuple[Path, Path]:
    """(a dataset, a model) of twelve photos, two of whose masks are at the wrong place."""
    from PIL import Image

    images, masks = save_pairs(folder, 12)
    for name in ("photo_003", "photo_007"):
        path = masks / f"{name}.png"
        Image.fromarray(np.roll(np.asarray(Image.open(path)), 35, axis=1)).save(path)
    ingest(images, masks, folder / "data.zarr", **QUICK)
    train(folder / "data.zarr", folder / "model.zarr")
    return folder / "data.zarr", folder / "model.zarr"


def _described(path: Path) -> dict[str, Any]:
    attributes = json.loads((path / "zarr.json").read_text())["attributes"]
    found: dict[str, Any] = {"attributes": dict.fromkeys(sorted(attributes))}
    found["attributes"] |= {name: attributes[name] for name in ("format", "format_version")}
    for meta in sorted(path.glob("*/zarr.json")):
        array = json.loads(meta.read_text())
        found[meta.parent.name] = [
            array.get("dimension_names"),
            array["data_type"],
            [codec["name"] for codec in array["codecs"]],
        ]
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
