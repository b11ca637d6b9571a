"""Folders as users have them: each is read, with the options that its message suggests."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pytest
from PIL import Image, ImageFilter

from gpgc_dask import MaskOptions
from gpgc_dask.core.errors import GpgcError, InputError
from gpgc_dask.imaging.class_tables import read_classes
from gpgc_dask.imaging.mask_sources import open_source
from gpgc_dask.imaging.masks import VOID
from gpgc_dask.imaging.photos import read_orientation
from gpgc_dask.pipelines.mask_check import check_masks, propose_classes
from tests.support.images import draw

NAMES = ("a", "sub/b", "c c")
HEIGHT, WIDTH = 60, 80
RGB = {0: (0, 0, 0), 1: (128, 64, 128), 2: (220, 20, 60), VOID: (255, 255, 255)}


def two(seed):
    """(height, width) 0 and 1."""
    return draw(seed, HEIGHT, WIDTH)[1].astype(np.uint8)


def three(seed):
    """0, 1, 2 and void: class 0 is the largest and 2 the smallest in every mask."""
    codes = two(seed)
    codes[:6, :30] = 2
    codes[-3:] = VOID
    return codes


def even(codes):
    """A mask that looks the same at half and at full size."""
    return np.repeat(np.repeat(codes[::2, ::2], 2, 0), 2, 1)


def to_rgb(codes, table=None):
    table = RGB if table is None else table
    picture = np.zeros((*codes.shape, 3), dtype=np.uint8)
    for code, colour in table.items():
        picture[codes == code] = colour
    return picture


def to_palette(codes, colours):
    image = Image.fromarray(codes)
    flat = np.zeros((256, 3), dtype=np.uint8)
    for value, colour in colours.items():
        flat[value] = colour
    image.putpalette(flat.ravel().tolist())
    return image


def save(make, ending=".png", **options):
    """Writes one file per photo, named as the photo."""

    def write(folder, name, codes):
        picture = make(codes)
        image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
        path = folder / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, **options)

    return write


def save_layers(pattern, pictures):
    """Writes several files per photo: {layer: picture of the codes}."""

    def write(folder, name, codes):
        for layer, make in pictures.items():
            path = folder / f"{pattern.format(name=name, layer=layer)}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(make(codes)).save(path)

    return write


def smooth(picture):
    return Image.fromarray(picture).filter(ImageFilter.BoxBlur(0.3))


def part(code):
    return lambda codes: (codes == code) * np.uint8(255)


def left(codes):
    return part(1)(codes) * (np.arange(WIDTH) < 40).astype(np.uint8)


def right(codes):
    return part(1)(codes) * (np.arange(WIDTH) >= 40).astype(np.uint8)


CAMVID = "0 0 0\tGround\n128 64 128\tRoad\n220 20 60\tPerson\n255 255 255\tVoid\n"
CSV = "r,g,b,name\n0,0,0,ground\n128,64,128,road\n220,20,60,person\n255,255,255,void\n"
OTHER_ORDER = "name;blue;green;red\nground;0;0;0\nroad;128;64;128\nperson;60;20;220\n"
OTHER_ORDER += "void;255;255;255\n"
CVAT = "# label:color_rgb:parts:actions\nground:0,0,0::\nroad:128,64,128::\nperson:220,20,60::\n"
VALUES = "0,ground\n1,road\n2,person\n255,void\n"
IDX = "Idx\tRatio\tTrain\tVal\tStuff\tName\n1\t0.2\t9\t9\t0\twall\n2\t.1\t9\t9\t1\tflat floor\n"
IDX += "3\t0.2\t9\t9\t0\tsky\n"
VOC = {code: read_classes("voc").colours[value][:3] for code, value in {0: 0, 1: 13, 2: 15}.items()}
VOC[VOID] = (224, 224, 192)
CITY = {0: (128, 64, 128), 1: (0, 0, 142), 2: (220, 20, 60), VOID: (0, 0, 0)}


def values(*mapping):
    """Values of the codes 0, 1, 2 and void."""
    table = np.zeros(256, dtype=np.uint16)
    table[[0, 1, 2, VOID]] = mapping
    return lambda codes: table[codes].astype(np.uint8)


# name: (codes of a mask, how its files are written, options)
READ = {
    "0 and 255": (two, save(lambda c: c * 255), {}),
    "0 and 1, 16 bit": (two, save(lambda c: c.astype(np.uint16)), {}),
    "0 and 65535": (two, save(lambda c: c.astype(np.uint16) * 65535), {}),
    "JPEG": (two, save(lambda c: c * 255, ".jpg", quality=90), {}),
    "JPEG in colour": (two, save(lambda c: np.dstack([c * 255] * 3), ".jpg", quality=90), {}),
    "half size": (lambda s: even(two(s)), save(lambda c: c[::2, ::2] * 255), {}),
    "double size": (two, save(lambda c: np.kron(c * 255, np.ones((2, 2), np.uint8))), {}),
    "inverted": (two, save(lambda c: (1 - c) * 255), {"invert": True}),
    "inverted foreground": (
        two,
        save(lambda c: np.where(c, 4, 7).astype(np.uint8)),
        {"foreground": [7], "invert": True},
    ),
    "suffix": (two, save(lambda c: c * 255, "_mask.png"), {"suffix": "_mask"}),
    "colours, CSV": (three, save(to_rgb), {"classes": CSV}),
    "colours, other order": (three, save(to_rgb), {"classes": OTHER_ORDER}),
    "colours, CamVid": (three, save(to_rgb), {"classes": CAMVID}),
    "colours, CVAT": (two, save(lambda c: to_rgb(c)), {"classes": CVAT}),
    "colours with alpha": (
        three,
        save(lambda c: Image.fromarray(to_rgb(c)).convert("RGBA")),
        {"classes": CSV},
    ),
    "colours in a palette": (
        three,
        save(lambda c: Image.fromarray(to_rgb(c)).quantize(8)),
        {"classes": CSV},
    ),
    "colours at half size": (
        lambda s: even(three(s)),
        save(lambda c: to_rgb(c[::2, ::2])),
        {"classes": CSV},
    ),
    "VOC palette": (
        three,
        save(lambda c: to_palette(values(0, 13, 15, 255)(c), {0: (0, 0, 0), 13: (64, 0, 128)})),
        {"classes": "voc"},
    ),
    "VOC colours": (three, save(lambda c: to_rgb(c, VOC)), {"classes": "voc"}),
    "Cityscapes labelIds": (
        three,
        save(values(7, 26, 24, 3), "_gtFine_labelIds.png"),
        {"classes": "cityscapes", "suffix": "_gtFine_labelIds"},
    ),
    "Cityscapes trainIds": (
        three,
        save(values(0, 13, 11, 255)),
        {"classes": "cityscapes-trainids"},
    ),
    "Cityscapes colours": (three, save(lambda c: to_rgb(c, CITY)), {"classes": "cityscapes"}),
    "ADE20K": (three, save(values(1, 2, 3, 0)), {"classes": IDX}),
    "values, CSV": (three, save(values(0, 1, 2, 255)), {"classes": VALUES}),
    "values, 16 bit": (
        three,
        save(lambda c: np.where(c == VOID, 9000, 1000 * c.astype(np.uint16)).astype(np.uint16)),
        {"classes": {0: "ground", 1000: "road", 2000: "person"}, "void": [9000]},
    ),
    "classes, JPEG": (
        three,
        save(values(0, 80, 160, 255), ".jpg", quality=100),
        {"classes": {0: "ground", 80: "road", 160: "person"}, "void": [255]},
    ),
    "layers of classes": (
        three,
        save_layers("{name}_{layer}", {"car": part(1), "person": part(2), "void": part(VOID)}),
        {"format": "layers"},
    ),
    "layers in folders": (
        three,
        save_layers("{name}/{layer}", {"car": part(1), "person_2": part(2), "void": part(VOID)}),
        {"format": "layers"},
    ),
    "layers by class": (
        three,
        save_layers("{layer}/{name}", {"car": part(1), "person": part(2), "ignore": part(VOID)}),
        {"format": "layers"},
    ),
    "layers of objects": (
        two,
        save_layers("{name}_{layer}", {"0": left, "1": right}),
        {"format": "layers"},
    ),
    "layers, small in front": (
        three,
        save_layers(
            "{name}_{layer}",
            {"car": lambda c: (c != 0) * np.uint8(255), "person": part(2), "void": part(VOID)},
        ),
        {"format": "layers"},
    ),
    "layers, classes chosen": (
        three,
        save_layers("{name}-{layer}", {"man": part(2), "car": part(1), "void": part(VOID)}),
        {"format": "layers", "classes": {0: "ground", 5: "car", 6: "man"}},
    ),
}
CODES = {  # codes of the classes 0, 1 and 2, where the table of classes has more
    "VOC palette": (0, 13, 15),
    "VOC colours": (0, 13, 15),
    "Cityscapes labelIds": (0, 13, 11),
    "Cityscapes trainIds": (0, 13, 11),
    "Cityscapes colours": (0, 13, 11),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos"))


def write_photos(folder):
    for seed, name in enumerate(NAMES):
        path = folder / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(draw(seed, HEIGHT, WIDTH)[0]).save(path)
    return folder


def write_masks(folder, codes, write):
    for seed, name in enumerate(NAMES):
        write(folder, name, codes(seed))
    return folder


def with_files(options, folder):
    """The options, with classes in a file where they are the text of one."""
    text = options.get("classes", "")
    if isinstance(text, str) and "\n" in text:
        (folder / "classes.txt").write_text(text)
        options = options | {"classes": str(folder / "classes.txt")}
    return MaskOptions(**options)


def read_all(photos, masks, options):
    source = open_source(photos, masks, options)
    assert (len(source.items), source.problems) == (len(NAMES), [])
    check_masks(source, "raise")
    read = {
        item.pair.name[:-4]: item.mask.read(read_orientation(item.pair.image))
        for item in source.items
    }
    return source, [read[name] for name in NAMES]


@pytest.mark.parametrize("layout", READ)
def test_layouts(photos, tmp_path, layout):
    """The same as from plain PNGs; and again with what the dataset stores of the options."""
    codes, write, options = READ[layout]
    masks = write_masks(tmp_path / "masks", codes, write)
    source, read = read_all(photos, masks, with_files(options, tmp_path))
    table = np.arange(256)
    table[:3] = CODES.get(layout, (0, 1, 2))
    expected = [table[codes(seed)] for seed in range(len(NAMES))]
    np.testing.assert_array_equal(read, expected)
    stored = source.provenance()
    again = read_all(photos, masks, type(source).restore_options(stored))[1]
    np.testing.assert_array_equal(again, expected)
    ordered = sorted(source.items, key=lambda item: NAMES.index(item.pair.name[:-4]))
    names = [item.pair.name for item in ordered]
    restored = type(source).restore(stored, names, [item.pair.mask for item in ordered])
    orientations = [read_orientation(item.pair.image) for item in ordered]
    np.testing.assert_array_equal(
        [mask.read(own) for mask, own in zip(restored, orientations, strict=True)], expected
    )
    paths = [item.pair.mask for item in ordered]
    selected = type(source).select(stored, names, paths)
    assert all(path.is_file() for path in selected.values())


# name: (codes, how files are written, what the message suggests)
SUGGESTED = {
    "object and void": (
        lambda s: np.where(three(s) == 2, 0, three(s)),
        save(values(0, 13, 0, 255)),
        "--foreground 13 --void 255",
    ),
    "no zero": (two, save(values(1, 2, 0, 0)), "--classes 1=background,2=foreground"),
    "three classes": (
        three,
        save(values(0, 1, 2, 255)),
        "--classes 0=background,1=class1,2=class2 --void 255",
    ),
    "smooth edges": (two, save(lambda c: smooth(c * 255)), "--threshold 0.5"),
    "fractions": (two, save(lambda c: np.float32(0.2 + 0.6 * c), ".tif"), "--threshold 0.5"),
    "shades in a JPEG": (
        two,
        save(lambda c: (60 + 110 * c).astype(np.uint8), ".jpg"),
        "--threshold 0.5",
    ),
    "colours": (three, save(to_rgb), "--write-classes classes.csv"),
    "VOC": (three, save(lambda c: to_rgb(c, VOC)), "--classes voc"),
    "Cityscapes": (three, save(lambda c: to_rgb(c, CITY)), "--classes cityscapes"),
    "a suffix": (two, save(lambda c: c * 255, "_mask.png"), "--mask-suffix _mask"),
    "layers": (
        three,
        save_layers("{name}_{layer}", {"car": part(1), "person": part(2), "void": part(VOID)}),
        "--format layers",
    ),
    "layers in folders": (
        three,
        save_layers("{name}/{layer}", {"car": part(1), "person": part(2), "void": part(VOID)}),
        "--format layers",
    ),
}


def parse(text, photos, masks, folder):
    """The options of a command line; what --write-classes writes is taken as it is."""
    words = shlex.split(text)
    given = dict(zip(words[::2], words[1::2], strict=True))
    if "--write-classes" in given:
        file = folder / given["--write-classes"]
        content, _ = propose_classes(photos, masks, MaskOptions())
        file.write_text(content.replace("colour_ffffff", "void"))
        return MaskOptions(classes=str(file))
    return MaskOptions(
        format=given.get("--format", "masks"),
        suffix=given.get("--mask-suffix", ""),
        foreground=[int(given["--foreground"])] if "--foreground" in given else (),
        classes=given.get("--classes", ""),
        void=[int(given["--void"])] if "--void" in given else (),
        threshold=float(given["--threshold"]) if "--threshold" in given else None,
    )


@pytest.mark.parametrize("layout", SUGGESTED)
def test_the_suggested_options_read_the_masks(photos, tmp_path, layout):
    codes, write, suggestion = SUGGESTED[layout]
    masks = write_masks(tmp_path / "masks", codes, write)
    with pytest.raises(GpgcError) as raised:
        check_masks(open_source(photos, masks, MaskOptions()), "raise")
    assert suggestion in str(raised.value)
    _, read = read_all(photos, masks, parse(suggestion, photos, masks, tmp_path))
    table = np.arange(256)
    table[:3] = {"VOC": (0, 13, 15), "Cityscapes": (0, 13, 11)}.get(layout, (0, 1, 2))
    np.testing.assert_array_equal(read, [table[codes(seed)] for seed in range(len(NAMES))])


def test_photos_and_masks_with_suffixes(tmp_path):
    for kind, ending, picture in (("x", "_leftImg8bit", draw(0)[0]), ("y", "_gt", two(0) * 255)):
        (tmp_path / kind).mkdir()
        Image.fromarray(picture).save(tmp_path / kind / f"town_1{ending}.png")
    Image.fromarray(two(0)).save(tmp_path / "y/town_1_color.png")
    with pytest.raises(InputError, match="--photo-suffix _leftImg8bit --mask-suffix _gt") as raised:
        open_source(tmp_path / "x", tmp_path / "y")
    assert "--mask-suffix _color" in str(raised.value)
    options = MaskOptions(suffix="_gt", photo_suffix="_leftImg8bit")
    source = open_source(tmp_path / "x", tmp_path / "y", options)
    assert (len(source.items), source.problems) == (1, [])


def test_several_answers_and_layers_are_distinguished(photos, tmp_path):
    masks = write_masks(tmp_path / "m", two, save_layers("{name}/{layer}", {"anna": part(1)}))
    with pytest.raises(InputError, match=r"--format layers if .* --format answers if"):
        open_source(photos, masks)


@pytest.mark.parametrize("ending", [".png", ".jpg"])
def test_smoothed_and_compressed_colours(photos, tmp_path, ending, caplog):
    """All but the edges are what they were; edges are a class next to them, or void."""
    masks = write_masks(
        tmp_path / "m", three, save(lambda c: smooth(to_rgb(c)), ending, quality=95)
    )
    options = with_files({"classes": CSV}, tmp_path)
    _, read = read_all(photos, masks, options)
    for seed, own in enumerate(read):
        agreement = np.mean(own == three(seed))
        assert agreement > 0.9, agreement
    assert re.search(r"\d% of the pixels of 3 masks have colours .* become void", caplog.text)


def test_colours_that_are_not_listed(photos, tmp_path):
    masks = write_masks(tmp_path / "m", three, save(to_rgb))
    options = with_files({"classes": CSV.replace("128,64,128", "0,0,255")}, tmp_path)
    with pytest.raises(GpgcError, match=r"128,64,128 \(\d+\.\d%\): add them to the file"):
        check_masks(open_source(photos, masks, options), "raise")


def test_problems_are_listed_once_with_what_was_found(photos, tmp_path):
    masks = write_masks(tmp_path / "m", three, save(to_rgb))
    with pytest.raises(GpgcError) as raised:
        check_masks(open_source(photos, masks), "raise")
    first, found, use, _ = str(raised.value).splitlines()
    assert first.startswith("a.jpg, c c.jpg, sub/b.jpg: mask is a colour picture")
    assert re.search(r"3 masks \(3 PNG colour\); in 3 of them colours \(0,0,0\) \d+%,", found)
    assert re.search(r"\(220,20,60\) \d+%", found)
    assert use.startswith("Use: --write-classes classes.csv")
    assert len(raised.value.problems) == 3


def test_conversions_are_reported(photos, tmp_path, caplog):
    masks = write_masks(tmp_path / "m", two, save(lambda c: c[::2, ::2] * 255, ".jpg", quality=95))
    survey = check_masks(open_source(photos, masks), "raise")
    assert "at another size: 3 enlarged by 2" in survey.describe()
    assert re.search(r"3 masks are not of the size .* by nearest pixels: 3 by 2", caplog.text)
    assert "3 masks are JPEGs" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "other columns"),
        ("1,2,x\n", "2 numbers and 1 names"),
        ("value,name\n0,a\n0,b\n", "0 is named twice"),
        ("r,g,b,name\n0,0,300,a\n", "not of numbers 0 to 255"),
        ("value,name\n0,a\nx,b\n", "is not as the first"),
        ("value,name\n0,a\n1,\n", "has no name"),
    ],
)
def test_files_of_classes_that_cannot_be_read(tmp_path, text, message):
    (tmp_path / "classes.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_classes(str(tmp_path / "classes.csv"))


@pytest.mark.parametrize("text", ["nothing.csv", "voc2012"])
def test_classes_that_are_nowhere(text):
    with pytest.raises(GpgcError, match=f"no file {text}.* or cityscapes"):
        read_classes(text)
