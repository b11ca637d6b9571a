"""A dataset with the verdicts of people applied to it: corrected masks replace the given ones."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import dask.array as da
import numpy as np
import xarray as xr

from gpgc_dask.core.arrays import Labels
from gpgc_dask.core.errors import CorruptedError
from gpgc_dask.data.maps import Codes
from gpgc_dask.data.schema import VOID
from gpgc_dask.data.verdicts import Correction, Verdict, VerdictLog, latest
from gpgc_dask.storage.location import Location

__all__ = ["Patched", "apply_verdicts", "read_verdicts"]

AnyDataset = TypeVar("AnyDataset", bound=xr.Dataset)


def read_verdicts(location: Location, chosen: bool | Collection[str]) -> list[Verdict]:
    """Verdicts of a dataset, the oldest first: all, none, or those of some ids."""
    if chosen is False:
        return []
    verdicts = VerdictLog(location).read()
    if chosen is True:
        return verdicts
    wanted = set(chosen)
    return [verdict for verdict in verdicts if verdict.id in wanted]


def apply_verdicts(
    dataset: AnyDataset, arrays: Mapping[str, Any], verdicts: list[Verdict]
) -> AnyDataset:
    """Apply verdicts to a dataset.

    Parameters
    ----------
    dataset : xarray.Dataset
        As stored.
    arrays : mapping
        Its stored arrays ``label``, ``weight`` and ``mask``.
    verdicts : list of Verdict
        In the order of their times. Those on images that the dataset does not have do not count.

    Returns
    -------
    xarray.Dataset
        With the coordinate ``verdict`` along photo ("confirmed", "rejected", "corrected", or "" if
        there is none), and with labels, weights, masks and flags of corrected images as corrected.
        The attribute ``verdicts`` lists the ids of the verdicts.
    """
    if not verdicts:
        return dataset
    place = {str(name): number for number, name in enumerate(dataset["image_name"].values)}
    current = {place[name]: one for name, one in latest(verdicts).items() if name in place}
    kinds = np.full(dataset.sizes["photo"], "", dtype=object)
    kinds[list(current)] = [one.kind for one in current.values()]
    described = {"long_name": "what a person has decided about the mask; empty if nothing"}
    result = dataset.assign_coords(verdict=("photo", kinds, described))
    result.attrs["verdicts"] = [verdict.id for verdict in verdicts]
    corrected = {
        photo: one.correction for photo, one in current.items() if one.correction is not None
    }
    return _correct(result, arrays, corrected) if corrected else result


def _correct(
    dataset: AnyDataset, arrays: Mapping[str, Any], corrected: dict[int, Correction]
) -> AnyDataset:
    """The dataset with the labels, weights, masks and flags of corrections by photo."""
    image = dataset["image"].values
    photos = list(corrected)
    first, last = (np.searchsorted(image, photos, side=side) for side in ("left", "right"))
    patches: dict[str, dict[int, Any]] = {"label": {}, "weight": {}, "mask": {}}
    flags = dataset["flags"].values.copy()
    for (photo, own), start, stop in zip(
        corrected.items(), first.tolist(), last.tolist(), strict=True
    ):
        _check_fits(dataset, photo, own, stop - start)
        patches["label"][start], patches["weight"][start] = own.label, own.weight
        patches["mask"][photo] = _frame(own.working, dataset["mask"].shape[1:])
        flags[photo] = own.flags
    replaced = {}
    for name, own_patches in patches.items():
        data = Patched(arrays[name], own_patches, by_entry=name == "mask")
        meta = np.empty((0,) * data.ndim, dtype=data.dtype)
        lazy = da.from_array(data, data.chunks, name=f"{name}-{uuid.uuid4().hex}", meta=meta)
        replaced[name] = (dataset[name].dims, lazy, dataset[name].attrs)
    return dataset.assign(replaced).assign_coords(flags=("photo", flags, dataset["flags"].attrs))


def _check_fits(dataset: xr.Dataset, photo: int, own: Correction, n_rows: int) -> None:
    size = tuple(int(dataset[f"segment_{side}"].values[photo]) for side in ("height", "width"))
    n_classes = len(dataset.attrs["classes"])
    known = own.working[own.working != VOID]
    if own.working.shape != size or {own.label.shape, own.weight.shape} != {(n_rows,)}:
        problem = "was made for other superpixels"
    elif max(own.label.max(initial=0), known.max(initial=0)) >= n_classes:
        problem = f"has more than the {n_classes} classes of the dataset"
    else:
        return
    name = dataset["image_name"].values[photo]
    raise CorruptedError(
        f"the verdict on {name} in {dataset.encoding.get('source', 'the dataset')} cannot be used: "
        f"its mask {problem}; remove its file from the folder verdicts, or create the dataset again"
    )


def _frame(mask: Codes, shape: tuple[int, ...]) -> bytes:
    """A mask in an array of another shape, void around it, compressed."""
    whole = np.full(shape, VOID, dtype=np.uint8)
    whole[: mask.shape[0], : mask.shape[1]] = mask
    return zlib.compress(whole.tobytes())


class Patched:
    """A stored array some of whose entries are replaced when they are read.

    Parameters
    ----------
    array : VerifiedArray
        The stored array.
    patches : dict
        {number of the first entry: replaced entries}, or with ``by_entry`` {number: one entry, as
        compressed bytes}.
    by_entry : bool
        Which of the two.
    """

    def __init__(self, array: Any, patches: Mapping[int, Any], *, by_entry: bool) -> None:
        self.array, self.by_entry = array, by_entry
        self.starts = np.array(sorted(patches), dtype=np.intp)
        self.values = [patches[start] for start in self.starts.tolist()]
        lengths = [1 if by_entry else len(value) for value in self.values]
        self.stops = self.starts + np.array(lengths, dtype=np.intp)
        self.shape, self.ndim = array.shape, array.ndim
        self.dtype, self.chunks = array.dtype, array.chunks

    def __getitem__(self, index: Any) -> Labels:
        """Return entries of the first dimension, replaced where there is a patch."""
        parts = index if isinstance(index, tuple) else (index,)
        wanted = parts[0] if parts and parts[0] is not Ellipsis else slice(None)
        start, stop, step = _bounds(wanted, self.shape[0])
        entries = np.array(self.array[start:stop])
        low = int(np.searchsorted(self.stops, start, side="right"))
        high = int(np.searchsorted(self.starts, stop, side="left"))
        for number in range(low, high):
            self._replace(entries, number, start)
        rest = tuple(part for part in parts[1:] if part is not Ellipsis)
        if isinstance(wanted, slice):
            entries = entries[::step]
        else:  # one number, or a list of them
            entries = entries[np.asarray(wanted) - start]
        kept = (slice(None),) * (entries.ndim - self.ndim + 1)
        return np.asarray(entries[kept + rest] if rest else entries)

    def _replace(self, entries: Labels, number: int, start: int) -> None:
        first, last = int(self.starts[number]), int(self.stops[number])
        low, high = max(first, start), min(last, start + len(entries))
        value = self.values[number]
        if self.by_entry:
            value = np.frombuffer(zlib.decompress(value), dtype=self.dtype)
            entries[low - start] = value.reshape(self.shape[1:])
        else:
            entries[low - start : high - start] = value[low - first : high - first]


def _bounds(wanted: Any, size: int) -> tuple[int, int, int]:
    """First and last entry, and step, of an index along the first dimension."""
    if isinstance(wanted, slice):
        start, stop, step = wanted.indices(size)
        return start, max(stop, start), step
    numbers = np.atleast_1d(np.asarray(wanted))
    return (int(numbers.min()), int(numbers.max()) + 1, 1) if numbers.size else (0, 0, 1)
