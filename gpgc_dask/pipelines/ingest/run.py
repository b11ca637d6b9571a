"""The function ``ingest``: its arguments, and what may be at the target."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from os import PathLike
from typing import Any

import numpy as np

from gpgc_dask.core.errors import ExistsError, InputError, PipelineError, Problem
from gpgc_dask.core.progress import work_listener
from gpgc_dask.data.dataset import open_dataset, state
from gpgc_dask.data.schema import UNFINISHED_FOLDER, VERDICTS_FOLDER
from gpgc_dask.data.summary import summary
from gpgc_dask.data.verdicts import VerdictLog
from gpgc_dask.execution.batches import client_context
from gpgc_dask.execution.client import Client, is_in_process
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.imaging.image_info import ImageInfo, PhotoInfo
from gpgc_dask.imaging.mask_sources import MaskOptions, MaskSource, open_source
from gpgc_dask.imaging.photo_format import PhotoFormat, stored_format
from gpgc_dask.imaging.scene_masks import cut_source
from gpgc_dask.imaging.survey import survey_photos
from gpgc_dask.pipelines.batches import problem_error
from gpgc_dask.pipelines.ingest.work import IngestRun, without_path
from gpgc_dask.pipelines.mask_check import check_masks
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.storage.location import Location

__all__ = ["ImageInfo", "IngestReport", "MaskOptions", "Recipe", "RunOptions", "ingest"]

PARAMETERS = f"{UNFINISHED_FOLDER}/parameters"


@dataclass(frozen=True)
class IngestReport:
    """The outcome of an ingest.

    Attributes
    ----------
    target : str
        The dataset.
    images, superpixels, features : int
        Size of the dataset.
    skipped : list of Problem
        Files that could not be used.
    flagged : dict
        {flag: number of images that have it}.
    resumed : int
        Number of images that an earlier run had finished.
    seconds : dict
        Seconds of work by phase, summed over all workers, in this run.
    elapsed : float
        Seconds that this run took.
    objects : int
        Number of annotations, of a COCO file.
    without_objects : int
        Number of images that have none: candidates for missing objects.
    found : str
        What the masks are: number, kinds, sizes, values and colours.
    notes : list of str
        What was done with the photos that may not be expected, such as stretching.
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
    objects: int = 0
    without_objects: int = 0
    found: str = ""
    notes: list[str] = field(default_factory=list)


