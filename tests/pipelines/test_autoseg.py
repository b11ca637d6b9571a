"""Masks from boxes by GrabCut: of the right things, the same every time, and none lost."""

from __future__ import annotations

import importlib
import json
import sys
from itertools import pairwise

import cv2
import dask
import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from gpgc_dask import RunOptions
from gpgc_dask.cli.autoseg import EXAMPLE
from gpgc_dask.cli.autoseg import autoseg as command
from gpgc_dask.clusters.connect import connect
from gpgc_dask.core.errors import PipelineError, UnusableFileError
from gpgc_dask.imaging.boxes import box_iou, jitter_edges
from gpgc_dask.imaging.grabcut import grabcut
from gpgc_dask.imaging.photos import read_photo
from gpgc_dask.pipelines import photo_jobs as making
from gpgc_dask.pipelines.autoseg import autoseg
from tests.support.images import draw, save_pair, tree_bytes
from tests.support.ingesting import CrashError, crash_after, truncate

pytestmark = pytest.mark.newest

module = importlib.import_module("gpgc_dask.pipelines.autoseg")

HEADER = "image,x,y,width,height"


def box_of(mask, margin=5):
    """The box of a mask, looser by ``margin`` pixels."""
    ys, xs = np.nonzero(mask)
    x, y = int(xs.min()) - margin, int(ys.min()) - margin
    return x, y, int(xs.max()) + 1 + margin - x, int(ys.max()) + 1 + margin - y


def iou(one, other):
    return (one & other).sum() / (one | other).sum()


def pixels(path):
    return np.asarray(Image.open(path))


def write_csv(path, rows, header=HEADER):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """(folder of four photos, CSV file of their boxes, masks made of them)."""
    folder = tmp_path_factory.mktemp("given")
    rows = []
    for seed, name in enumerate(["a", "b", "c", "sub/d é"]):
        save_pair(folder, name, seed)
        rows.append((f"{name}.jpg", *box_of(draw(seed)[1])))
    boxes = write_csv(folder / "boxes.csv", rows)
    autoseg(folder / "images", boxes, folder / "expected")
    return folder / "images", boxes, folder / "expected"


@pytest.fixture
def disc(tmp_path):
    """(folder of one photo, its box, its mask)."""
    save_pair(tmp_path, "x", 3)
    mask = draw(3)[1]
    return tmp_path / "images", box_of(mask), mask


# -- one photo ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_disc_in_a_loose_box(seed):
    photo, mask = draw(seed)
    found = grabcut(photo, box_of(mask))
    assert (found.dtype, found.shape) == (np.bool_, mask.shape)
    assert iou(found, mask) > 0.9


def test_as_opencv_does_it(disc):
    """What the same call gives on the photo as OpenCV reads it."""
    folder, box = disc[0], box_of(disc[2], margin=1)
    photo = cv2.imread(str(folder / "x.jpg"))
    mask = np.zeros(photo.shape[:2], np.uint8)
    cv2.setRNGSeed(7)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(photo, mask, box, *models, 5, cv2.GC_INIT_WITH_RECT)
    np.testing.assert_array_equal(grabcut(photo[..., ::-1], box, seed=7), mask % 2 == 1)


def test_edges_are_rounded_and_cut_off():
    photo, mask = draw(1)
    x, y, width, height = box_of(mask)
    expected = grabcut(photo, (x, y, width, height))
    near = (x + 0.3, y - 0.4, width - 0.6, height + 0.8)
    np.testing.assert_array_equal(grabcut(photo, near), expected)
    beyond = grabcut(photo, (-50, y, 50 + x + width, 1000))
    np.testing.assert_array_equal(beyond, grabcut(photo, (0, y, x + width, 60 - y)))
    assert grabcut(photo, (20.2, 30.2, 0.1, 0.1)).sum() <= 1


