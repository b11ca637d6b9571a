"""Folders of images and masks, or a COCO file, to a dataset."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from importlib.metadata import version
from os import PathLike
from typing import Any

from gpgc_dask.core.errors import ExistsError, InputError, PipelineError, Problem
from gpgc_dask.core.progress import Listener, work_listener
from gpgc_dask.data.dataset import open_dataset, state
from gpgc_dask.data.schema import UNFINISHED_FOLDER
from gpgc_dask.data.summary import summary
from gpgc_dask.execution.batches import client_context
from gpgc_dask.execution.client import Client, is_in_process
from gpgc_dask.imaging.backbones import BackboneLike, find_backbone
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.imaging.mask_sources import Source
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.pipelines.ingest.work import OnError, Run, complaint, without_place
from gpgc_dask.storage.location import Location

__all__ = ["IngestReport", "ingest"]

PARAMETERS = f"{UNFINISHED_FOLDER}/parameters"


@dataclass(frozen=True)
class IngestReport:
    """What an ingest has made, and what it took.

    flagged : {flag: images that have it};  resumed : images that an earlier run had done
    seconds : work of all workers in this run, by phase;  elapsed : of this run, by the clock
    """

    target: str
    images: int
    superpixels: int
    features: int
    skipped: list[Problem]
    flagged: dict[str, int]
    resumed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    elapsed: float = 0.0


def ingest(
    images: str | PathLike[str],
    masks: str | PathLike[str] | None,
    target: str | PathLike[str],
    *,
    coco: str | PathLike[str] | None = None,
    categories: Sequence[str] = (),
    with_empty: bool = False,
    mask_suffix: str = "",
    foreground: Sequence[int] = (),
    classes: Mapping[int, str] | None = None,
    void: Sequence[int] = (),
    threshold: float | None = None,
    backbone: BackboneLike = "lite0",
    layers: Sequence[str] = (),
    backbone_options: Mapping[str, Any] | None = None,
    superpixels: int = 150,
    compactness: float = 20.0,
    sigma: float = 1.0,
    side: int = 512,
    dtype: str = "float32",
    resume: bool = False,
    overwrite: bool = False,
    on_error: OnError = "raise",
    progress: bool | Listener | None = None,
    client: Client | AbstractContextManager[Client] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> IngestReport:
    """Superpixels and their features of all images in a folder, labelled by their masks.

    Images are kept as they are done: after a kill, the same call with ``resume=True`` goes on.

    Parameters
    ----------
    images, masks : folders; a mask has its photo's name (plus ``mask_suffix``) and any ending
    target : the dataset, a local path or any fsspec URL
    coco, categories : a COCO instances file instead of ``masks``, and what to take from it; images
        that show none of the categories are left out unless ``with_empty``
    foreground, classes, void, threshold : how masks are read, see
        :class:`~gpgc_dask.imaging.masks.MaskFormat`; by default 0 is background and one other
        value foreground. ``classes`` are {value: name}
    backbone : "lite0", "colour", the path of an ONNX file (with its ``layers``, and ``side``,
        ``mean``, ``std`` in ``backbone_options``), or a callable: (h, w, 3) uint8 RGB in, list of
        (channels, h', w') maps out
    superpixels : about how many an image;  compactness, sigma : of SLIC
    side : longest side in pixels of the image that superpixels are made of
    dtype : of the stored features, "float32" or "float16"
    on_error : "raise" stops at a file that cannot be used, "skip" leaves it out and lists it
    progress : True shows a live line in a notebook, prints lines to stderr elsewhere; a callable
        is called with a :class:`~gpgc_dask.core.progress.Progress` now and then
    client : a Dask client, or a context that gives one and is entered when there is work to do;
        default the active client, else threads of this process

    Examples
    --------
    >>> from gpgc_dask import ingest
    >>> report = ingest("photos", "masks", "quick.zarr", backbone="colour", superpixels=20)
    >>> report.images, report.skipped
    (12, [])
    """
    start = time.perf_counter()
    if (masks is None) == (coco is None):
        raise InputError("give a folder of masks, or a COCO file instead (coco, --coco)")
    recipe = Recipe(
        find_backbone(backbone, layers, **(backbone_options or {})),
        superpixels=superpixels,
        compactness=compactness,
        sigma=sigma,
        side=side,
        dtype=dtype,
    )
    fmt = MaskFormat(tuple(foreground), tuple((classes or {}).items()), tuple(void), threshold)
    if masks is not None and not (categories or with_empty):
        source = Source.from_masks(images, masks, fmt, mask_suffix)
    elif coco is not None and fmt == MaskFormat() and not mask_suffix:
        source = Source.from_coco(images, coco, categories, with_empty=with_empty)
    else:
        raise InputError(
            "categories and with_empty belong to a COCO file; foreground, classes, void, threshold "
            "and mask_suffix to masks: leave out what does not apply"
        )
    location = Location.of(target, storage_options)
    if on_error not in ("raise", "skip"):
        raise InputError(f'on_error must be "raise" or "skip", got {on_error!r}')
    if source.problems and (on_error == "raise" or not source.items):
        raise PipelineError(complaint(source.problems, kept=None), source.problems)
    parameters = _parameters(source, recipe)
    check = partial(_check_target, location, source, parameters, resume, overwrite)
    run = None
    if check() == "complete":
        location.remove(UNFINISHED_FOLDER)
    else:
        with client_context(client) as cluster, work_listener(progress) as listener:
            _check_reach(location, cluster)
            # Again: the cluster took its time, and another ingest may have been quicker.
            _begin(location, parameters, anew=check() == "absent")
            run = Run(cluster, source, location, recipe, on_error, listener, parameters)
            run.run()
    return _report(location, run, time.perf_counter() - start)


def _check_reach(location: Location, client: Client) -> None:
    if location.is_private and not is_in_process(client):
        raise InputError(
            f"{location} lives in this process alone, and the workers are others: close the "
            "client, or choose a target that all can reach"
        )


def _parameters(source: Source, recipe: Recipe) -> dict[str, Any]:
    """All that the result depends on but the files themselves; also the dataset's provenance."""
    settings = {f.name: getattr(recipe, f.name) for f in fields(recipe) if f.name != "backbone"}
    return {
        "classes": list(source.format.names),
        "class_values": list(source.format.values),
        "source": source.told | {"mask_format": asdict(source.format)},
        "backbone": recipe.backbone.provenance(),
        "recipe": settings,
        "versions": {
            "gpgc_dask": version("gpgc_dask"),
            "scikit-image": version("scikit-image"),
            "pillow": version("pillow"),
            "numpy": version("numpy"),
        },
    }


