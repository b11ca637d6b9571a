"""The state of a review on the server: verdicts, pictures, claims, and fits in the background."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from gpgc_dask.core.errors import GpgcError, InputError
from gpgc_dask.data.verdicts import ID, Verdict
from gpgc_dask.review.basis import Basis, load_basis
from gpgc_dask.review.estimates import estimate_outlook
from gpgc_dask.review.ledger import Ledger
from gpgc_dask.review.photos import Photos
from gpgc_dask.review.queue import Claims
from gpgc_dask.storage.location import Location

__all__ = ["OutdatedError", "Refit", "Review"]

Refit = Callable[[Callable[[str], None]], str]
"""Fits a model on the dataset with its verdicts, and returns the path or URL of the new model. It
is called in a thread of its own, with a function that takes a text about the progress."""

KINDS = ("confirmed", "rejected", "corrected", "withdrawn")
MAX_NAME, MAX_SKIPPED = 100, 100_000
AHEAD = 6
"""Images that are reserved for a page, which loads them in advance."""

MAX_CACHED = 64
"""Encoded pictures in memory: those that the pages load in advance."""

REFRESH_SECONDS = 5.0
"""How often verdicts of other programs are looked for."""


class OutdatedError(InputError):
    """A verdict takes the mask of a model that the server does not have any more."""


@dataclass(frozen=True)
class FitStatus:
    """The fit in the background.

    Attributes
    ----------
    state : {"absent", "idle", "running", "finished", "failed"}
        "absent": there is none.
    text : str
        Progress, or the error.
    """

    state: str = "idle"
    text: str = ""


class Review:
    """A review of a dataset. All methods can be called in several threads at once.

    Parameters
    ----------
    data, model : path or URL
        The dataset, and a model that was fitted on it and has reviewed it.
    order : str, default "quality"
        Order in which pages begin: one of :data:`~gpgc_dask.review.queue.ORDERS`.
    refit : callable, optional
        What the button "Fit again" does: see :data:`Refit`.
    """

    def __init__(
        self,
        data: str | PathLike[str],
        model: str | PathLike[str],
        *,
        order: str = "quality",
        refit: Refit | None = None,
    ) -> None:
        self.location = Location.of(data)
        self.run = secrets.token_hex(8)
        self.refit = refit
        self.fit = FitStatus("absent" if refit is None else "idle")
        self._lock = threading.RLock()
        self._done = threading.Condition(self._lock)
        self._pending: set[str] = set()
        self._cache: OrderedDict[tuple[str, int, str], bytes] = OrderedDict()
        self._claims = Claims(time.monotonic)
        self._refreshed = time.monotonic()
        self._photos: dict[str, Photos] = {}
        self._use(load_basis(data, model))
        self.order = self._check_order(order)
        self.ledger = Ledger(self.location, self.basis.names)

    @property
    def basis(self) -> Basis:
        """The dataset and the model that the pages show now."""
        return self._photos[self._key].basis

    def _use(self, basis: Basis) -> None:
        photos = Photos(basis)
        with self._lock:
            self._photos[basis.key] = photos
            self._key = basis.key

    # -- what pages ask for ------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """What a page needs to begin."""
        with self._lock:
            count = self.ledger.count()
            current = self.ledger.current()
            described = self.basis.describe()
        return described | {
            "run": self.run,
            "order": self.order,
            "count": count,
            "verdicts": [entry.to_json() for entry in current.values()],
        }

    def picture(self, photo: int) -> bytes:
        """The picture of an image, see :meth:`gpgc_dask.review.photos.Photos.encode`."""
        photo = self._check_image(photo)
        with self._lock:
            key = self._key
        entry = self.ledger.current().get(photo)
        place = (key, photo, entry.key if entry is not None and entry.kind == "corrected" else "")
        with self._lock:
            if place in self._cache:
                self._cache.move_to_end(place)
                return self._cache[place]
        content = self._photos[key].encode(photo, self.ledger.correction(entry))
        with self._lock:
            self._cache[place] = content
            while len(self._cache) > MAX_CACHED:
                self._cache.popitem(last=False)
        return content

    def sync(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Reserve the next images for a page, and report what has happened since its last call.

        Parameters
        ----------
        request : mapping
            ``session``: 32 hexadecimal digits of the page; ``name`` of the person; ``order``;
            ``showing``: numbers of the images that the page shows; ``skipped``: numbers of the
            images that the person has skipped; ``count``: entries that the page knows.
        """
        session, name = _text(request, "session", 32), _text(request, "name", MAX_NAME)
        if not ID.fullmatch(session):
            raise InputError("session must be 32 hexadecimal digits")
        order = self._check_order(request.get("order", self.order))
        showing, skipped = (_numbers(request, name) for name in ("showing", "skipped"))
        count = request.get("count", 0)
        if type(count) is not int:
            raise InputError("count must be a whole number")
        self._refresh()
        news, current = self.ledger.since(count), self.ledger.current()
        basis = self.basis
        kinds = {image: entry.kind for image, entry in current.items()}
        with self._lock:
            claimed = self._claims.claim(
                session,
                name,
                basis.orders[order],
                decided=kinds,
                wanted=AHEAD,
                held=showing,
                skipped=frozenset(skipped),
            )
            others, people = self._claims.of_others(session), self._claims.names()
        return {
            "run": self.run,
            "basis": basis.key,
            "next": claimed,
            "others": others,
            "people": people,
            "news": [entry.to_json() for entry in news],
            "count": count + len(news),
            "outlook": estimate_outlook(basis.table, basis.orders[order], kinds).to_json(),
            "fit": {"state": self.fit.state, "text": self.fit.text},
        }

    def leave(self, request: Mapping[str, Any]) -> None:
        """Release the images that were reserved for a page."""
        with self._lock:
            self._claims.release(_text(request, "session", 32))

    def save(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Store a verdict. A request that is repeated, even to another server, is stored once.

        Parameters
        ----------
        request : mapping
            ``id``: 32 hexadecimal digits that the page has made; ``image``: number; ``kind``;
            ``name`` of the person; for a corrected mask ``mask``: "model", with ``basis``, or run
            lengths, see :mod:`gpgc_dask.review.masks`.
        """
        verdict_id = _text(request, "id", 32)
        if not ID.fullmatch(verdict_id):
            raise InputError("the id of a verdict is 32 hexadecimal digits")
        with self._done:
            while verdict_id in self._pending:
                self._done.wait()
            if self.ledger.has(verdict_id):
                return {"id": verdict_id, "stored": False}
            self._pending.add(verdict_id)
        try:
            self.ledger.append(self._verdict(verdict_id, request))
        finally:
            with self._done:
                self._pending.discard(verdict_id)
                self._done.notify_all()
        return {"id": verdict_id, "stored": True}

    def _verdict(self, verdict_id: str, request: Mapping[str, Any]) -> Verdict:
        photo, kind = self._check_image(request.get("image")), request.get("kind")
        if kind not in KINDS:
            raise InputError(f"a verdict is one of {', '.join(KINDS)}")
        correction = None
        if kind == "corrected":
            basis, mask = _text(request, "basis", 32), request.get("mask")
            if mask == "model" and basis not in self._photos:
                raise OutdatedError(
                    "the mask is that of another model than the one that the server has now: look "
                    "at the image again"
                )
            photos = self._photos[basis if mask == "model" else self._key]
            current = self.ledger.correction(self.ledger.current().get(photo))
            correction = photos.correct(photo, mask, current)
        by = _text(request, "name", MAX_NAME)
        name = self.ledger.names[photo]
        return Verdict(name, kind, by, correction=correction, id=verdict_id)

    # -- fits --------------------------------------------------------------------------------------

    def fit_again(self) -> None:
        """Start a fit in the background; the pages continue, and get a new order when it ends."""
        with self._lock:
            if self.refit is None:
                raise InputError("this server cannot fit: run gpgc fit")
            if self.fit.state == "running":
                return
            self.fit = FitStatus("running", "starts")
        threading.Thread(target=self._fit, name="fit again", daemon=True).start()

    def _fit(self) -> None:
        assert self.refit is not None
        try:
            model = self.refit(lambda text: self._report(FitStatus("running", text)))
            self._use(load_basis(self.location, model))
            self._report(FitStatus("finished", model))
        except (GpgcError, OSError, MemoryError) as error:
            self._report(FitStatus("failed", str(error) or type(error).__name__))
        except BaseException as error:
            self._report(FitStatus("failed", f"{type(error).__name__}: {error}"))
            raise

    def _report(self, status: FitStatus) -> None:
        with self._lock:
            self.fit = status

    # -- checks ------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._refreshed < REFRESH_SECONDS:
                return
            self._refreshed = time.monotonic()
        self.ledger.refresh()

    def _check_image(self, value: Any) -> int:
        n = len(self.basis.table)
        if type(value) is not int or not 0 <= value < n:
            raise InputError(f"image must be a number from 0 to {n - 1}")
        return value

    def _check_order(self, value: Any) -> str:
        if not isinstance(value, str) or value not in self.basis.orders:
            raise InputError(
                f"the order {value!r} is not one of those of this model: "
                f"{', '.join(self.basis.orders)}"
            )
        return value


def _text(request: Mapping[str, Any], name: str, limit: int) -> str:
    value = request.get(name, "")
    if not isinstance(value, str) or len(value) > limit:
        raise InputError(f"{name} must be a text of at most {limit} characters")
    return value


def _numbers(request: Mapping[str, Any], name: str) -> list[int]:
    values = request.get(name, [])
    if not isinstance(values, list) or len(values) > MAX_SKIPPED:
        raise InputError(f"{name} must be a list of at most {MAX_SKIPPED:,} numbers")
    if not all(type(value) is int for value in values):
        raise InputError(f"{name} must be a list of whole numbers")
    return values
