"""Folders as users have them, each from the first command to a dataset.

A row of :data:`REFUSED` is ingested without options first: it is refused by one line with the fix,
no cluster or network is started, and nothing is left. With the fix, as with the options of a row of
:data:`READ` and the photos of one of :data:`PHOTOS`, the dataset is that of plain PNGs.
"""

from __future__ import annotations

import re
import shlex
import zipfile

import distributed
import numpy as np
import pytest
import tifffile
from PIL import Image

from gpgc_dask import MaskOptions, ingest, open_dataset
from tests.cli.test_ingest_checks import started
from tests.imaging import test_mask_layouts as masks
from tests.imaging.test_mask_layouts import save, three, to_rgb, two
from tests.support import annotation_files as annotations
from tests.support.annotation_files import DOG, HORSE, LAYOUTS, SCENES
from tests.support.deep import write_deep
from tests.support.images import draw
from tests.support.ingesting import QUICK
from tests.support.medical import save_dicom, save_nifti

__all__ = ["started"]

pytestmark = pytest.mark.newest

OPTIONS = ["--backbone", "colour", "--superpixels", "20"]

EQUAL = ("features", "label", "weight", "mask")


@pytest.fixture(scope="module")
def scheduler():
    """Address of a cluster of one thread of this process."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with distributed.LocalCluster(**options, protocol="tcp://", dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def refuse(run, started):
    """Run an ingest that is refused: its message."""

    def call(*command, target):
        code, out, err = run("ingest", *command, "-o", target, *OPTIONS)
        assert (code, out, started) == (2, "", [])
        assert not target.exists()
        return err

    return call


@pytest.fixture
def read(run, scheduler):
    """Run an ingest that reads everything: its dataset."""

    def call(*command, target):
        code, out, err = run("ingest", *command, "-o", target, *OPTIONS, "--scheduler", scheduler)
        assert code == 0, err or out
        return open_dataset(target)

    return call


def assert_equal(made, plain, codes=(0, 1, 2)):
    """Datasets are equal; ``codes`` are the numbers of the classes 0, 1 and 2 in ``made``."""
    table = np.arange(256)
    table[: len(codes)] = codes
    for name in EQUAL:
        expected = plain[name].values
        if name == "mask":
            expected = table[expected]
        if name == "label":
            expected = np.where(plain["weight"].values > 0, table[expected], made[name].values)
        np.testing.assert_array_equal(made[name].values, expected)


# -- masks -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return masks.write_photos(tmp_path_factory.mktemp("photos"))


@pytest.fixture(scope="module")
def plain(photos, tmp_path_factory):
    """Datasets of plain PNGs, by the function that draws them; each is made once."""
    done = {}

    def make(codes):
        if codes not in done:
            folder = tmp_path_factory.mktemp("plain")
            given = masks.write_masks(folder / "masks", codes, save(lambda c: c))
            is_two = codes is two
            classes = {} if is_two else {0: "background", 1: "one", 2: "another"}
            as_read = MaskOptions(classes=classes, void=() if is_two else [255])
            ingest(photos, given, folder / "data.zarr", recipe=QUICK, masks_as=as_read)
            done[codes] = open_dataset(folder / "data.zarr")
        return done[codes]

    return make


# name: (codes, how files are written, fix in the message, numbers of the classes)
REFUSED = {
    name: (codes, write, fix, masks.CODES.get(name, {"VOC": (0, 13, 15)}.get(name, (0, 1, 2))))
    for name, (codes, write, fix) in masks.SUGGESTED.items()
    if name != "object and void"
}
REFUSED["Cityscapes"] = (*REFUSED["Cityscapes"][:3], (0, 13, 11))


@pytest.mark.parametrize("layout", REFUSED)
def test_refused_masks_are_read_with_the_fix(layout, photos, plain, refuse, read, run, tmp_path):
    codes, write, fix, numbers = REFUSED[layout]
    given = masks.write_masks(tmp_path / "masks", codes, write)
    target = tmp_path / "data.zarr"
    message = refuse(photos, given, target=target)
    assert any(fix in line for line in message.splitlines())
    writes = "--write-classes" in fix
    if writes:
        file = tmp_path / "classes.csv"
        assert run("ingest", photos, given, "-o", target, "--write-classes", file)[0] == 0
        file.write_text(file.read_text().replace("colour_ffffff", "void"))
        fix = f"--classes {file}"
    dataset = read(photos, given, *shlex.split(fix), target=target)
    expected = plain(codes)
    if writes:  # classes are in the order of their sizes
        names = list(dataset.attrs["classes"])
        order = ["background", "colour_804080", "colour_dc143c"]
        numbers = [names.index(name) for name in order]
    assert_equal(dataset, expected, numbers)


# name: options of the command
READ = {
    "0 and 255": "",
    "0 and 65535": "",
    "JPEG": "",
    "JPEG in colour": "",
    "half size": "",
    "inverted": "--invert",
    "colours, CSV": f"--classes {masks.CSV!r}",
    "colours, CamVid": f"--classes {masks.CAMVID!r}",
    "colours in a palette": f"--classes {masks.CSV!r}",
    "VOC palette": "--classes voc",
    "Cityscapes trainIds": "--classes cityscapes-trainids",
    "ADE20K": f"--classes {masks.IDX!r}",
    "values, CSV": f"--classes {masks.VALUES!r}",
    "layers of objects": "--format layers",
    "layers, small in front": "--format layers",
}


@pytest.mark.parametrize("layout", READ)
def test_masks_are_read(layout, photos, plain, read, tmp_path):
    codes, write, options = masks.READ[layout]
    given = masks.write_masks(tmp_path / "masks", codes, write)
    words = shlex.split(READ[layout])
    if "--classes" in words and "\n" in options["classes"]:
        words = ["--classes", tmp_path / "classes.txt"]
        words[1].write_text(options["classes"])
    dataset = read(photos, given, *words, target=tmp_path / "data.zarr")
    expected = plain(codes) if codes in (two, three) else None
    if expected is None:  # drawn for half size
        full = masks.write_masks(tmp_path / "full", codes, save(lambda c: c))
        ingest(photos, full, tmp_path / "full.zarr", recipe=QUICK)
        expected = open_dataset(tmp_path / "full.zarr")
    assert_equal(dataset, expected, masks.CODES.get(layout, (0, 1, 2)))


# -- annotations -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Datasets of the annotated objects in plain PNGs, without and with a void corner."""
    folder = tmp_path_factory.mktemp("drawn")
    images = annotations.save_photos(folder / "images")
    (folder / "masks").mkdir()
    for photo in SCENES:
        codes = annotations.true_codes(photo, [HORSE, DOG])
        Image.fromarray(codes).save(folder / "masks" / f"{photo}.png")
    classes = MaskOptions(classes={0: "background", 1: HORSE, 2: DOG})
    ingest(images, folder / "masks", folder / "data.zarr", recipe=QUICK, masks_as=classes)
    return open_dataset(folder / "data.zarr")


