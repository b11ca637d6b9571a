"""Verdicts of people in fits, reviews, rankings and reports."""

from __future__ import annotations

import json
import shutil
import warnings

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import GP, GPGC, MarginSVM, load, open_dataset, rank, write_report
from gpgc_dask.core.errors import InputError, MissingFileError
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.models.fitted_dataset import open_fitted
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.results.corrected import CorrectedMasks
from gpgc_dask.results.export import export
from gpgc_dask.results.pictures import paint_pictures
from gpgc_dask.results.ranking import count_bad, headline, records, select_best
from gpgc_dask.results.selection import write_folder
from gpgc_dask.storage.location import Location
from tests.support.images import save_pairs
from tests.support.ingesting import QUICK

WRONG = (2, 9, 21)
CONFIRMED, REJECTED, CORRECTED = 5, 9, 2


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A dataset of 32 images, some of whose masks are inverted."""
    folder = tmp_path_factory.mktemp("verdicts")
    images, masks = save_pairs(folder, 32)
    for number in WRONG:
        path = masks / f"photo_{number:03d}.png"
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    ingest(images, masks, folder / "data.zarr", recipe=QUICK)
    return folder / "data.zarr"


@pytest.fixture(scope="module")
def judged(original, tmp_path_factory):
    """The same after three verdicts."""
    place = shutil.copytree(original, tmp_path_factory.mktemp("judged") / "data.zarr")
    dataset = open_dataset(place)
    given = dataset["mask"].values[CORRECTED]
    h, w = (int(dataset[name].values[CORRECTED]) for name in ("height", "width"))
    right = 1 - np.asarray(Image.fromarray(given[: h or None, : w or None]).resize((w, h), 0))
    judge(place, CONFIRMED, "confirmed")
    judge(place, REJECTED, "rejected")
    judge(place, CORRECTED, "corrected", correction=make_correction(dataset, CORRECTED, right))
    return place


def judge(place, number, kind, **more):
    verdict = Verdict(f"photo_{number:03d}.jpg", kind, **more)
    VerdictLog(Location.of(place)).append(verdict)


@pytest.fixture(scope="module")
def fitted(judged):
    """(dataset, model, review); nothing of it warns."""
    dataset = open_dataset(judged)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = GPGC().fit(dataset)
        return dataset, model, model.review(dataset)


def test_a_fit_uses_the_verdicts(original, judged, fitted):
    dataset, model, _ = fitted
    names = dataset["image_name"].values
    trusted = [names[CORRECTED], names[CONFIRMED]]
    assert model.groups_[model.trusted_].tolist() == trusted
    assert names[REJECTED] not in model.groups_
    assert model.verdicts_ == dataset.attrs["verdicts"]
    # The same by hand, on arrays: without the rejected image.
    rows = dataset["image"].values != REJECTED
    again = GPGC().fit(
        dataset["features"].values[rows],
        dataset["label"].values[rows],
        groups=names[dataset["image"].values[rows]].astype(str),
        feature_groups=dataset["feature_group"].values.astype(str),
        sample_weight=dataset["weight"].values[rows],
        trusted=trusted,
    )
    assert again.log_evidence_ == pytest.approx(model.log_evidence_, abs=1e-3)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-3, atol=1e-4)
    # Verdicts of the caller take their place, and none are used if none are opened.
    own = GPGC(rounds=0).fit(dataset, trusted=[names[0]])
    assert own.groups_[own.trusted_].tolist() == [names[0]]
    plain = GPGC(rounds=0).fit(open_dataset(judged, verdicts=False))
    reference = GPGC(rounds=0).fit(open_dataset(original))
    assert plain.log_evidence_ == reference.log_evidence_
    assert plain.verdicts_ == []


@pytest.mark.parametrize("model", [GP(rounds=1), GPGC(), MarginSVM(C=0.1)], ids=repr)
def test_every_model_ignores_rejected_masks(model, judged):
    """Labels of the rejected image do not matter."""
    dataset = open_dataset(judged)
    other = dataset.assign(label=dataset["label"].copy())
    rows = np.flatnonzero(dataset["image"].values == REJECTED)
    labels = dataset["label"].values.copy()
    labels[rows] = 1 - labels[rows]
    other["label"] = ("superpixel", labels)
    first, second = type(model)(**model.get_params()).fit(dataset), model.fit(other)
    np.testing.assert_allclose(first.coef_, second.coef_, rtol=1e-9)
    assert len(first.review(dataset)) == 32


def test_review_knows_the_verdicts(fitted):
    _, _, table = fitted
    flags = table["flags"].tolist()
    assert flags[CONFIRMED].split(";")[-1] == "confirmed"
    assert flags[REJECTED].split(";")[-1] == "rejected"
    assert flags[CORRECTED].split(";")[-1] == "corrected"
    columns = ["quality", "quality_low", "quality_high", "bad_probability"]
    numbers = table[columns].to_numpy()
    assert numbers[[CONFIRMED, CORRECTED]].tolist() == [[1.0, 1.0, 1.0, 0.0]] * 2
    assert numbers[REJECTED].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert np.isfinite(numbers).all()
    assert table["agreement"][CORRECTED] > 0.5 > table["agreement"][REJECTED]
    assert rank(table)["image"][0] == f"photo_{REJECTED:03d}.jpg"
    last = records(rank(table))[0]["flags"]
    assert last[-1] == "rejected"
    bad = count_bad(table)
    assert bad.low >= 1
    decided = table.iloc[[CONFIRMED, REJECTED, CORRECTED]]
    assert (count_bad(decided).low, count_bad(decided).high) == (1, 1)


def test_few_images_have_no_count(fitted):
    """With fewer than 30 images only the decided ones have a probability."""
    dataset, _, _ = fitted
    from gpgc_dask.data.subsets import take_photos

    few = take_photos(dataset, np.arange(12))
    table = GPGC().fit(few).review(few)
    assert table["quality"][REJECTED] == 0.0
    assert table["quality"][CORRECTED] == 1.0
    assert count_bad(table) is None
    assert "fewer than 30" in headline(table)


def test_report_shows_the_corrected_mask(fitted, tmp_path):
    dataset, model, _ = fitted
    predicted = np.zeros(dataset.sizes["superpixel"], dtype=int)
    (_, corrected), (_, rejected) = paint_pictures(
        dataset, predicted, np.array([CORRECTED, REJECTED]), 64
    )
    files = open_dataset(dataset.encoding["source"], verdicts=False)
    (_, before), (_, same) = paint_pictures(files, predicted, np.array([CORRECTED, REJECTED]), 64)
    assert np.mean(corrected.given == 1 - before.given) > 0.95
    np.testing.assert_array_equal(rejected.given, same.given)
    assert not corrected.changed
    write_report(dataset, model, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for verdict in ("confirmed", "corrected", "rejected"):
        assert f'"{verdict}"' in page
    assert "mask changed since" not in page


def test_commands_open_the_dataset_of_the_fit(run, judged, tmp_path):
    data = shutil.copytree(judged, tmp_path / "data.zarr")
    model, tasks = tmp_path / "model.zarr", tmp_path / "tasks.json"
    assert run("fit", data, "-o", model)[0] == 0
    judge(data, 11, "confirmed")
    judge(data, 12, "rejected")
    then = load(model)
    with pytest.raises(InputError, match=r"has 2 more verdict\(s\) than at the fit: fit"):
        then.review(open_dataset(data))
    assert open_dataset(data, verdicts=then.verdicts_).attrs["verdicts"] == then.verdicts_
    assert open_fitted(then, data).attrs["verdicts"] == then.verdicts_
    for words in (
        ("report", data, model, "-o", tmp_path / "report.html"),
        ("export", model, "--to", "fiftyone", "-o", tasks, "--data", data),
        ("info", data, "--model", model),
    ):
        code, _, err = run(*words)
        assert code == 0, err
    code, _, err = run("fit", data, "-o", model, "--resume")
    assert code == 2
    assert "2 more verdict(s)" in err


def test_a_selection_has_the_corrected_masks(fitted, tmp_path):
    """At the photo's size, in the values of the given masks; others are the given files."""
    _, model, review = fitted
    name = f"photo_{CORRECTED:03d}.jpg"
    best = select_best(rank(review), top=20)
    assert name in best["image"].tolist()
    corrected = CorrectedMasks(model, best)
    assert list(corrected) == [name]
    folder = write_folder(best, model.dataset_["source"], tmp_path / "clean", corrected=corrected)
    given = review.set_index("image").loc[name, "mask_path"]
    written = folder / f"masks/photo_{CORRECTED:03d}.png"
    before, after = (np.asarray(Image.open(path)) for path in (given, written))
    assert after.shape == before.shape
    assert ((after > 0) != (before > 0)).mean() > 0.95
    links = [path for path in (folder / "masks").iterdir() if path.is_symlink()]
    assert len(links) == 19
    export(model, tmp_path / "tasks.json", to="coco")
    content = json.loads((tmp_path / "tasks.json").read_text())
    (image,) = (one["id"] for one in content["images"] if one["file_name"] == name)
    area = sum(
        one["area"]
        for one in content["annotations"]
        if one["image_id"] == image and "proposed" not in one
    )
    assert area == (after > 0).sum()


def test_corrected_masks_that_are_gone_are_named(fitted, tmp_path):
    _, model, review = fitted
    with pytest.raises(MissingFileError, match=f"corrected mask of photo_{CORRECTED:03d}.jpg"):
        CorrectedMasks(model, review, str(tmp_path / "elsewhere.zarr"))
    nothing = review[review["image"] != f"photo_{CORRECTED:03d}.jpg"]
    assert list(CorrectedMasks(model, nothing, str(tmp_path / "elsewhere.zarr"))) == []
