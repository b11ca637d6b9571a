"""Networks from the Hugging Face hub, as ONNX files."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from gpgc_dask.core.errors import InputError, MissingDependencyError, MissingFileError
from gpgc_dask.imaging.backbones.devices import choose_device
from gpgc_dask.imaging.backbones.graph import external_files
from gpgc_dask.imaging.backbones.onnx import OnnxFile, stored_settings

__all__ = ["HubModel"]

PREFIX = "hf:"
FILES = ("onnx/model.onnx", "model.onnx")
"""Where repositories have their network, most frequent first."""

CONFIG = "preprocessor_config.json"

MALFORMED = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""Errors of reading a file of settings that are not those of a network."""

NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[^@]+\.onnx))?(?:@(?P<revision>.+))?")


@dataclass(frozen=True)
class HubModel(OnnxFile):
    """An ONNX file of a repository on the Hugging Face hub.

    Parameters
    ----------
    repo : str
        The repository, such as ``onnx-community/dinov2-small``.
    revision : str
        The commit.
    file : str
        Path of the ONNX file in the repository.
    """

    repo: str = ""
    revision: str = ""
    file: str = ""

    def provenance(self) -> dict[str, Any]:
        name = {"name": PREFIX + self.repo, "revision": self.revision, "file": self.file}
        return super().provenance() | name

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> Self:
        repo, revision, files = _parse(name)
        path, place = _download(repo, revision, files)
        complete = {"side", "mean", "std"} <= options.keys()
        settings = {} if complete else _preprocessing(repo, place["revision"])
        return cls.with_options(path, name, settings | dict(options), **place)

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], name: str | None = None) -> Self:
        if name is not None and not name.startswith(PREFIX):
            return super().from_provenance(provenance, name)
        repo, revision, files = _parse(name or provenance["name"])
        if len(files) > 1:  # none was named
            files = [provenance["file"]]
        path, place = _download(repo, revision or provenance["revision"], files)
        return cls(path, **stored_settings(provenance), device=choose_device(), **place)


def _parse(name: str) -> tuple[str, str | None, list[str]]:
    """(repository, revision, files that the network may be) of hf:ORG/MODEL[/FILE][@REVISION]."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise InputError(
            f"{name} is not hf:ORG/MODEL, hf:ORG/MODEL@REVISION or hf:ORG/MODEL/FILE.onnx"
        )
    return parts["repo"], parts["revision"], [parts["file"]] if parts["file"] else [*FILES]


def _download(repo: str, revision: str | None, files: list[str]) -> tuple[str, dict[str, Any]]:
    """(path in the cache, {repo, revision, file}) of the first of these files that exists."""
    for file in files:
        path = _fetch(repo, file, revision)
        if path is not None:
            commit = path.parts[path.parts.index("snapshots") + 1]
            for name in external_files(path):
                if _fetch(repo, str(PurePosixPath(file).parent / name), commit) is None:
                    raise MissingFileError(
                        f"{PREFIX}{repo} at {commit} has no {name}, the weights of {file}, in the "
                        "cache or on the hub: download it, or choose another model"
                    )
            return str(path), {"repo": repo, "revision": commit, "file": file}
    raise MissingFileError(
        f"{PREFIX}{repo}{f' at {revision}' if revision else ''} has no {' or '.join(files)} that "
        "the hub or its cache can provide: go online without HF_HUB_OFFLINE, or choose a model "
        "that has an ONNX file (hf:ORG/MODEL/FILE.onnx)"
    )


def _fetch(repo: str, file: str, revision: str | None) -> Path | None:
    """Path of a file in the cache, where it is downloaded; None if there is no such file."""
    try:
        from huggingface_hub import errors, hf_hub_download
    except ImportError:
        raise MissingDependencyError(
            f'{PREFIX}{repo} is on the Hugging Face hub: pip install "gpgc_dask[hub]"'
        ) from None
    try:
        return Path(hf_hub_download(repo, file, revision=revision))
    except errors.EntryNotFoundError:
        return None
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{PREFIX}{repo} cannot be downloaded ({type(error).__name__}): check the name and the "
            f"revision; models with restricted access need `hf auth login`: {reason:.200}"
        ) from None


def _preprocessing(repo: str, revision: str) -> dict[str, Any]:
    """Side, mean and std that a repository's file describes; values are 0 … 255."""
    path = _fetch(repo, CONFIG, revision)
    if path is None:
        raise MissingFileError(
            f"{PREFIX}{repo} has no {CONFIG} that the hub or its cache can provide: describe the "
            "input with side=, mean= and std= (--input-side, --mean, --std)"
        )
    return read_preprocessing(path, repo)


def read_preprocessing(path: Path, repo: str) -> dict[str, Any]:
    """Side, mean and std of a ``preprocessor_config.json``; values are 0 … 255."""
    try:
        return _read_config(json.loads(path.read_text(encoding="utf-8")))
    except MALFORMED as error:
        raise InputError(
            f"{CONFIG} of {PREFIX}{repo} is not understood ({type(error).__name__}: {error}): "
            "describe the input with side=, mean= and std= (--input-side, --mean, --std)"
        ) from None


def _read_config(config: Mapping[str, Any]) -> dict[str, Any]:
    factor = float(config.get("rescale_factor", 1 / 255)) if config.get("do_rescale", True) else 1.0
    mean, std = [0.0] * 3, [1.0] * 3
    if config.get("do_normalize", True) and "image_mean" in config:
        mean, std = config["image_mean"], config["image_std"]
    settings: dict[str, Any] = {
        "mean": tuple(float(value) / factor for value in mean),
        "std": tuple(float(value) / factor for value in std),
    }
    values = (*settings["mean"], *settings["std"])
    if len(mean) != 3 or len(std) != 3 or not all(map(math.isfinite, values)):
        raise ValueError("image_mean and image_std are three finite numbers")
    if not all(value > 0 for value in settings["std"]):
        raise ValueError("image_std and rescale_factor must be above 0")
    size = config.get("crop_size") if config.get("do_center_crop", True) else None
    size = size or config.get("size")
    sides = [size] if isinstance(size, int) else list((size or {}).values())
    if sides and max(map(int, sides)) < 1:
        raise ValueError("its size must be 1 or more pixels")
    return settings | ({"side": max(map(int, sides))} if sides else {})
