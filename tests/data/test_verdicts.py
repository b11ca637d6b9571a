"""Verdicts of people: an append-only log in the dataset, applied where it is opened."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import ingest, open_dataset
from gpgc_dask.core.errors import CorruptedError, ExistsError, InputError
from gpgc_dask.data import verdicts as module
from gpgc_dask.data.verdicts import Verdict, VerdictLog, latest
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.pipelines.ingest import Recipe, RunOptions
from gpgc_dask.storage.location import Location
from tests.support.images import save_pairs

SMALL = Recipe(backbone="colour", superpixels=40)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verdicts")
    images, masks = save_pairs(folder, 8)
    ingest(images, masks, folder / "data.zarr", recipe=SMALL)
    return folder


@pytest.fixture
def place(folders, tmp_path):
    target = tmp_path / "data.zarr"
    shutil.copytree(folders / "data.zarr", target)
    return target


def read_codes(folders: Path, number: int) -> np.ndarray:
    values = np.array(Image.open(folders / "masks" / f"photo_{number:03d}.png"))
    return (values > 0).astype(np.uint8)


def correct(place: Path, number: int, codes: np.ndarray, **more) -> Verdict:
    dataset = open_dataset(place)
    name = str(dataset["image_name"].values[number])
    verdict = Verdict(name, "corrected", correction=make_correction(dataset, number, codes), **more)
    VerdictLog(Location.of(place)).append(verdict)
    return verdict


def test_a_corrected_dataset_is_that_of_the_corrected_masks(folders, place, tmp_path):
    flipped = read_codes(folders, 3)[::-1, ::-1]
    correct(place, 3, flipped)
    correct(place, 6, np.zeros_like(flipped))
    masks = tmp_path / "masks"
    shutil.copytree(folders / "masks", masks)
    Image.fromarray(flipped * np.uint8(255)).save(masks / "photo_003.png")
    Image.fromarray(np.zeros_like(flipped)).save(masks / "photo_006.png")
    ingest(folders / "images", masks, tmp_path / "fresh.zarr", recipe=SMALL)
    own, fresh = open_dataset(place), open_dataset(tmp_path / "fresh.zarr")
    for name in ("label", "weight", "mask", "flags", "image", "features", "segments"):
        np.testing.assert_array_equal(own[name].values, fresh[name].values, err_msg=name)
    assert own["verdict"].values.tolist() == ["", "", "", "corrected", "", "", "corrected", ""]


def test_parts_of_corrected_arrays(folders, place):
    """However an array is indexed, it is a part of the whole array."""
    correct(place, 2, read_codes(folders, 2)[::-1])
    correct(place, 5, read_codes(folders, 5)[::-1])
    own, given = open_dataset(place), open_dataset(place, verdicts=False)
    label, mask = own["label"].values, own["mask"].values
    assert not np.array_equal(label, given["label"].values)
    rows = np.flatnonzero(own["image"].values == 2)
    cut = slice(int(rows[3]), int(rows[-1]) + 20)
    np.testing.assert_array_equal(own["label"][cut].values, label[cut])
    np.testing.assert_array_equal(own["label"][::7].values, label[::7])
    for index in (2, [5], [2, 5, 7], [7, 2], slice(1, 6, 2), slice(6, 8), slice(3, 3)):
        np.testing.assert_array_equal(own["mask"][index].values, mask[index], err_msg=str(index))
    np.testing.assert_array_equal(own["mask"][2:6, 3:9, 4].values, mask[2:6, 3:9, 4])
    lazy = own["mask"].data[[5, 2]][:, 3:9]
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), mask[[5, 2]][:, 3:9])


def test_the_latest_verdict_counts(folders, place):
    log = VerdictLog(Location.of(place))
    name = "photo_001.jpg"
    correct(place, 1, read_codes(folders, 1)[::-1], at="2026-11-01T10:00:00")
    log.append(Verdict(name, "confirmed", "anna", at="2026-11-03"))
    log.append(Verdict(name, "rejected", "ben", at="2026-11-02T23:00:00-05:00"))
    assert [verdict.kind for verdict in log.read()] == ["corrected", "confirmed", "rejected"]
    own, given = open_dataset(place), open_dataset(place, verdicts=False)
    assert own["verdict"].values[1] == "rejected"
    np.testing.assert_array_equal(own["label"].values, given["label"].values)
    log.append(Verdict(name, "withdrawn"))
    assert open_dataset(place)["verdict"].values[1] == ""
    assert latest(log.read()) == {}


def test_a_dataset_is_opened_as_it_was(folders, place):
    first = correct(place, 1, read_codes(folders, 1)[::-1])
    before = open_dataset(place)
    assert before.attrs["verdicts"] == [first.id]
    correct(place, 4, read_codes(folders, 4)[::-1])
    again = open_dataset(place, verdicts=before.attrs["verdicts"])
    np.testing.assert_array_equal(again["label"].values, before["label"].values)
    assert not np.array_equal(open_dataset(place)["label"].values, before["label"].values)
    assert "verdict" not in open_dataset(place, verdicts=False)


def test_several_people_at_once_and_repeated_requests(place):
    verdicts = [
        Verdict(f"photo_{n % 8:03d}.jpg", "confirmed", f"person {n % 3}") for n in range(60)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(VerdictLog(Location.of(place)).append, verdicts + verdicts))
    read = VerdictLog(Location.of(place)).read()
    assert {one.id for one in read} == {one.id for one in verdicts}
    assert len(read) == 60


def test_an_ingest_does_not_replace_verdicts(folders, place):
    VerdictLog(Location.of(place)).append(Verdict("photo_000.jpg", "confirmed"))
    arguments = (folders / "images", folders / "masks", place)
    with pytest.raises(ExistsError, match=r"1 verdict\(s\), which would be lost"):
        ingest(*arguments, recipe=SMALL, run=RunOptions(overwrite=True))
    assert open_dataset(place)["verdict"].values[0] == "confirmed"


def test_object_stores():
    location = Location.of("memory://verdicts-test/data.zarr")
    log = VerdictLog(location)
    assert log.read() == []
    verdict = Verdict("a.jpg", "rejected", "anna", note="blurred")
    log.append(verdict)
    assert VerdictLog(location).read() == [verdict]
    location.remove("verdicts")


def test_a_corrupted_verdict_is_named(place):
    log = VerdictLog(Location.of(place))
    verdict = Verdict("photo_000.jpg", "confirmed")
    log.append(verdict)
    path = place / verdict.key
    path.write_bytes(path.read_bytes().replace(b"photo_000", b"photo_001"))
    with pytest.raises(CorruptedError, match=r"verdicts/.*digest.*remove it to forget"):
        open_dataset(place)


def test_a_mask_that_claims_to_be_small_does_not_fill_the_memory(place, folders):
    verdict = correct(place, 0, read_codes(folders, 0))
    path = place / verdict.key
    stored = json.loads(path.read_bytes())
    del stored["digest"]
    large = base64.b64encode(zlib.compress(bytes(1 << 24))).decode()
    stored["correction"]["mask"]["data"] = large
    path.write_text(json.dumps(stored | {"digest": module._digest(stored)}))
    with pytest.raises(CorruptedError, match="another number of bytes"):
        open_dataset(place)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "fine"}, "one of confirmed, rejected, corrected, withdrawn"),
        ({"kind": "corrected"}, "belongs to the verdict corrected"),
        ({"kind": "rejected", "id": "../../x"}, "32 hexadecimal digits"),
        ({"kind": "rejected", "at": "yesterday"}, "give it as 2026-11-18"),
        ({"kind": "rejected", "by": "x" * 3000}, "more than 2000 characters"),
    ],
)
def test_wrong_verdicts(arguments, message):
    with pytest.raises(InputError, match=message):
        Verdict("a.jpg", **arguments)


def test_wrong_masks(folders, place):
    dataset, codes = open_dataset(place), read_codes(folders, 0)
    with pytest.raises(InputError, match=r"save it at the size of the photo"):
        make_correction(dataset, 0, codes[:-1])
    with pytest.raises(InputError, match=r"photo_000.jpg has class 7, and the dataset has 2"):
        make_correction(dataset, 0, np.where(codes == 1, 7, 0))
