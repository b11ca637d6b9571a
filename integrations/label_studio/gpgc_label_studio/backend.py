"""What the server does: predict and score tasks, import annotations, fit again."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

import numpy as np
from PIL import Image

from gpgc_dask import MaskOptions, RunOptions, load, predict_masks, score
from gpgc_dask.core.errors import GpgcError, InputError, PipelineError
from gpgc_dask.imaging.mask_sources import open_source
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.imaging.photos import read_orientation
from gpgc_dask.models.fitted_dataset import require_dataset_info
from gpgc_dask.models.review import require_review
from gpgc_dask.results.export.images import drawn_labels
from gpgc_dask.results.verdicts import import_verdicts
from gpgc_dask.review.refit import make_refit

from .interface import Interface

VOID = 255
LOCAL = "/data/local-files/"
TIMEOUT = 30.0
"""Seconds that a photo may take to arrive."""


class Backend:
    """Predictions of one model.

    Parameters
    ----------
    model : path or URL
        A model of ``gpgc fit``.
    document_root : path, optional
        Label Studio's folder of local files.
    url, token : str, optional
        Address of Label Studio and a token, for photos that were uploaded to it.
    dataset : path or URL, optional
        The model's dataset, to which submitted annotations are added.
    refit_to : path or URL, optional
        Where models are written that are fitted again.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        document_root: str | PathLike[str] | None = None,
        url: str = "",
        token: str = "",
        dataset: str | PathLike[str] | None = None,
        refit_to: str | PathLike[str] | None = None,
    ) -> None:
        if refit_to is not None and dataset is None:
            raise InputError("a fit needs the dataset: name it, too (--dataset)")
        self.root = None if document_root is None else Path(document_root).expanduser().resolve()
        self.url, self.token, self.dataset = url.rstrip("/"), token, dataset
        self._use(str(model))
        if dataset is not None and refit_to is not None:
            self._refit = make_refit(dataset, model, folder=".", target=refit_to)
        else:
            self._refit = None

    def _use(self, path: str) -> None:
        model = load(path)
        require_review(model, path)
        info = require_dataset_info(model)
        fmt = MaskFormat.from_json(info["source"]["mask_format"])
        self.model = model
        self.names = [str(name) for name in info["classes"]]
        self.values = [int(value) for value in info["class_values"]]
        self.labels = {code: name for code, name in drawn_labels(fmt).items() if code != VOID}
        content = np.ascontiguousarray(model.coef_).tobytes()
        self.version = f"gpgc {hashlib.sha256(content).hexdigest()[:8]}"

    def predict(self, tasks: Sequence[Mapping[str, Any]], config: str) -> list[Any]:
        """Predict the masks of tasks, and score them.

        Parameters
        ----------
        tasks : sequence of dict
            Tasks of Label Studio.
        config : str
            The labelling interface.

        Returns
        -------
        list
            A prediction per task. Its score is the quality of the mask in the task's latest
            annotation, or, of tasks without annotation, that of the predicted mask. An empty list
            for a photo that cannot be used.

        Raises
        ------
        InputError
            If the interface does not fit, or no photo can be used.
        """
        interface = Interface.parse(config)
        labels = interface.match(self.labels)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            files, problems = self._photos(tasks, interface.key, place / "photos")
            if not files:
                raise InputError("no photo can be used: " + "; ".join(problems[:3]))
            run = RunOptions(on_error="skip")
            predict_masks(self.model, place / "photos", place / "predicted", run=run)
            masks = self._masks(files, place / "predicted")
            drawn = self._drawn(tasks, files, place, interface)
            scores = self._scores({**masks, **drawn}, place)
        made: list[Any] = []
        for number in range(len(tasks)):
            if number not in masks:
                made.append([])
                continue
            result = interface.regions(masks[number], labels)
            made.append(
                {"result": result, "score": scores.get(number, 0.0), "model_version": self.version}
            )
        return made

    def _photos(
        self, tasks: Sequence[Mapping[str, Any]], key: str, folder: Path
    ) -> tuple[dict[int, Path], list[str]]:
        folder.mkdir()
        files, problems = dict[int, Path](), list[str]()
        for number, task in enumerate(tasks):
            address = str(task.get("data", {}).get(key, ""))
            try:
                files[number] = self._fetch(address, folder, number)
            except (OSError, ValueError) as error:  # GpgcErrors are one of the two
                problems.append(f"{address}: {error}")
        return files, problems

    def _fetch(self, address: str, folder: Path, number: int) -> Path:
        """Link or download a photo."""
        parts = urlsplit(address)
        local = parse_qs(parts.query).get("d") if parts.path.endswith(LOCAL) else None
        name = local[0] if local else unquote(parts.path)
        target = folder / f"{number:06}{PurePosixPath(name).suffix.lower()}"
        if local and self.root is not None:
            path = (self.root / name).resolve()
            if not path.is_relative_to(self.root):
                raise InputError("it is not in the document root")
            target.symlink_to(path.resolve(strict=True))
            return target
        whole = self.url + address if address.startswith("/") else address
        if urlsplit(whole).scheme not in ("http", "https"):
            raise InputError(
                "it is no address that this backend can read: start it with --document-root, or "
                "with LABEL_STUDIO_URL and LABEL_STUDIO_API_KEY"
            )
        request = Request(whole)
        if self.token and self.url and whole.startswith(self.url + "/"):
            request.add_unredirected_header("Authorization", f"Token {self.token}")
        with urlopen(request, timeout=TIMEOUT) as answer, target.open("wb") as file:
            shutil.copyfileobj(answer, file)
        return target

    def _masks(self, files: Mapping[int, Path], folder: Path) -> dict[int, np.ndarray]:
        """{task: class codes} of the predicted masks."""
        masks: dict[int, np.ndarray] = {}
        for number, photo in files.items():
            path = folder / f"{photo.stem}.png"
            if path.exists():
                values = np.asarray(Image.open(path))
                codes = np.full(values.shape, VOID, np.uint8)
                for code, value in enumerate(self.values):
                    codes[values == value] = code
                masks[number] = codes
        return masks

    def _drawn(
        self,
        tasks: Sequence[Mapping[str, Any]],
        files: Mapping[int, Path],
        place: Path,
        interface: Interface,
    ) -> dict[int, np.ndarray]:
        """{task: class codes} of the masks in the latest annotations."""
        own = [
            {"data": {"image": files[number].name}, "annotations": task["annotations"]}
            for number, task in enumerate(tasks)
            if number in files and any(_is_submitted(one) for one in task.get("annotations") or [])
        ]
        if not own:
            return {}
        path = place / "annotations.json"
        path.write_text(json.dumps(own), encoding="utf-8")
        labels = interface.match(self.labels)
        options = MaskOptions(format="label-studio", categories=list(labels.values()))
        try:
            source = open_source(place / "photos", path, options)
        except GpgcError:  # nothing was drawn, or not with these labels
            return {}
        order = [*labels]
        background = next((code for code in range(len(self.names)) if code not in order), VOID)
        numbers = {file.name: number for number, file in files.items()}
        drawn: dict[int, np.ndarray] = {}
        for item in source.items:
            codes = item.mask.read(read_orientation(item.pair.image))
            table = np.full(VOID + 1, VOID, np.uint8)
            table[: len(order) + 1] = [background, *order]
            drawn[numbers[item.pair.name]] = table[codes]
        return drawn

    def _scores(self, masks: Mapping[int, np.ndarray], place: Path) -> dict[int, float]:
        """{task: estimated quality of its mask}."""
        folder = place / "masks"
        folder.mkdir()
        for number, codes in masks.items():
            Image.fromarray(codes).save(folder / f"{number:06}.png")
        options = MaskOptions(format="masks", classes=dict(enumerate(self.names)), void=[VOID])
        run = RunOptions(on_error="skip")
        try:
            table = score(self.model, place / "photos", folder, masks_as=options, run=run).table
        except PipelineError:
            return {}
        known = table[table["quality"].notna()]
        return {
            int(PurePosixPath(name).stem): round(float(quality), 4)
            for name, quality in zip(known["image"], known["quality"], strict=True)
        }

    # -- webhooks ----------------------------------------------------------------------------------

    def add_annotation(self, task: Mapping[str, Any], annotation: Mapping[str, Any]) -> str:
        """Add a submitted annotation to the dataset, as ``gpgc verdicts --import`` does.

        Returns
        -------
        str
            What was added, in one line.
        """
        if self.dataset is None:
            return "ignored: the backend has no dataset"
        if not _is_submitted(annotation):
            return "ignored: the task was skipped"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "annotation.json"
            path.write_text(json.dumps([{**task, "annotations": [annotation]}]), encoding="utf-8")
            report = import_verdicts(self.dataset, path, format="label-studio")
        return f"{report.confirmed} confirmed, {report.corrected} corrected"

    @property
    def can_fit(self) -> bool:
        """Whether :meth:`fit` was configured."""
        return self._refit is not None

    def fit(self) -> str:
        """Fit again on the dataset with its verdicts, and use that model; return where it is."""
        if self._refit is None:
            raise InputError("start the backend with --dataset and --refit-to to fit again")
        path = str(self._refit(lambda step: None))
        self._use(path)
        return path


def _is_submitted(annotation: Mapping[str, Any]) -> bool:
    return not annotation.get("was_cancelled")