def ingest(
    images: str | PathLike[str],
    masks: str | PathLike[str],
    target: str | PathLike[str],
    *,
    recipe: Recipe | Callable[[], Recipe] | None = None,
    masks_as: MaskOptions | None = None,
    info: ImageInfo | None = None,
    run: RunOptions | None = None,
    storage_options: dict[str, Any] | None = None,
) -> IngestReport:
    """Make a dataset of photos and masks: superpixels, their features and their labels.

    Images are kept as they are finished: after a crash, the same call with
    ``run=RunOptions(resume=True)`` continues.

    Parameters
    ----------
    images : path
        Folder of photos, with subfolders.
    masks : path
        Folder of masks named as their photos, or a file in another format, see ``masks_as``.
    target : path or URL
        The dataset, a local path or any fsspec URL.
    recipe : Recipe or callable, optional
        Backbone, superpixels and type of the features; or a function that returns it, which is
        called after photos and masks have been checked, because networks take time to load.
    masks_as : MaskOptions, optional
        Format of the masks and meaning of their values. By default 0 is background and one other
        value is foreground.
    info : ImageInfo, optional
        Who drew the masks, and which images belong together. By default every photo is on its own.
    run : RunOptions, optional
        Resuming, unusable files, progress and cluster.
    storage_options : dict, optional
        Options of fsspec for a target at a URL. Credentials are better left to the environment or
        the standard files.

    Returns
    -------
    IngestReport

    Examples
    --------
    >>> from gpgc_dask import Recipe, ingest
    >>> recipe = Recipe(backbone="colour", superpixels=20)
    >>> report = ingest("photos", "masks", "small.zarr", recipe=recipe)
    >>> report.images, report.skipped
    (12, [])
    """
    start = time.perf_counter()
    run = run or RunOptions()
    source = open_source(images, masks, masks_as)
    survey = check_masks(source, run.on_error)
    recipe = recipe() if callable(recipe) else recipe or Recipe()
    cut_source(source, recipe.photos, survey.scenes)
    if source.problems and (run.on_error == "raise" or not source.items):
        raise problem_error(source.problems)
    recipe.extractor.check_photos([item.pair.image for item in source.items])
    info = info or ImageInfo()
    about = source.find_info(info)
    recipe = recipe.settle(len(source.mask_format.names))
    location = Location.of(target, storage_options)
    recipe, notes = _survey(source, location, recipe, run)
    parameters = _parameters(source, recipe)
    check = partial(_check_target, location, source, about, parameters, run)
    attempt = None
    if check() == "complete":
        location.remove(UNFINISHED_FOLDER)
    else:
        with client_context(run.client) as client, work_listener(run.progress) as listener:
            check_reach(location, client)
            # Checked again: connecting takes time, and another ingest may have been faster.
            absent = check() == "absent"
            _prepare(location, parameters, clear=absent)
            attempt = IngestRun(
                client, source, location, recipe, run, listener, parameters, about, info.to_json()
            )
            try:
                attempt.run()
            except (PipelineError, InputError, KeyboardInterrupt):
                if absent:
                    attempt.remove_if_empty()
                raise
    report = _report(location, attempt, time.perf_counter() - start)
    return replace(report, found=survey.describe(), notes=notes)


def _survey(
    source: MaskSource, location: Location, recipe: Recipe, run: RunOptions
) -> tuple[Recipe, list[str]]:
    """The recipe with the levels of these photos, and notes about what is done with them."""
    photos = recipe.photos
    if run.resume:  # more photos do not change the levels of those that are finished
        photos = _stored_levels(location, photos)
    survey = survey_photos(list(dict.fromkeys(i.pair.image for i in source.items)), photos)
    return recipe.with_photos(survey.photo_format), survey.notes


def _stored_levels(location: Location, photos: PhotoFormat) -> PhotoFormat:
    """The format of an earlier run of the same call."""
    present = state(location)
    if present == "complete":
        stored = dict(location.group().attrs)
    elif present != "absent" and location.exists(PARAMETERS):
        stored = json.loads(location.read(PARAMETERS))
    else:
        return photos
    then = stored_format(stored)
    return then if replace(then, levels=photos.levels) == photos else photos


def check_reach(location: Location, client: Client) -> None:
    if location.is_private and not is_in_process(client):
        raise InputError(
            f"{location} exists in this process only, and the workers are other processes: close "
            "the client, or choose a target that all can reach"
        )


def _parameters(source: MaskSource, recipe: Recipe) -> dict[str, Any]:
    """All that the result depends on except the files; also the dataset's provenance."""
    return {
        "classes": list(source.mask_format.names),
        "class_values": list(source.mask_format.values),
        "source": source.provenance(),
        "backbone": recipe.extractor.provenance(),
        "recipe": recipe.to_json(),
        "versions": {
            name: version(name) for name in ("gpgc_dask", "scikit-image", "pillow", "numpy")
        },
    }