def test_a_box_of_the_whole_photo_leaves_a_rim():
    photo, mask = draw(2)
    found = grabcut(photo, (0, 0, 80, 60))
    np.testing.assert_array_equal(found, grabcut(photo, (1, 1, 78, 58)))
    np.testing.assert_array_equal(found, grabcut(photo, (-5, -5, 100, 100)))
    assert iou(found, mask) > 0.9
    line = np.zeros((2, 30, 3), np.uint8)
    assert grabcut(line, (0, 0, 30, 2)).shape == (2, 30)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 2), (1, 9), (3, 3), (5, 4), (40, 40)])
@pytest.mark.parametrize("kind", ["one colour", "noise", "a speck"])
def test_degenerate_photos_do_not_crash(size, kind):
    photo = np.full((*size, 3), 255, np.uint8)
    if kind == "noise":
        photo[:] = np.random.default_rng(0).integers(0, 256, photo.shape)
    if kind == "a speck":
        photo[size[0] // 2, size[1] // 2] = 0
    for box in ((0, 0, size[1], size[0]), (0, 0, 1, 1), (size[1] // 2, 0, 3, 3)):
        if max(size) < 3 and box[0] == 0 and box[2] >= size[1] and box[3] >= size[0]:
            with pytest.raises(UnusableFileError, match="too small for GrabCut"):
                grabcut(photo, box)
        else:
            assert grabcut(photo, box).shape == size


def test_calls_that_will_not_do():
    photo = draw(1)[0]
    for box, message in (
        ((80, 0, 5, 5), "80, 0, 5, 5 is outside the photo of 80×60 pixels"),
        ((-9, 0, 9, 5), "is outside"),
        ((3, 3, 0, 5), "has no area"),
        ((3, 3, 5, -1), "has no area"),
    ):
        with pytest.raises(UnusableFileError, match=message):
            grabcut(photo, box)
    with pytest.raises(ValueError, match="width nan is not a number"):
        grabcut(photo, (1, 2, float("nan"), 4))
    with pytest.raises(ValueError, match="a box is x, y, width and height"):
        grabcut(photo, (1, 2, 3))
    with pytest.raises(ValueError, match=r"pixels must be \(h, w, 3\) uint8"):
        grabcut(photo[..., 0], (1, 2, 3, 4))
    with pytest.raises(ValueError, match="iterations must be 1 or more"):
        grabcut(photo, (1, 2, 3, 4), iterations=0)
    with pytest.raises(ValueError, match="seed must be"):
        grabcut(photo, (1, 2, 3, 4), seed=-1)


# -- folders -----------------------------------------------------------------------------------


def test_masks_of_a_folder(given, tmp_path):
    images, boxes, expected = given
    report = autoseg(images, boxes, tmp_path)
    assert (report.images, report.skipped, report.without_box, report.resumed) == (4, [], 0, 0)
    assert tree_bytes(tmp_path) == tree_bytes(expected)
    for seed, name in enumerate(["a", "b", "c", "sub/d é"]):
        found = pixels(tmp_path / f"{name}.png")
        assert {*np.unique(found)} == {0, 255}
        assert iou(found > 0, draw(seed)[1]) > 0.8  # JPEG blurs so small a disc


def test_on_a_cluster_the_same_bytes(client, given, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "IMAGES_PER_TASK", 1)
    images, boxes, expected = given
    autoseg(images, boxes, tmp_path / "w", run=RunOptions(client=client))
    assert tree_bytes(tmp_path / "w") == tree_bytes(expected)
    with dask.config.set(scheduler="threads"):
        for place, cluster in (("t", None), ("c", client)):
            autoseg(images, boxes, tmp_path / place, jitter=0.5, run=RunOptions(client=cluster))
    jittered = tree_bytes(tmp_path / "t")
    assert jittered == tree_bytes(tmp_path / "c")
    assert jittered != tree_bytes(expected)


def test_jitter_is_the_images_own(given, tmp_path):
    """Whatever other images there are; another one for another seed."""
    images, boxes, _ = given
    (row,) = [line for line in boxes.read_text().splitlines() if line.startswith("b.jpg")]
    mapping = {"b.jpg": [tuple(map(int, row.split(",")[1:]))]}
    autoseg(images, boxes, tmp_path / "all", jitter=0.6)
    report = autoseg(images, mapping, tmp_path / "one", jitter=0.6)
    assert (report.images, report.without_box) == (1, 3)
    one = tree_bytes(tmp_path / "one")
    assert one == {"b.png": tree_bytes(tmp_path / "all")["b.png"]}
    autoseg(images, mapping, tmp_path / "other", jitter=0.6, seed=1)
    assert tree_bytes(tmp_path / "other") != one


def test_two_boxes_are_united(tmp_path):
    photo = np.concatenate([draw(0)[0], draw(1)[0]], axis=1)
    (tmp_path / "images").mkdir()
    Image.fromarray(photo).save(tmp_path / "images/two.png")
    (x, *rest), right = box_of(draw(1)[1]), box_of(draw(0)[1])
    both = [right, (x + 80, *rest)]
    autoseg(tmp_path / "images", {"two.png": both}, tmp_path / "out")
    expected = grabcut(photo, both[0]) | grabcut(photo, both[1])
    np.testing.assert_array_equal(pixels(tmp_path / "out/two.png") > 0, expected)
    assert iou(expected, np.concatenate([draw(0)[1], draw(1)[1]], axis=1)) > 0.9


def test_photos_of_all_kinds(tmp_path):
    """Boxes and masks are of the photo as people see it."""
    photo, mask = draw(5, 90, 70)
    (tmp_path / "images").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = Image.fromarray(photo)
    upright.rotate(90, expand=True).save(tmp_path / "images/turned.jpg", exif=exif)
    Image.fromarray(np.where(mask, 200, 60).astype(np.uint8)).save(tmp_path / "images/grey.png")
    clear = upright.convert("RGBA")
    clear.putalpha(Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)))
    clear.save(tmp_path / "images/clear.png")
    names = ("turned.jpg", "grey.png", "clear.png")
    autoseg(tmp_path / "images", {name: [box_of(mask)] for name in names}, tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert iou(pixels(path) > 0, mask) > 0.9
    assert len(tree_bytes(tmp_path / "out")) == 3


def test_a_smaller_side(tmp_path):
    save_pair(tmp_path, "large", 4, height=301, width=200)
    truth = draw(4, 301, 200)[1]
    x, y, width, height = box = box_of(truth)
    autoseg(tmp_path / "images", {"large.jpg": [box]}, tmp_path / "out", side=100)
    found = pixels(tmp_path / "out/large.png") > 0
    assert iou(found, truth) > 0.9
    small = read_photo(tmp_path / "images/large.jpg", 100).pixels
    h, w = small.shape[:2]
    scaled = (x * w / 200, y * h / 301, width * w / 200, height * h / 301)
    expected = Image.fromarray(grabcut(small, scaled)).resize((200, 301), Image.Resampling.NEAREST)
    np.testing.assert_array_equal(found, np.asarray(expected))


# -- jitter ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edges",
    [(40, 30, 60, 50), (0, 0, 100, 80), (0, 0, 99, 79), (0, 30, 5, 80), (10.2, 20, 11, 21)],
    ids=str,
)
@pytest.mark.parametrize("jitter", [0.2, 0.7, 1.0])
def test_jittered_boxes_have_the_iou_drawn(edges, jitter):
    """Uniform: by Kolmogorov's distance, 1.63/√n at the 1 % level. At the border too."""
    given, rng = np.array(edges, dtype=float), np.random.default_rng(3)
    moved = [jitter_edges(given, 80, 100, jitter, rng) for _ in range(400)]
    for left, top, right, bottom in moved:
        assert 0 <= left < right <= 100
        assert 0 <= top < bottom <= 80
    overlaps = np.sort([box_iou(one, given) for one in moved])
    shares = (overlaps - (1 - jitter)) / jitter
    assert np.abs(shares - np.arange(400) / 400).max() < 1.63 / np.sqrt(400)
    if edges == (40, 30, 60, 50):
        centres = np.array(moved) @ [[0.5, 0], [0, 0.5], [0.5, 0], [0, 0.5]]
        assert np.all(np.abs(centres.mean(0) - (50, 40)) < 2)


def test_the_overlap_never_rises_along_the_way():
    """So that the way to the IoU drawn can be found by halving."""
    rng = np.random.default_rng(1)
    size = np.array([100.0, 80.0] * 2)
    for _ in range(50):
        corners = np.sort(rng.uniform(0, size.reshape(2, 2), (2, 2)), axis=0).ravel()
        steps = rng.standard_normal(4) * np.tile(corners[2:] - corners[:2], 2)
        way = [np.clip(corners + t * steps, 0, size) for t in np.linspace(0, 5, 100)]
        overlaps = [box_iou(one, corners) for one in way]
        assert all(later <= earlier + 1e-12 for earlier, later in pairwise(overlaps))


def test_no_jitter_is_none():
    edges = np.array([1.0, 2.0, 3.0, 4.0])
    assert jitter_edges(edges, 80, 100, 0.0, np.random.default_rng(0)) is edges


# -- what is there already ---------------------------------------------------------------------


def test_masks_that_are_there(given, tmp_path):
    images, boxes, expected = given
    autoseg(images, boxes, tmp_path)
    (tmp_path / "a.png").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"a.png exists, and 3 more .*--resume.*--overwrite"):
        autoseg(images, boxes, tmp_path)
    with pytest.raises(ValueError, match="choose one"):
        autoseg(images, boxes, tmp_path, run=RunOptions(resume=True, overwrite=True))
    with pytest.raises(ValueError, match="on_error must be"):
        autoseg(images, boxes, tmp_path, run=RunOptions(on_error="cry"))
    (tmp_path / "b.png").unlink()
    report = autoseg(images, boxes, tmp_path, run=RunOptions(resume=True))
    assert (report.images, report.resumed) == (4, 3)
    assert tree_bytes(tmp_path) == tree_bytes(expected) | {"a.png": b"mine"}
    assert autoseg(images, boxes, tmp_path, run=RunOptions(overwrite=True)).resumed == 0
    assert tree_bytes(tmp_path) == tree_bytes(expected)
    report = autoseg(
        images, boxes, tmp_path, run=RunOptions(resume=True, client=connect("tcp://no:1"))
    )
    assert report.resumed == 4