ANNOTATIONS = [
    "COCO polygons",
    "COCO compressed run lengths",
    "COCO panoptic",
    "YOLO root",
    "YOLO two folders, classes.txt",
    "VOC root",
    "VOC in VOCdevkit",
    "CVAT masks 1.1, labelmap",
    "CVAT masks",
    "LabelMe masks",
    "LabelMe next to the photos",
    "Label Studio brushes",
]


@pytest.mark.parametrize("layout", ANNOTATIONS)
def test_annotations_are_read_by_the_command_of_the_message(layout, drawn, refuse, read, tmp_path):
    place = LAYOUTS[layout](tmp_path / "files")
    message = refuse(place.images, place.masks, target=tmp_path / "data.zarr")
    (command,) = re.findall(r"as in: gpgc ingest (.*) -o DATA.zarr", message)
    assert re.search(rf"--category ({HORSE}|{DOG})$", command)
    words = shlex.split(re.sub(r"--category \w+", f"--category {HORSE} --category {DOG}", command))
    dataset = read(*words, target=tmp_path / "data.zarr")
    for name in EQUAL:
        made, expected = dataset[name].values, drawn[name].values
        known = dataset["mask"].values if name == "mask" else dataset["weight"].values - 1
        own = known != 255 if name == "mask" else known == 0  # some formats have a void corner
        np.testing.assert_array_equal(made[own], expected[own])
        assert own.mean() > 0.9


# -- photos ----------------------------------------------------------------------------------------


def wide(photo):
    """16 bits."""
    return photo.astype(np.uint16) * 257


def grey(photo):
    return np.dstack([photo[..., 0]] * 3)


def tiff(make, **options):
    def write(path, photo):
        tifffile.imwrite(path.with_suffix(".tif"), make(photo), **options)

    return write


def picture(ending, convert=Image.fromarray, **options):
    def write(path, photo):
        convert(photo).save(path.with_suffix(ending), **options)

    return write


def deep(ending, make=wide):
    return lambda path, photo: write_deep(path.with_suffix(ending), make(photo))


def more(photo):
    """Near infrared in front."""
    return np.dstack([255 - photo[..., :1], photo])


FULL = "--stretch 0,65535"

