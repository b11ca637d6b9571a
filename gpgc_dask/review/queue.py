"""Which image a person looks at next: orders, and claims so that two people get different ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Index, Labels
from gpgc_dask.models.review import rank

__all__ = ["ORDERS", "Claims", "make_orders"]

ORDERS = ("quality", "agreement", "confidence", "objects")
"""Orders in which images are looked at: by a measure of the image, or by its worst object."""

CLAIM_SECONDS = 150.0
"""How long a claim holds without a sign of life. Browsers let pages in the background speak once
per minute."""


def make_orders(table: pd.DataFrame, objects: pd.DataFrame | None) -> dict[str, list[int]]:
    """Orders of the images of a review, worst first.

    Parameters
    ----------
    table : DataFrame
        A review: one row per image, in the dataset's order.
    objects : DataFrame or None
        Annotations and regions, the most suspicious first.

    Returns
    -------
    dict
        {order: numbers of the images}. Orders that the model does not have are left out:
        "confidence" if all images have the same noise, "objects" if there are none.
    """
    names = table["image"].to_numpy(dtype=str)
    place = pd.Series(np.arange(names.size), index=names)
    orders = {"quality": _numbers(rank(table, "quality")["image"], place)}
    orders["agreement"] = _numbers(rank(table, "agreement")["image"], place)
    if not table["confidence"].isna().all():
        orders["confidence"] = _numbers(rank(table, "confidence")["image"], place)
    if objects is not None and len(objects):
        first = pd.unique(objects["image"].to_numpy())
        known = _numbers(first[np.isin(first, names)], place)
        rest = orders["quality"][~np.isin(orders["quality"], known)]
        orders["objects"] = np.concatenate([known, rest])
    return {name: numbers.tolist() for name, numbers in orders.items()}


def _numbers(names: Labels | pd.Series, place: pd.Series) -> Index:
    return place[np.asarray(names, dtype=str)].to_numpy(dtype=np.intp)


@dataclass
class _Person:
    """A page that is open somewhere."""

    name: str
    seen: float
    images: list[int] = field(default_factory=list)


class Claims:
    """Images that are reserved for the pages that are open, so that no two show the same one.

    Claims are soft: a page that is silent for a while loses them, and a person may look at any
    image, claimed or not. They are kept in memory only.

    Parameters
    ----------
    clock : callable
        Returns seconds, such as ``time.monotonic``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._people: dict[str, _Person] = {}

    def claim(
        self,
        session: str,
        name: str,
        order: Sequence[int],
        *,
        decided: Collection[int],
        wanted: int,
        held: Iterable[int] = (),
        skipped: Collection[int] = (),
    ) -> list[int]:
        """Reserve the next images for a page, and release those that it had before.

        Parameters
        ----------
        session : str
            The page.
        name : str
            Who looks at it.
        order : sequence of int
            Images in the order in which they are looked at.
        decided : collection of int
            Images that have a verdict.
        wanted : int
            Number of images to reserve.
        held : iterable of int
            Images that the page shows now: they stay reserved, decided or not.
        skipped : collection of int
            Images that the person has skipped; they come after all others.

        Returns
        -------
        list of int
            At most ``wanted`` images that have no verdict and are reserved for no other page.
        """
        now = self._clock()
        self._forget(now)
        person = self._people.setdefault(session, _Person(name, now))
        person.name, person.seen, person.images = name, now, list(held)
        taken = self.of_others(session).keys() | set(decided) | set(person.images)
        free = [image for image in order if image not in taken]
        chosen = [image for image in free if image not in skipped][:wanted]
        chosen += [image for image in free if image in skipped][: wanted - len(chosen)]
        person.images += chosen
        return chosen

    def of_others(self, session: str) -> dict[int, str]:
        """{image: who has claimed it} of all other pages."""
        return {
            image: person.name
            for own, person in self._people.items()
            if own != session
            for image in person.images
        }

    def names(self) -> list[str]:
        """Names of the people whose page is open, sorted."""
        self._forget(self._clock())
        return sorted({person.name for person in self._people.values() if person.name})

    def release(self, session: str) -> None:
        """Forget a page that was closed."""
        self._people.pop(session, None)

    def _forget(self, now: float) -> None:
        silent = [own for own, one in self._people.items() if now - one.seen > CLAIM_SECONDS]
        for session in silent:
            del self._people[session]