def test_stopped_in_the_middle_it_resumes(given, tmp_path, monkeypatch):
    images, boxes, expected = given
    with monkeypatch.context() as patch:
        crash_after(patch, module, "write_whole", 2)
        with pytest.raises(CrashError) as raised:
            autoseg(images, boxes, tmp_path)
    assert any("while working on" in note for note in raised.value.__notes__)
    assert len(tree_bytes(tmp_path)) == 2
    assert autoseg(images, boxes, tmp_path, run=RunOptions(resume=True)).resumed == 2
    assert tree_bytes(tmp_path) == tree_bytes(expected)


def test_photos_are_never_written_over(disc, tmp_path):
    """Also those without a box; and one without does not stand in the way of its namesake."""
    images, box, _ = disc
    Image.fromarray(draw(1)[0]).save(images / "x.png")
    before = tree_bytes(images)
    with pytest.raises(ValueError, match="choose another folder for the pictures"):
        autoseg(images, {"x.jpg": [box]}, images, run=RunOptions(overwrite=True))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/images").symlink_to(images, target_is_directory=True)
    with pytest.raises(ValueError, match=r"images/x.png is a photo.* would be lost"):
        autoseg(
            tmp_path / "linked", {"images/x.jpg": [box]}, tmp_path, run=RunOptions(overwrite=True)
        )
    assert tree_bytes(images) == before
    assert autoseg(images, {"x.jpg": [box]}, tmp_path / "new").without_box == 1