# name: (how a photo is written, options, what it shows)
PHOTOS = {
    "BMP": (picture(".bmp"), "", None),
    "WebP": (picture(".webp", lossless=True), "", None),
    "PNG with alpha": (picture(".png", lambda p: Image.fromarray(p).convert("RGBA")), "", None),
    "grey PNG": (picture(".png", lambda p: Image.fromarray(p[..., 0])), "", grey),
    "16-bit PNG": (deep(".png"), FULL, None),
    "16-bit grey PNG": (deep(".png", lambda p: wide(p[..., 0])), FULL, grey),
    "16-bit TIFF": (deep(".tif"), FULL, None),
    "12 bits in 16": (
        deep(".tif", lambda p: np.rint(p * (4095 / 255)).astype(np.uint16)),
        "--stretch 0,4095",
        None,
    ),
    "float TIFF": (tiff(lambda p: np.float32(p / 255), photometric="rgb"), "--stretch none", None),
    "planar TIFF": (
        tiff(lambda p: np.moveaxis(p, 2, 0), photometric="rgb", planarconfig="separate"),
        "",
        None,
    ),
    "tiled TIFF": (tiff(lambda p: p, photometric="rgb", tile=(16, 16)), "", None),
    "deflated TIFF": (tiff(lambda p: p, photometric="rgb", compression="zlib"), "", None),
    "min-is-black TIFF of 4 bands": (
        tiff(more, photometric="minisblack", planarconfig="contig"),
        "--bands 2,3,4",
        None,
    ),
    "second page": (
        lambda path, p: tifffile.imwrite(
            path.with_suffix(".tif"), np.stack([255 - p, p]), photometric="rgb"
        ),
        "--page 2",
        None,
    ),
    "DICOM": (
        lambda path, p: save_dicom(path.with_suffix(".dcm"), wide(p[..., 0])),
        FULL,
        grey,
    ),
    "DICOM in colour": (lambda path, p: save_dicom(path.with_suffix(".dcm"), p), "", None),
    "NIfTI": (
        lambda path, p: save_nifti(path.with_suffix(".nii.gz"), wide(p[..., 0])[None]),
        FULL,
        grey,
    ),
}


@pytest.mark.parametrize("kind", PHOTOS)
def test_photos_are_read_as_plain_pngs(kind, read, tmp_path):
    write, options, shown = PHOTOS[kind]
    for module in {"DICOM": ["pydicom"], "NIfTI": ["nibabel"]}.get(kind.split()[0], []):
        pytest.importorskip(module)
    for name in ("plain", "photos", "masks"):
        (tmp_path / name).mkdir()
    for number, letter in enumerate("ab"):
        photo, mask = draw(number, 48, 64)
        write(tmp_path / "photos" / letter, photo)
        Image.fromarray(photo if shown is None else shown(photo)).save(
            tmp_path / "plain" / f"{letter}.png"
        )
        if kind == "NIfTI":
            save_nifti(tmp_path / "masks" / f"{letter}.nii.gz", mask[None].astype(np.uint8))
        else:
            Image.fromarray(mask).save(tmp_path / "masks" / f"{letter}.png")
        (tmp_path / "plain-masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(tmp_path / "plain-masks" / f"{letter}.png")
    ingest(tmp_path / "plain", tmp_path / "plain-masks", tmp_path / "p.zarr", recipe=QUICK)
    words = shlex.split(options)
    dataset = read(tmp_path / "photos", tmp_path / "masks", *words, target=tmp_path / "d.zarr")
    assert_equal(dataset, open_dataset(tmp_path / "p.zarr"))


# -- refusals that files must fix ------------------------------------------------------------------


def archive(folder, photos):
    with zipfile.ZipFile(folder / "masks.zip", "w") as file:
        file.writestr("a.png", b"")
    return folder / "masks.zip", "extract it"


def nowhere(folder, photos):
    return folder / "mask.json", "name the folder or file of the masks"


def other_size(folder, photos):
    given = masks.write_masks(folder / "masks", two, save(lambda c: c[:30]))
    return given, "a mask must have the size of its photo, or its shape at another size"


def one_missing(folder, photos):
    given = masks.write_masks(folder / "masks", two, save(lambda c: c))
    (given / "a.png").unlink()
    return given, "mask missing: there is no a.* in"


def twice(folder, photos):
    given = masks.write_masks(folder / "masks", two, save(lambda c: c))
    (given / "a.jpg").write_bytes((given / "a.png").read_bytes())
    return given, "rename or remove one"


def truncated(folder, photos):
    given = masks.write_masks(folder / "masks", two, save(lambda c: c))
    (given / "a.png").write_bytes((given / "a.png").read_bytes()[:60])
    return given, "Fix or remove these files, or skip them with --on-error skip"


def negative(folder, photos):
    given = masks.write_masks(folder / "masks", two, save(lambda c: c.astype(np.int32) - 1, ".tif"))
    return given, "store classes as 0, 1, 2"


def unknown_classes(folder, photos):
    given = masks.write_masks(folder / "masks", three, save(lambda c: to_rgb(c)[..., ::-1]))
    return given, "--write-classes classes.csv"


def many_values(folder, photos):
    table = np.arange(256)
    spread = np.minimum(np.add.outer(np.arange(60), np.arange(80)) // 7, 18).astype(np.uint8)
    given = masks.write_masks(folder / "masks", two, save(lambda c: table[spread].astype(np.uint8)))
    return given, "--write-classes classes.csv"


FAULTS = [
    archive, nowhere, other_size, one_missing, twice, truncated, negative, unknown_classes,
    many_values,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_refusals_name_the_fix_and_start_nothing(fault, photos, refuse, tmp_path):
    given, fix = fault(tmp_path, photos)
    message = refuse(photos, given, target=tmp_path / "data.zarr")
    assert sum(fix in line for line in message.splitlines()) == 1, message


def test_the_table_has_enough_rows():
    assert len(REFUSED) + len(READ) + len(ANNOTATIONS) + len(PHOTOS) >= 50
