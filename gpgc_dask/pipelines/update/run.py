"""The function ``update``: its arguments, and how the steps of an update follow each other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from typing import Any

from gpgc_dask.core.errors import InputError, PipelineError, Problem, StoppedError
from gpgc_dask.core.progress import work_listener
from gpgc_dask.data.dataset import open_arrays, open_dataset, state, text_values
from gpgc_dask.data.replacement import (
    commit_replacement,
    finish_replacement,
    is_committed,
    state_digest,
)
from gpgc_dask.data.schema import MAPS, UPDATE_FOLDER, UPDATES
from gpgc_dask.data.writing import finish, write_array
from gpgc_dask.execution.batches import client_context, translate_failures
from gpgc_dask.imaging.backbones import BackboneLike, restore_backbone
from gpgc_dask.imaging.features import Recipe
from gpgc_dask.imaging.image_info import ImageInfo, PhotoInfo
from gpgc_dask.pipelines.batches import problem_error
from gpgc_dask.pipelines.ingest.run import check_reach
from gpgc_dask.pipelines.options import RunOptions
from gpgc_dask.pipelines.update.assemble import NewState
from gpgc_dask.pipelines.update.changes import (
    StoredImages,
    files_digest,
    find_changes,
    find_info,
    open_stored_source,
)
from gpgc_dask.pipelines.update.lock import UpdateLock, update_lock
from gpgc_dask.pipelines.update.verdicts import renew_verdicts
from gpgc_dask.pipelines.update.work import AGAIN, Staging, write_chunks
from gpgc_dask.storage.integrity import DIGESTS, read_attributes
from gpgc_dask.storage.location import Location
from gpgc_dask.storage.verified import VerifiedArray

__all__ = ["UpdateReport", "update"]

LARGE = ("features", *MAPS)


@dataclass(frozen=True)
class UpdateReport:
    """The outcome of an update.

    Attributes
    ----------
    target : str
        The dataset.
    changed : bool
        Whether anything was written.
    images, superpixels, features : int
        Size of the dataset now.
    new : int
        Number of images that were added, or made again because their photo has changed.
    replaced : int
        Number of those that were made again.
    relabelled : int
        Number of images with a changed mask.
    unchanged : int
        Number of images whose photo and mask are as they were.
    vanished : list of Problem
        Images of the dataset without a photo or a mask now, with the reason.
    removed : int
        Number of images that were removed (``prune``).
    skipped : list of Problem
        Files that could not be used.
    seconds : dict
        Seconds of work by phase, summed over all workers, in this run.
    elapsed : float
        Seconds that this run took.
    """

    target: str
    changed: bool
    images: int
    superpixels: int
    features: int
    new: int = 0
    replaced: int = 0
    relabelled: int = 0
    unchanged: int = 0
    vanished: list[Problem] = field(default_factory=list)
    removed: int = 0
    skipped: list[Problem] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    elapsed: float = 0.0


def update(
    target: str | PathLike[str],
    images: str | PathLike[str],
    masks: str | PathLike[str],
    *,
    info: ImageInfo | None = None,
    answers: str | PathLike[str] = "",
    backbone: BackboneLike | None = None,
    prune: bool = False,
    run: RunOptions | None = None,
    storage_options: dict[str, Any] | None = None,
) -> UpdateReport:
    """Bring a dataset up to date with its photos and masks.

    New photos are added, and images with changed masks get new labels. Features are computed for
    new photos only, with the settings of the dataset. The result is that of an ingest of the same
    files, except for the order of the images.

    The dataset changes completely or not at all. After a crash the same call continues. A program
    that has the dataset open gets a :class:`~gpgc_dask.errors.ChangedError` when it reads more of
    it.

    Parameters
    ----------
    target : path or URL
        The dataset, a local path or any fsspec URL.
    images : path
        Folder of photos, with subfolders.
    masks : path
        Folder or file of the masks, in the format of the dataset.
    info : ImageInfo, optional
        Who drew the masks, and which images belong together. By default as in the dataset.
    answers : path, optional
        CSV file that names the photo of each mask, if the dataset has several masks per photo. By
        default that of the dataset.
    backbone : str, Backbone or callable, optional
        The present path of the dataset's ONNX file, or the Python function of its features.
    prune : bool, default False
        Whether images whose photo or mask is gone are removed. By default they are kept, and listed
        in the report.
    run : RunOptions, optional
        Unusable files, progress and cluster. Unfinished work is always resumed.
    storage_options : dict, optional
        Options of fsspec for a dataset at a URL.

    Returns
    -------
    UpdateReport

    Raises
    ------
    PipelineError
        If files cannot be used, or another update is running.

    Examples
    --------
    >>> from gpgc_dask import Recipe, ingest, update
    >>> recipe = Recipe(backbone="colour", superpixels=20)
    >>> report = ingest("photos", "masks", "living.zarr", recipe=recipe)
    >>> report = update("living.zarr", "photos", "masks")
    >>> report.changed, report.new, report.unchanged
    (False, 0, 12)
    """
    start = time.perf_counter()
    run = run or RunOptions()
    if run.overwrite:
        raise InputError(
            "an update replaces nothing: use ingest with overwrite=True (--overwrite) for that"
        )
    location = Location.of(target, storage_options)
    earlier = _finish_earlier(location)
    arguments = Arguments(images, masks, info, answers, backbone, prune)
    attempt = Attempt(location, arguments, run)
    report = attempt.unchanged_report()
    if report is None or UPDATE_FOLDER in location.names():
        with update_lock(location) as lock:
            if not attempt.is_current():  # another update has just finished
                attempt = Attempt(location, arguments, run)
            report = attempt.unchanged_report() or attempt.run(lock)
            _clear(location)
    if earlier is not None and not report.changed:
        report = _from_json(earlier)
    return replace(report, elapsed=time.perf_counter() - start)


def _finish_earlier(location: Location) -> dict[str, Any] | None:
    """Finish an update that was stopped while it took effect; its report, if there was one."""
    if state(location) not in ("updating", "complete") or not is_committed(location):
        return None
    with update_lock(location) as lock:
        if not is_committed(location):
            return None
        report = finish_replacement(location, lock.check)
        _clear(location)
    return report


def _clear(location: Location) -> None:
    """Remove everything that an update has prepared; the lock removes itself."""
    for name in location.names(UPDATE_FOLDER):
        if name != "lock":
            location.remove(f"{UPDATE_FOLDER}/{name}")


def _from_json(report: Mapping[str, Any]) -> UpdateReport:
    lists = {name: [Problem(**one) for one in report[name]] for name in ("vanished", "skipped")}
    return UpdateReport(**{**report, **lists})


@dataclass(frozen=True)
class Arguments:
    """The arguments of :func:`update` on which the content of the dataset depends."""

    images: str | PathLike[str]
    masks: str | PathLike[str]
    info: ImageInfo | None
    answers: str | PathLike[str]
    backbone: BackboneLike | None
    prune: bool


class Attempt:
    """One attempt at an update: what has changed since the dataset was opened."""

    def __init__(self, location: Location, arguments: Arguments, options: RunOptions) -> None:
        self.location, self.arguments, self.options = location, arguments, options
        self.dataset = open_dataset(location.url, location.options, verdicts=False)
        self.attributes = read_attributes(location) or {}
        self.digest = state_digest(self.attributes)
        self.stored = StoredImages(self.dataset)
        self.source = open_stored_source(
            self.attributes, arguments.images, arguments.masks, arguments.answers
        )
        self.changes = find_changes(self.source, self.stored)
        # Files that were skipped before, or whose images were removed, are skipped again.
        known = set(text_values(self.dataset["skipped_name"]).tolist())
        problems = [problem for problem in self.changes.problems if problem.name not in known]
        if problems and options.on_error == "raise":
            raise problem_error(problems)
        self.rules = _merge_rules(self.attributes["image_info"], arguments.info)
        self.staging = Staging(
            location, self.source, self.stored, self.changes, self.attributes, self.digest
        )
        self.recipe = self._restore_recipe() if self.changes.described else None
        self._find_info()  # groups and annotators that do not fit are noticed before the work

    def is_current(self) -> bool:
        """Whether the dataset is in the state in which it was opened."""
        return state_digest(read_attributes(self.location) or {}) == self.digest

    def unchanged_report(self) -> UpdateReport | None:
        """The report if nothing has changed; None if there may be something to do."""
        if self.changes.described or self.changes.labelled:
            return None
        new, _ = self._new_state({})
        return self._report(new, set(), changed=False) if new.is_present() else None

    def run(self, lock: UpdateLock) -> UpdateReport:
        """Stage, assemble and replace."""
        with (
            client_context(self.options.client) as client,
            work_listener(self.options.progress) as listener,
        ):
            check_reach(self.location, client)
            present = open_arrays(self.location, LARGE)
            segments = present["segments"]
            self.staging.run(client, self.recipe, segments, self.options, listener, lock)
            new, relabelled = self._new_state(present)
            if new.is_present():
                return self._report(new, set(), changed=False)
            place = self._place(f"new-{new.digest(self.digest)}")
            place.remove_unfinished()
            with translate_failures(place, "the arrays", AGAIN):
                tasks = new.begin(place)
            write_chunks(client, tasks, self.staging.parts, place, present, listener, lock)
        report = self._report(new, relabelled, changed=True)
        with translate_failures(place, "the last arrays", AGAIN):
            self._write_rest(new, place, report)
            renew_verdicts(self.location, place, new.labels(relabelled | self.changes.replaced))
        lock.check()
        if not self.is_current():
            raise StoppedError(f"{self.location} was changed by another program: {AGAIN}")
        commit_replacement(self.location, place.parent()[1], asdict(report))
        finish_replacement(self.location, lock.check)
        return report

    def _restore_recipe(self) -> Recipe:
        network = restore_backbone(self.attributes["backbone"], self.arguments.backbone)
        network.check_photos([item.pair.image for item in self.changes.described])
        return Recipe.from_json(network, self.attributes["recipe"])

    def _place(self, folder: str) -> Location:
        return Location(f"{self.location.url}/{UPDATE_FOLDER}/{folder}", self.location.options)

    def _without_files(self) -> list[str]:
        """Images whose files are gone, or cannot be used, and that stay as they are."""
        if self.arguments.prune:
            return []
        lost = {problem.name for problem in self.staging.problems}
        return [*self.changes.vanished, *sorted(lost & self.stored.numbers.keys())]

    def _find_info(self) -> dict[str, PhotoInfo]:
        """What is known of each image of the new state."""
        kept = self._without_files()
        lost = {problem.name for problem in self.staging.problems} - set(kept)
        info = find_info(self.source, self.stored, self.rules, kept)
        return {name: own for name, own in info.items() if name not in lost}

    def _new_state(self, present: Mapping[str, VerifiedArray]) -> tuple[NewState, set[str]]:
        """The new state, and the names of images with changed masks."""
        info = self._find_info()
        if not info:
            raise PipelineError(
                f"no image would be left in {self.location}: check the folders, or remove it"
            )
        prune, known = self.arguments.prune, self.stored.numbers
        problems = list(self.source.problems if prune else self.changes.problems)
        problems += [own for own in self.staging.problems if prune or own.name not in known]
        entries, relabelled = self.staging.entries(info, present.get("mask"))
        in_order = sorted(problems, key=lambda problem: problem.name)
        return NewState(entries, self.stored, info, in_order), relabelled

    def _write_rest(self, new: NewState, place: Location, report: UpdateReport) -> None:
        """Write the small arrays and the attributes of the new state."""
        group = place.group("a")
        for name, values in new.arrays.items():
            place.remove(name)
            write_array(group, name, values)
        own = [*self.attributes[DIGESTS]["attributes"], DIGESTS]
        others = {name: each for name, each in self.attributes.items() if name not in own}
        group.update_attributes(others)  # which users have added
        done = {
            "files_digest": self.attributes["files_digest"],
            "new": report.new,
            "relabelled": report.relabelled,
            "removed": report.removed,
        }
        changed = {
            "source": self.source.provenance(),
            "image_info": self.rules.to_json(),
            "files_digest": files_digest(self.source, self._find_info(), self._without_files()),
            UPDATES: [*self.attributes.get(UPDATES, []), done],
        }
        finish(place, {name: self.attributes[name] for name in own if name != DIGESTS} | changed)

    def _report(self, new: NewState, relabelled: set[str], *, changed: bool) -> UpdateReport:
        names = {entry.image.record.name for entry in new.entries}
        kept = set(self._without_files())
        replaced = (self.changes.replaced & names) - kept
        added = (names - self.stored.numbers.keys()) | replaced
        shape = new.shapes["features"]
        problems = [*self.changes.problems, *self.staging.problems]
        return UpdateReport(
            target=self.location.url,
            changed=changed,
            images=len(names),
            superpixels=shape[0],
            features=shape[1],
            new=len(added),
            replaced=len(replaced),
            relabelled=len(relabelled),
            unchanged=len(names - added - relabelled - kept),
            vanished=[Problem(*each) for each in self.changes.vanished.items()],
            removed=len(self.stored.numbers.keys() - names),
            skipped=sorted(problems, key=lambda problem: problem.name),
            seconds=self.staging.seconds,
        )


def _merge_rules(stored: Mapping[str, str], given: ImageInfo | None) -> ImageInfo:
    """Where groups and annotators come from: as in the dataset, unless the caller names others."""
    given = given or ImageInfo()
    return ImageInfo(
        given.group or stored.get("group", ""), given.annotator or stored.get("annotator", "")
    )
