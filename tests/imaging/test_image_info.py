"""Groups and annotators of images: by regular expressions or CSV files, checked before any work."""

from __future__ import annotations

import pytest

from gpgc_dask.core.errors import InputError, MissingFileError
from gpgc_dask.imaging.image_info import ImageInfo, PhotoInfo

pytestmark = pytest.mark.quick

NAMES = ["day1_anna_20240131.jpg", "day1_bert_20240201.jpg", "day2_anna_20240202.jpg"]
PHOTOS = {name: name for name in NAMES}


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_without_rules_every_photo_is_a_group():
    assert ImageInfo().find(PHOTOS) == {name: PhotoInfo(name, name) for name in NAMES}


def test_the_first_group_or_the_whole_match_is_the_value():
    found = ImageInfo(group="^[^_]+", annotator="_([a-z]+)_").find(PHOTOS)
    assert [found[name].group for name in NAMES] == ["day1", "day1", "day2"]
    assert [found[name].annotator for name in NAMES] == ["anna", "bert", "anna"]
    assert found[NAMES[0]].annotated == ""


def test_names_may_have_dates():
    rule = r"_(?P<annotator>[a-z]+)_(?P<date>\d+)"
    found = ImageInfo(annotator=rule).find(PHOTOS)
    assert found[NAMES[0]] == PhotoInfo(NAMES[0], NAMES[0], "anna", "2024-01-31T00:00:00")


def test_files(tmp_path):
    groups = write(tmp_path / "g.csv", "image,group", *(f"{name},{name[:4]}" for name in NAMES))
    people = write(
        tmp_path / "p.csv",
        "\ufeffdate, annotator ,image,comment",
        *(f"2024-05-0{n + 1},Änne,{name},x" for n, name in enumerate(NAMES)),
    )
    found = ImageInfo(groups, people).find(PHOTOS)
    assert found[NAMES[2]] == PhotoInfo(NAMES[2], "day2", "Änne", "2024-05-03T00:00:00")


def test_a_file_may_name_photos_of_several_answers(tmp_path):
    answers = {"a.jpg/1": "a.jpg", "a.jpg/2": "a.jpg", "b.jpg/1": "b.jpg"}
    groups = write(tmp_path / "g.csv", "image,group", "a.jpg,x", "b.jpg,y")
    found = ImageInfo(groups).find(answers)
    assert [found[name].group for name in answers] == ["x", "x", "y"]
    assert ImageInfo().find(answers)["a.jpg/2"].group == "a.jpg"


def test_what_the_source_knows_is_kept():
    known = {"a.jpg/1": PhotoInfo("a.jpg", "a.jpg", "anna", "2024-01-01T00:00:00")}
    assert ImageInfo(group="a").find({"a.jpg/1": "a.jpg"}, known)["a.jpg/1"].annotator == "anna"


def test_a_file_may_name_images_that_cannot_be_used(tmp_path):
    lines = [f"{name},1" for name in (*NAMES, "broken.jpg")]
    groups = write(tmp_path / "g.csv", "image,group", *lines)
    assert len(ImageInfo(groups).find(PHOTOS, unusable=["broken.jpg"])) == 3


ALL = [f"{name},x" for name in NAMES]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["image,group", *ALL, "other.jpg,x"],
            r"names 1 of 4 images \(other.jpg\) that are not in",
        ),
        (["image,group", *ALL[1:]], r"has no line for 1 of 3 images \(day1_anna"),
        (["image,group", *ALL, ALL[0]], r"names day1_anna_20240131.jpg twice"),
        (["image,video", *ALL], r"has no column group: its first line must be image,group"),
        ([], r"has no column image and group"),
        (["image,group", f"{NAMES[0]},"], r"line 2 has no group"),
    ],
)
def test_files_that_do_not_fit(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        ImageInfo(write(tmp_path / "g.csv", *lines)).find(PHOTOS)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "g.csv").write_bytes(b"\xff\xfe\x00image,group")
    with pytest.raises(InputError, match="not a CSV file in UTF-8"):
        ImageInfo(str(tmp_path / "g.csv")).find(PHOTOS)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (ImageInfo(group="day1"), r"'day1' matches nothing in 1 of 3 images \(day2_anna"),
        (ImageInfo(annotator="(x)?"), r"matches nothing in 3 of 3 images"),
        (ImageInfo(group="(day"), r"neither a regular expression \(.*\) nor the name of a CSV"),
        (ImageInfo(annotator="(?P<annotator>anna|bert)_(?P<date>.)"), r"the date '2': write dates"),
    ],
)
def test_regular_expressions_that_do_not_fit(info, message):
    with pytest.raises(InputError, match=message):
        info.find(PHOTOS)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(MissingFileError, match=r"group file .*no.csv does not exist"):
        ImageInfo(group=str(tmp_path / "no.csv")).find(PHOTOS)
