"""Verdicts as tables, files and masks, in and out; tests of other tools' files are next door."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import open_dataset
from gpgc_dask.core.errors import InputError, MissingFileError, PipelineError
from gpgc_dask.data.verdicts import Verdict, VerdictLog
from gpgc_dask.imaging.corrections import make_correction
from gpgc_dask.imaging.image_names import ImageNames
from gpgc_dask.imaging.masks import MaskFormat
from gpgc_dask.pipelines.ingest import MaskOptions, ingest
from gpgc_dask.results.verdicts import import_verdicts, list_verdicts, write_verdicts
from gpgc_dask.results.verdicts.values import storage_format, to_values
from gpgc_dask.storage.location import Location
from tests.support.images import draw, save_pair
from tests.support.verdict_files import (
    SHIFTED,
    SMALL,
    make_dataset,
    name,
    save_mask,
    true_mask,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("verdict-files")
    make_dataset(place)
    return place


@pytest.fixture
def place(folder, tmp_path):
    return shutil.copytree(folder / "data.zarr", tmp_path / "data.zarr")


def corrected_folder(target, numbers=SHIFTED, suffix=""):
    for number in numbers:
        save_mask(target / f"photo_{number:03d}{suffix}.png", 255 * true_mask(number))
    return target


def kinds(place):
    own = open_dataset(place)
    if "verdict" not in own:
        return {}
    pairs = zip(own["image_name"].values.tolist(), own["verdict"].values.tolist(), strict=True)
    return {image: kind for image, kind in pairs if kind}


# -- a folder of masks -----------------------------------------------------------------------------


def test_corrected_masks_are_those_of_a_fresh_dataset(folder, place, tmp_path):
    corrected_folder(tmp_path / "fixed", (*SHIFTED, 1))
    report = import_verdicts(place, tmp_path / "fixed", by="anna")
    assert (report.format, report.corrected, report.confirmed) == ("masks", 3, 1)
    assert kinds(place) == {name(number): "corrected" for number in SHIFTED} | {
        name(1): "confirmed"
    }
    masks = shutil.copytree(folder / "masks", tmp_path / "masks")
    corrected_folder(masks)
    ingest(folder / "images", masks, tmp_path / "fresh.zarr", recipe=SMALL)
    own, fresh = open_dataset(place), open_dataset(tmp_path / "fresh.zarr")
    for variable in ("label", "weight", "mask", "flags"):
        np.testing.assert_array_equal(own[variable].values, fresh[variable].values)
    assert set(list_verdicts(place)["by"]) == {"anna"}


def test_an_import_can_be_repeated(place, tmp_path):
    corrected_folder(tmp_path / "fixed", (*SHIFTED, 1))
    import_verdicts(place, tmp_path / "fixed")
    again = import_verdicts(place, tmp_path / "fixed")
    assert (again.added, again.known) == (0, 4)
    assert len(VerdictLog(Location.of(place)).read()) == 4


@pytest.mark.parametrize("suffix", ["_mask", ".jpg", "_v2"])
def test_names_of_masks(place, tmp_path, suffix):
    corrected_folder(tmp_path / "fixed", suffix=suffix)
    options = {"mask_suffix": suffix} if suffix == "_v2" else {}
    assert import_verdicts(place, tmp_path / "fixed", **options).corrected == 3


def test_a_mask_that_was_corrected_in_its_own_place(tmp_path):
    place = make_dataset(tmp_path)
    corrected_folder(tmp_path / "masks")
    report = import_verdicts(place, tmp_path / "masks")
    assert (report.corrected, report.confirmed, report.notes) == (3, 13, [])


def test_given_masks_that_are_gone(tmp_path):
    place = make_dataset(tmp_path)
    masks = (tmp_path / "masks").rename(tmp_path / "moved")
    (tmp_path / "images").rename(tmp_path / "other images")
    corrected_folder(masks)
    report = import_verdicts(place, masks)
    assert (report.corrected, report.confirmed) == (3, 13)
    assert "13 images cannot be read any more" in report.notes[0]


def test_unchanged_masks_are_confirmed_or_not(folder, place):
    report = import_verdicts(place, folder / "masks", confirm_unchanged=False)
    assert (report.added, report.undecided) == (0, 16)
    assert import_verdicts(place, folder / "masks").confirmed == 16


def test_all_problems_are_reported_before_anything_is_written(place, tmp_path):
    fixed = corrected_folder(tmp_path / "fixed")
    save_mask(fixed / "photo_000.png", np.zeros((30, 50)))
    save_mask(fixed / "photo_001.png", np.arange(4800).reshape(60, 80) % 3)
    (fixed / "photo_003.png").write_bytes(b"no picture")
    for number in range(5):
        save_mask(fixed / f"stranger_{number}.png", np.zeros((60, 80)))
    with pytest.raises(PipelineError) as raised:
        import_verdicts(place, fixed)
    lines = str(raised.value).splitlines()
    assert "8 images cannot be used, and nothing was imported" in lines[0]
    assert (
        "the dataset has no image of this name (5 images: stranger_0.png, stranger_1.png, "
        "stranger_2.png, …)" in lines
    )
    assert any("mask is 50×30 pixels but its photo 80×60" in line for line in lines)
    assert any("mask holds 3 values" in line and name(1) in line for line in lines)
    assert any("not an image, or corrupted" in line for line in lines)
    assert kinds(place) == {}
    report = import_verdicts(place, fixed, on_error="skip")
    assert report.corrected == 3
    assert len(report.skipped) == len(raised.value.problems) == 8


def test_images_in_subfolders(tmp_path):
    for number, own in enumerate(["a/one", "b/one", "b/two"]):
        save_pair(tmp_path, own, number)
    place = tmp_path / "data.zarr"
    ingest(tmp_path / "images", tmp_path / "masks", place, recipe=SMALL)
    save_mask(tmp_path / "fixed/two.png", 255 * draw(9)[1])
    save_mask(tmp_path / "fixed/photos/b/one.png", 255 * draw(9)[1])
    import_verdicts(place, tmp_path / "fixed")
    assert kinds(place) == {"b/one.jpg": "corrected", "b/two.jpg": "corrected"}
    save_mask(tmp_path / "fixed/one.png", 255 * draw(9)[1])
    with pytest.raises(PipelineError, match="several images of the dataset have this name"):
        import_verdicts(place, tmp_path / "fixed")


def test_several_masks_per_photo(tmp_path):
    for number in range(3):
        save_pair(tmp_path, f"photo_{number:03d}", number)
        for who in ("anna", "ben"):
            mask = true_mask(number) if who == "anna" else np.roll(true_mask(number), 30, axis=1)
            save_mask(tmp_path / f"answers/photo_{number:03d}/{who}.png", 255 * mask)
    place = tmp_path / "data.zarr"
    options = MaskOptions(format="answers")
    ingest(tmp_path / "images", tmp_path / "answers", place, recipe=SMALL, masks_as=options)
    save_mask(tmp_path / "fixed/photo_001/ben.png", 255 * true_mask(1))
    import_verdicts(place, tmp_path / "fixed")
    assert kinds(place) == {"photo_001.jpg/ben": "corrected"}
    write_verdicts(place, tmp_path / "out.csv")
    assert import_verdicts(place, tmp_path / "out.csv").known == 1
    assert (tmp_path / "out/photo_001.jpg/ben.png").exists()


def test_image_names():
    names = ImageNames(["a/x.jpg", "b/x.jpg", "é.png"])
    assert names.find("C:\\data\\a\\x.png") == "a/x.jpg"
    assert names.find("é") == "é.png"
    with pytest.raises(InputError, match="several"):
        names.find("x.jpg")
    with pytest.raises(InputError, match="no image"):
        names.find("")


# -- CSV -------------------------------------------------------------------------------------------


def make_log(place):
    """Verdicts of all kinds, some of them superseded."""
    log, dataset = VerdictLog(Location.of(place)), open_dataset(place)

    def add(number, kind, at, mask=None, **more):
        made = None if mask is None else make_correction(dataset, number, mask.astype(np.uint8))
        log.append(Verdict(name(number), kind, at=at, correction=made, **more))

    add(2, "corrected", "2026-11-01", ~true_mask(2), by="ben")
    add(2, "corrected", "2026-11-02", true_mask(2), by="anna", note='thin, "legs"\nlost')
    add(5, "corrected", "2026-11-03", true_mask(5))
    add(5, "rejected", "2026-11-04", by="anna")
    add(1, "confirmed", "2026-11-05")
    add(7, "confirmed", "2026-11-06")
    add(7, "withdrawn", "2026-11-07")
    void = np.where(true_mask(9), 1, 255)
    add(9, "corrected", "2026-11-08", void)


@pytest.mark.parametrize("every", [False, True])
def test_what_is_written_can_be_read_back(folder, place, tmp_path, every):
    make_log(place)
    report = write_verdicts(place, tmp_path / "out/list.csv", every=every)
    assert report.files == [str(tmp_path / "out/list.csv"), str(tmp_path / "out/list")]
    assert (report.verdicts, report.masks) == ((8, 4) if every else (4, 2))
    first = (tmp_path / "out/list.csv").read_text().splitlines()[0]
    assert first == "image,verdict,by,at,note,id"
    other = shutil.copytree(folder / "data.zarr", tmp_path / "other.zarr")
    imported = import_verdicts(other, tmp_path / "out/list.csv")
    assert imported.added == report.verdicts
    expected = VerdictLog(Location.of(place)).read()
    if not every:
        kept = {*list_verdicts(place)["id"]}
        expected = [one for one in expected if one.id in kept]
    for one, own in zip(VerdictLog(Location.of(other)).read(), expected, strict=True):
        assert (one.image, one.kind, one.by, one.at, one.note, one.id) == (
            own.image, own.kind, own.by, own.at, own.note, own.id
        )  # fmt: skip
        if own.correction is not None:
            for part in ("mask", "working", "label", "weight", "flags"):
                np.testing.assert_array_equal(
                    getattr(one.correction, part), getattr(own.correction, part)
                )
    again = import_verdicts(other, tmp_path / "out/list.csv")
    assert (again.added, again.known) == (0, report.verdicts)


def test_masks_have_the_values_of_the_training_masks(tmp_path):
    place = make_dataset(tmp_path, MaskOptions(classes={0: "sky", 255: "horse", 7: "cat"}))
    codes = np.where(true_mask(2), 2, 1).astype(np.uint8)
    dataset = open_dataset(place)
    verdict = Verdict(name(2), "corrected", correction=make_correction(dataset, 2, codes))
    VerdictLog(Location.of(place)).append(verdict)
    write_verdicts(place, tmp_path / "out")
    assert (tmp_path / "out/verdicts.csv").exists()
    written = np.asarray(Image.open(tmp_path / "out/verdicts/photo_002.png"))
    np.testing.assert_array_equal(written, np.where(true_mask(2), 7, 255))


@pytest.mark.parametrize(
    "fmt",
    [
        MaskFormat(),
        MaskFormat(void=(255,)),
        MaskFormat(foreground=(0, 3)),
        MaskFormat(foreground=(1,), void=(255, 254)),
        MaskFormat(threshold=0.5),
        MaskFormat(threshold=0.5, void=(255,)),
        MaskFormat(classes=((0, "a"), (300, "b"), (255, "c"))),
    ],
    ids=str,
)
def test_values_are_read_back(fmt):
    codes = np.array([[0, 1, 255], [1, 0, 255]], dtype=np.uint8)
    np.testing.assert_array_equal(storage_format(fmt).codes(to_values(codes, fmt)), codes)


def test_a_csv_file_written_by_a_person(place, tmp_path):
    save_mask(tmp_path / "drawn.png", 255 * true_mask(2))
    path = tmp_path / "list.csv"
    path.write_text(
        "\ufeffimage, verdict, mask, by\nphoto_000,confirmed,,\nphoto_001.jpg,rejected,,ben\n"
        "images/photo_002.jpg,corrected,drawn.png,\n"
    )
    report = import_verdicts(place, path, by="anna")
    assert (report.format, report.corrected, report.confirmed, report.rejected) == ("csv", 1, 1, 1)
    assert {*list_verdicts(place)["by"]} == {"anna"}
    assert import_verdicts(place, path, by="anna").known == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("photo_000.jpg,fine,,", r"verdict 'fine' is none of confirmed, rejected"),
        ("photo_000.jpg,corrected,,", r"no corrected mask of it in list/ \(1 image: photo_000"),
        ("photo_000.jpg,rejected,yesterday,", r"line 2: the time of a verdict is 'yesterday'"),
        ("photo_000.jpg,rejected,,17", "32 hexadecimal digits"),
        ("horse.jpg,rejected,,", r"no image of this name \(1 image: horse.jpg"),
    ],
)
def test_wrong_lines(place, tmp_path, line, message):
    (tmp_path / "list.csv").write_text(f"image,verdict,at,id\n{line}\nphoto_001.jpg,confirmed,,\n")
    with pytest.raises(PipelineError, match=message):
        import_verdicts(place, tmp_path / "list.csv")
    assert kinds(place) == {}
    assert import_verdicts(place, tmp_path / "list.csv", on_error="skip").confirmed == 1


def test_older_verdicts_do_not_count(place, tmp_path):
    VerdictLog(Location.of(place)).append(Verdict(name(0), "confirmed", at="2026-11-10"))
    (tmp_path / "list.csv").write_text("image,verdict,at\nphoto_000.jpg,rejected,2026-11-09\n")
    report = import_verdicts(place, tmp_path / "list.csv")
    assert (report.rejected, report.older) == (1, 1)
    assert kinds(place) == {name(0): "confirmed"}
    assert import_verdicts(place, tmp_path / "list.csv").known == 1


def test_an_empty_log(place, tmp_path):
    assert write_verdicts(place, tmp_path / "list.csv").verdicts == 0
    report = import_verdicts(place, tmp_path / "list.csv")
    assert (report.added, report.known) == (0, 0)
    assert "mentions no image" in report.notes[0]


def test_training_masks_are_not_overwritten(folder, place):
    make_log(place)
    before = (folder / "masks/photo_002.png").read_bytes()
    with pytest.raises(InputError, match="holds the masks of the dataset"):
        write_verdicts(place, folder / "masks.csv")
    assert (folder / "masks/photo_002.png").read_bytes() == before


def test_datasets_at_urls(folder, tmp_path):
    location = Location.of("memory://verdict-files/data.zarr")
    for path in (folder / "data.zarr").rglob("*"):
        if path.is_file():
            key = path.relative_to(folder / "data.zarr").as_posix()
            location.write(key, path.read_bytes())
    corrected_folder(tmp_path / "fixed")
    assert import_verdicts(location.url, tmp_path / "fixed").corrected == 3
    assert write_verdicts(location.url, tmp_path / "out.csv").masks == 3
    assert import_verdicts(location.url, tmp_path / "out.csv").known == 3


def test_what_has_no_format(place, tmp_path):
    (tmp_path / "notes.txt").write_text("good masks")
    (tmp_path / "empty").mkdir()
    for path in ("notes.txt", "empty"):
        with pytest.raises(InputError, match="none of the known formats: CSV file of verdicts"):
            import_verdicts(place, tmp_path / path)
    with pytest.raises(MissingFileError, match="does not exist"):
        import_verdicts(place, tmp_path / "gone")
    with pytest.raises(InputError, match="choose one of csv, label-studio"):
        import_verdicts(place, tmp_path / "notes.txt", format="word")


# -- the command -----------------------------------------------------------------------------------


def test_the_command(run, place, tmp_path):
    code, out, _ = run("verdicts", place)
    assert (code, out) == (0, "0 of 16 images have a verdict\n")
    corrected_folder(tmp_path / "fixed", (*SHIFTED, 1))
    code, out, _ = run("verdicts", place, "--import", tmp_path / "fixed", "--by", "anna")
    assert code == 0
    assert "(folder of masks): 3 corrected, 1 confirmed" in out.replace("\n", " ")
    assert "4 of 16 images have a verdict: 1 confirmed, 3 corrected" in out
    code, out, _ = run("verdicts", place)
    assert code == 0
    assert all(f"photo_{number:03d}.jpg" in out for number in (*SHIFTED, 1))
    code, out, _ = run("verdicts", place, "-o", tmp_path / "list.csv", "--json")
    shown = json.loads(out)
    assert shown["counts"] == {"confirmed": 1, "corrected": 3}
    assert shown["written"]["masks"] == 3
    with (tmp_path / "list.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [one["id"] for one in shown["verdicts"]]
    (tmp_path / "back.csv").write_text("image,verdict\nphoto_001.jpg,withdrawn\n")
    code, out, _ = run("verdicts", place, "--import", tmp_path / "back.csv", "--json")
    assert json.loads(out)["counts"] == {"corrected": 3}
    code, out, _ = run("verdicts", place, "--all", "--json")
    assert [one["current"] for one in json.loads(out)["verdicts"]].count(False) == 2


def test_errors_of_the_command(run, place, tmp_path):
    code, _, err = run("verdicts", place, "--by", "anna")
    assert code == 2
    assert "options of --import" in err
    save_mask(tmp_path / "fixed/horse.png", np.zeros((60, 80)))
    code, _, err = run("verdicts", place, "--import", tmp_path / "fixed")
    assert code == 2
    assert "no image of this name (1 image: horse.png)" in err
    code, out, _ = run("verdicts", place, "--import", tmp_path / "fixed", "--on-error", "skip")
    assert code == 0
    assert "nothing new" in out
    assert "1 skipped" in out


def test_coco_file_of_corrected_masks(folder, place, tmp_path):
    from pycocotools.coco import COCO

    make_log(place)
    table = list_verdicts(place)
    kept = {*table.loc[table["verdict"] == "corrected", "id"]}
    write_verdicts(place, tmp_path / "out.json")
    coco = COCO(tmp_path / "out.json")
    assert [one["file_name"] for one in coco.loadImgs(coco.getImgIds())] == [name(2), name(9)]
    (own,) = coco.loadAnns(coco.getAnnIds(imgIds=[1]))
    np.testing.assert_array_equal(coco.annToMask(own), true_mask(2))
    other = shutil.copytree(folder / "data.zarr", tmp_path / "other.zarr")
    report = import_verdicts(other, tmp_path / "out.json")
    assert (report.format, report.corrected) == ("coco", 2)
    masks = {one.image: one.correction.mask for one in VerdictLog(Location.of(other)).read()}
    for own in VerdictLog(Location.of(place)).read():
        if own.id in kept:
            np.testing.assert_array_equal(masks[own.image], own.correction.mask)
    with pytest.raises(InputError, match="the whole log is written as CSV"):
        write_verdicts(place, tmp_path / "out.json", every=True)