def _check_target(
    location: Location,
    source: Source,
    parameters: dict[str, Any],
    resume: bool,
    overwrite: bool,
) -> str:
    """What is at the location, where work may begin there; changes nothing."""
    found = state(location)
    if found == "foreign":
        raise ExistsError(
            f"{location} exists and is not a gpgc_dask dataset: choose another target or remove it"
        )
    if found == "absent" or overwrite:
        return "absent"
    if not resume:
        if found == "complete":
            raise ExistsError(
                f"{location} exists: choose another target, or replace it with overwrite=True "
                "(--overwrite)"
            )
        raise ExistsError(
            f"{location} is an unfinished dataset: go on with it with resume=True (--resume), "
            "or begin anew with overwrite=True (--overwrite)"
        )
    if found == "complete":
        _check_same(dict(location.group().attrs), parameters, location)
        _check_files(location, source)
    elif location.exists(PARAMETERS):
        _check_same(json.loads(location.read(PARAMETERS)), parameters, location)
    return found


def _begin(location: Location, parameters: dict[str, Any], *, anew: bool) -> None:
    """Make the location ready. In this order a kill leaves an unfinished dataset, never half a
    finished one."""
    location.write(PARAMETERS, json.dumps(parameters).encode())
    if anew:
        location.remove("zarr.json")
        for name in location.names():
            if name != UNFINISHED_FOLDER:
                location.remove(name)
        for name in location.names(UNFINISHED_FOLDER):
            if f"{UNFINISHED_FOLDER}/{name}" != PARAMETERS:
                location.remove(f"{UNFINISHED_FOLDER}/{name}")
    location.remove_unfinished()


def _check_same(there: dict[str, Any], here: dict[str, Any], location: Location) -> None:
    there, plain = without_place(there), json.loads(json.dumps(without_place(here)))
    differing = [
        f"{name} ({json.dumps(there.get(name), ensure_ascii=False)} there, "
        f"{json.dumps(plain[name], ensure_ascii=False)} here)"
        for name in plain
        if there.get(name) != plain[name]
    ]
    if differing:
        raise PipelineError(
            f"{location} was begun in another way; what differs: {'; '.join(differing)}. Use the "
            "same settings, or begin anew with overwrite=True (--overwrite)"
        )


def _check_files(location: Location, source: Source) -> None:
    """Complain where a finished dataset is no longer that of the files."""
    if location.group().attrs["files_digest"] == source.digest():
        return
    dataset = open_dataset(location.url, location.options)
    there = {*dataset["image_name"].values, *dataset["skipped_name"].values}
    here = {item.pair.name for item in source.items} | {p.name for p in source.problems}
    raise PipelineError(
        f"{location} is finished, and the files have changed since: {len(here - there)} more, "
        f"{len(there - here)} fewer, or other content; make it anew with overwrite=True "
        "(--overwrite)"
    )


def _report(location: Location, run: Run | None, elapsed: float) -> IngestReport:
    found = summary(open_dataset(location.url, location.options))
    return IngestReport(
        target=location.url,
        images=found["images"],
        superpixels=found["superpixels"],
        features=sum(found["features"].values()),
        skipped=[Problem(**one) for one in found["skipped"]],
        flagged={flag: len(names) for flag, names in found["flagged"].items()},
        resumed=found["images"] if run is None else run.resumed,
        seconds={} if run is None else run.seconds,
        elapsed=elapsed,
    )
