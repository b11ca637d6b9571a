"""Snapshots of what others rely on: commands, public names, file formats, and the numbers of a fit.

Refactoring must not change them. An intended change is written with
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
    """Public names, and the parameters, methods and fitted attributes of the estimators."""
    data = classification(200, 5, 12)
    snapshot: dict[str, Any] = {"gpgc_dask": sorted(gpgc_dask.__all__)}
    for estimator in (GPGC, GP, MarginSVM):
        model = estimator().fit(data.X, data.y, groups=data.groups)
        own = estimator.__name__
        snapshot[f"{own} parameters"] = {k: _plain(v) for k, v in estimator().get_params().items()}
        snapshot[f"{own} learned"] = sorted(name for name in vars(model) if name.endswith("_"))
        methods = inspect.getmembers(estimator, inspect.isfunction)
        snapshot[f"{own} methods"] = [
            name
            for name, method in methods
            if not name.startswith("_") and method.__module__.startswith("gpgc_dask")
        ]
    return snapshot


def formats() -> dict[str, Any]:
    """{dataset or model: {array: [dimensions, type, codecs]}}, with the names of the attributes."""
    with tempfile.TemporaryDirectory() as folder:
        data, model = _photos(Path(folder))
        return {"dataset": _describe(data), "model": _describe(model)}


def fits() -> dict[str, Any]:
    """Evidence, noise and scales of small fits, and the ranking of a folder of photos."""
    snapshot: dict[str, Any] = {}
    for name, estimator, classes in (
        ("GPGC", GPGC(rounds=0), 2),
        ("GPGC, paper", GPGC(redundancy=1.0, solver="lbfgs", rounds=0), 2),
        ("GPGC, three classes", GPGC(solver="fixed-point", rounds=0, class_weight="balanced"), 3),
        ("GP", GP(), 2),
        ("GPGC, second look", GPGC(), 2),
        ("GPGC, second look at three classes", GPGC(rounds=2, class_weight="balanced"), 3),
    ):
        data = classification(600, 8, 20, n_classes=classes)
        model = estimator.fit(data.X, data.y, groups=data.groups)
        snapshot[name] = {
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
        snapshot["photos"] = {
            "log_evidence": model.log_evidence_,
            "log_noise": np.log(model.noise_variance_).tolist(),
            "agreement": review["agreement"].tolist(),
            "flags": review["flags"].tolist(),
        }
    return snapshot


KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "commands": commands,
    "names": names,
    "formats": formats,
    "fits": fits,
}


def take_snapshot(kind: str) -> dict[str, Any]:
    """Take a snapshot of the current code, as JSON represents it."""
    return json.loads(to_json(KINDS[kind]()))


def snapshot_path(kind: str) -> Path:
    """File of the stored snapshot."""
    return Path(__file__).with_name(f"{kind}.json")


def to_json(snapshot: dict[str, Any]) -> str:
    """Text of the file."""
    return json.dumps(snapshot, indent=1, ensure_ascii=False) + "\n"


def _photos(folder: Path) -> tuple[Path, Path]:
    """Write a dataset of twelve photos, two of them with shifted masks, and a model of it."""
    from PIL import Image

    images, masks = save_pairs(folder, 12)
    for name in ("photo_003", "photo_007"):
        path = masks / f"{name}.png"
        Image.fromarray(np.roll(np.asarray(Image.open(path)), 35, axis=1)).save(path)
    ingest(images, masks, folder / "data.zarr", recipe=QUICK)
    train(folder / "data.zarr", folder / "model.zarr")
    return folder / "data.zarr", folder / "model.zarr"


def _describe(path: Path) -> dict[str, Any]:
    attributes = json.loads((path / "zarr.json").read_text())["attributes"]
    snapshot: dict[str, Any] = {"attributes": dict.fromkeys(sorted(attributes))}
    snapshot["attributes"] |= {name: attributes[name] for name in ("format", "format_version")}
    for meta in sorted(path.glob("*/zarr.json")):
        array = json.loads(meta.read_text())
        snapshot[meta.parent.name] = [
            array.get("dimension_names"),
            array["data_type"],
            [codec["name"] for codec in array["codecs"]],
        ]
    return snapshot


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