def _check_target(
    location: Location,
    source: MaskSource,
    info: Mapping[str, PhotoInfo],
    parameters: dict[str, Any],
    run: RunOptions,
) -> str:
    """State of the location; an error if work may not begin there. Changes nothing."""
    present = state(location)
    if present == "foreign":
        raise ExistsError(
            f"{location} exists and is not a gpgc_dask dataset: choose another target or remove it"
        )
    if present == "absent" or run.overwrite:
        _check_no_verdicts(location)
        return "absent"
    if present == "updating":
        raise ExistsError(
            f"an update of {location} is not finished: finish it with the same gpgc update, or "
            "create it again with overwrite=True (--overwrite)"
        )
    if not run.resume:
        if present == "complete":
            raise ExistsError(
                f"{location} exists: choose another target, or replace it with overwrite=True "
                "(--overwrite)"
            )
        raise ExistsError(
            f"{location} is an unfinished dataset: continue with resume=True (--resume), or "
            "restart with overwrite=True (--overwrite)"
        )
    if present == "complete":
        _check_same(dict(location.group().attrs), parameters, location)
        _check_files(location, source, source.digest(info))
    elif location.exists(PARAMETERS):
        _check_same(json.loads(location.read(PARAMETERS)), parameters, location)
    return present


def _check_no_verdicts(location: Location) -> None:
    """Raise an ExistsError if verdicts of people would be lost."""
    verdicts = VerdictLog(location).keys()
    if verdicts:
        raise ExistsError(
            f"{location} contains {len(verdicts)} verdict(s), which would be lost: choose another "
            f"target, or move its folder {VERDICTS_FOLDER} away first"
        )


def _prepare(location: Location, parameters: dict[str, Any], *, clear: bool) -> None:
    """Prepare the location.

    In this order, a crash leaves an unfinished dataset, never half of a finished one.
    """
    location.write(PARAMETERS, json.dumps(parameters).encode())
    if clear:
        location.remove("zarr.json")
        for name in location.names():
            if name != UNFINISHED_FOLDER:
                location.remove(name)
        for name in location.names(UNFINISHED_FOLDER):
            if f"{UNFINISHED_FOLDER}/{name}" != PARAMETERS:
                location.remove(f"{UNFINISHED_FOLDER}/{name}")
    location.remove_unfinished()


def _check_same(then: dict[str, Any], now: dict[str, Any], location: Location) -> None:
    """Raise a PipelineError if a dataset was made with other settings."""
    then, now = without_path(then), json.loads(json.dumps(without_path(now)))
    differing = [
        f"{name} ({json.dumps(then.get(name), ensure_ascii=False)} there, "
        f"{json.dumps(now[name], ensure_ascii=False)} here)"
        for name in now
        if then.get(name) != now[name]
    ]
    if differing:
        raise PipelineError(
            f"{location} was started with other settings: {'; '.join(differing)}. Use the same "
            "settings, or restart with overwrite=True (--overwrite)"
        )


def _check_files(location: Location, source: MaskSource, digest: str) -> None:
    """Raise a PipelineError if the files have changed since a dataset was finished."""
    if location.group().attrs["files_digest"] == digest:
        return
    dataset = open_dataset(location.url, location.options)
    then = {*dataset["image_name"].values, *dataset["skipped_name"].values}
    now = {item.pair.name for item in source.items} | {p.name for p in source.problems}
    raise PipelineError(
        f"{location} is finished, and the files have changed since: {len(now - then)} more, "
        f"{len(then - now)} fewer, other content, groups or annotators; make it again with "
        "overwrite=True "
        "(--overwrite)"
    )


def _report(location: Location, attempt: IngestRun | None, elapsed: float) -> IngestReport:
    dataset = open_dataset(location.url, location.options)
    outcome = summary(dataset)
    annotated = np.unique(dataset["object_image"].values).size
    return IngestReport(
        target=location.url,
        images=outcome["images"],
        superpixels=outcome["superpixels"],
        features=sum(outcome["features"].values()),
        skipped=[Problem(**one) for one in outcome["skipped"]],
        flagged={flag: len(names) for flag, names in outcome["flagged"].items()},
        resumed=outcome["images"] if attempt is None else attempt.resumed,
        seconds={} if attempt is None else attempt.seconds,
        elapsed=elapsed,
        objects=dataset.sizes["object"],
        without_objects=outcome["images"] - annotated if annotated else 0,
    )