# -- bad boxes and photos ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no column image, x, y, width, height: .* but it is missing"),
        (f"{HEADER}\n".encode(), "holds no boxes"),
        (b"image,x,y,width\nx.jpg,1,2,3\n", "has no column height: .* but it has 'image,x,"),
        (b"image;x;y;width;height\nx.jpg;1;2;3;4\n", "has no column image, x"),
        (f"{HEADER}\n\nx.jpg,1,two,3,4\n".encode(), "boxes.csv, row 3: y 'two' is not a number"),
        (f"{HEADER}\nx.jpg,1,2,inf,4\n".encode(), "row 2: width 'inf' is not a number"),
        (f"{HEADER}\nx.jpg,1,2,3\n".encode(), "row 2: height is missing"),
        (f"{HEADER}\nx.jpg,1,,3,4\n".encode(), "row 2: y is missing"),
        (f"{HEADER}\n,1,2,3,4\n".encode(), "row 2: image is missing"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe\x00", "not a CSV file in UTF-8"),
        (b"PK\x03\x04\x00\x00\x00", "has no column image"),
        (b'"' + b"x" * 200_000, "not a CSV file in UTF-8: field larger"),
    ],
)
def test_files_of_boxes_that_will_not_do(disc, tmp_path, content, message):
    (tmp_path / "boxes.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        autoseg(disc[0], tmp_path / "boxes.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_of_boxes_in_common_formats(disc, tmp_path):
    """With a byte order mark, spaces, other columns, in another order."""
    images, (x, y, width, height), _ = disc
    lines = "\ufeffx, y, width, height, class, image", f"{x}, {y}, {width}.0,{height}, a,./x.jpg"
    (tmp_path / "boxes.csv").write_bytes("\r\n".join(lines).encode())
    assert autoseg(images, tmp_path / "boxes.csv", tmp_path / "out").images == 1


def test_boxes_that_are_no_boxes(disc, tmp_path):
    images, box, _ = disc
    out = tmp_path / "out"
    for boxes, message in (
        ({}, "boxes are empty"),
        ({"x.jpg": []}, "boxes are empty"),
        ({"x.jpg": box}, "boxes of x.jpg, box 1: a box is x, y, width and height, got"),
        ({"x.jpg": [box, (1, 2, None, 4)]}, "box 2: width is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            autoseg(images, boxes, out)
    with pytest.raises(FileNotFoundError, match="name a CSV file of boxes"):
        autoseg(images, tmp_path / "nowhere.csv", out)
    with pytest.raises(IsADirectoryError, match="name a CSV file of boxes"):
        autoseg(images, images, out)
    with pytest.raises(NotADirectoryError, match="name the folder that holds the images"):
        autoseg(images / "x.jpg", {"x.jpg": [box]}, out)
    for wrong in ({"jitter": 1.1}, {"jitter": -0.1}, {"side": 4}, {"iterations": 0}, {"seed": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            autoseg(images, {"x.jpg": [box]}, out, **wrong)
    assert not out.exists()


def test_images_and_boxes_that_cannot_be_used(given, tmp_path):
    """Those that can be told without reading a photo are told before any work."""
    images, _, expected = given
    good = box_of(draw(0)[1])
    rows = [("a.jpg", *good), ("b.jpg", 1, 1, 0, 5), ("c.jpg", 90, 1, 5, 5), ("no.jpg", *good)]
    rows += [("gone/too.jpg", *good)]
    boxes = write_csv(tmp_path / "boxes.csv", rows)
    with pytest.raises(PipelineError) as raised:
        autoseg(images, boxes, tmp_path / "out")
    told = str(raised.value)
    assert "b.jpg: row 3: box 1, 1, 0, 5 has no area" in told
    assert "gone/too.jpg: row 6: there is no such photo in" in told
    assert "(alike: no.jpg)" in told
    assert not (tmp_path / "out").exists()
    report = autoseg(images, boxes, tmp_path / "out", run=RunOptions(on_error="skip"))
    assert (report.images, report.without_box) == (1, 1)
    skipped = {problem.name: problem.reason for problem in report.skipped}
    assert [*skipped] == ["b.jpg", "c.jpg", "gone/too.jpg", "no.jpg"]
    assert skipped["c.jpg"].startswith("row 4: box 90, 1, 5, 5 is outside the photo of 80×60")
    assert tree_bytes(tmp_path / "out") == {"a.png": (expected / "a.png").read_bytes()}
    write_csv(boxes, [rows[0], rows[2]])
    with pytest.raises(PipelineError, match=r"c.jpg: row 3: box .* is outside.*\n.*--resume"):
        autoseg(images, boxes, tmp_path / "other")


def test_bad_photos(disc, tmp_path, monkeypatch):
    images, box, _ = disc
    save_pair(tmp_path, "bad", 1)
    truncate(images / "bad.jpg", 1500)
    both = {"bad.jpg": [box], "x.jpg": [box]}
    with pytest.raises(PipelineError, match=r"bad.jpg: corrupted.*\n.*--resume"):
        autoseg(images, both, tmp_path / "out")
    report = autoseg(images, both, tmp_path / "skipped", run=RunOptions(on_error="skip"))
    assert (report.images, [problem.name for problem in report.skipped]) == (1, ["bad.jpg"])

    def failing(*arguments):
        raise cv2.error("OpenCV: something\nis wrong")

    monkeypatch.setattr(cv2, "grabCut", failing)
    with pytest.raises(
        PipelineError, match=r"x.jpg: box 1: GrabCut fails on it: OpenCV: something"
    ):
        autoseg(images, {"x.jpg": [box]}, tmp_path / "failed")
    with pytest.raises(PipelineError, match="none of the images could be used"):
        autoseg(images, {"x.jpg": [box]}, tmp_path / "failed", run=RunOptions(on_error="skip"))


def test_without_opencv(disc, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r'pip install "gpgc_dask\[grabcut\]"'):
        grabcut(draw(1)[0], (1, 2, 3, 4))
    with pytest.raises(ImportError, match=r'pip install "gpgc_dask\[grabcut\]"'):
        autoseg(disc[0], {"x.jpg": [disc[1]]}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def run():
    app = typer.Typer()
    app.command(epilog=EXAMPLE)(command)
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])


def test_the_command(client, run, given, tmp_path):
    images, boxes, expected = given
    there = ["--scheduler", client.scheduler.address]
    shown = run(images, boxes, "-o", tmp_path / "m", *there)
    assert shown.exit_code == 0, shown.output
    assert "masks of 4 images" in shown.stdout
    assert "images 4/4" in shown.stderr
    assert tree_bytes(tmp_path / "m") == tree_bytes(expected)
    shown = run(images, boxes, "-o", tmp_path / "m", "--resume", "--json")
    assert json.loads(shown.stdout)["resumed"] == 4
    some = write_csv(tmp_path / "some.csv", [("a.jpg", 1, 1, 50, 50), ("no.jpg", 1, 1, 50, 50)])
    given_options = ["--jitter", 0.5, "--seed", 3, "--side", 64, "--iterations", 2]
    shown = run(images, some, "-o", tmp_path / "x", *given_options, "--on-error", "skip", *there)
    assert "1 files skipped" in shown.stdout
    assert "3 photos have no box" in shown.stdout
    assert run(images, boxes, "-o", tmp_path / "m", "--jitter", 2).exit_code == 2
    assert "gpgc autoseg photos/ boxes.csv" in run("--help").stdout
