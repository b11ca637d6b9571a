"""Masks that go to CVAT, are corrected with its own libraries, and come back."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Xml

import numpy as np
import pytest
from cvat_sdk.masks import decode_mask, encode_mask
from PIL import Image

from tests.support import tool_files
from tests.support.round_trip import (
    EXPORTED,
    call,
    copy_start,
    import_and_fit,
    make_start,
)
from tests.support.verdict_files import SHIFTED, name, true_mask

pytestmark = pytest.mark.newest

DATUMARO = Path(tool_files.__file__).parent / "datumaro"
TRUE = {name(number): true_mask(number) for number in SHIFTED}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return make_start(tmp_path_factory.mktemp("round-trip-cvat"))


def points_of(shape):
    """The points of a mask as the API of CVAT has them: runs, and the corners of the box."""
    left, top, width, height = (int(shape.get(key)) for key in ("left", "top", "width", "height"))
    runs = [int(number) for number in shape.get("rle").split(",")]
    return [*runs, left, top, left + width - 1, top + height - 1]


def as_dumped(label, points):
    """A mask as CVAT's server writes it to "CVAT for images 1.1"."""
    *runs, left, top, right, bottom = map(int, points)
    return Xml.Element(
        "mask",
        label=label,
        source="manual",
        occluded="0",
        rle=str(runs)[1:-1],
        left=str(left),
        top=str(top),
        width=str(right - left + 1),
        height=str(bottom - top + 1),
        z_order="0",
    )


def correct(source, masks):
    """Decode each mask with the SDK, check it, and put the true ones in the place of wrong ones."""
    tree = Xml.parse(source)
    Xml.SubElement(tree.find("meta"), "dumped").text = "2026-11-18 10:00:00.000000+00:00"
    for image in tree.findall("image"):
        own = image.get("name")
        size = {f"image_{key}": int(image.get(key)) for key in ("width", "height")}
        (shape,) = image.findall("mask")
        given = np.asarray(Image.open((masks / own).with_suffix(".png"))) > 0
        np.testing.assert_array_equal(decode_mask(points_of(shape), **size), given)
        if own in TRUE:
            image.remove(shape)
            image.insert(0, as_dumped(shape.get("label"), encode_mask(TRUE[own])))
    return tree


def test_masks_corrected_with_cvat_sdk(start, tmp_path, run):
    folder = copy_start(start, tmp_path)
    exported, edited = folder / "worst.xml", folder / "annotations.xml"
    call(run, "export", folder / "model.zarr", "--to", "cvat", "-o", exported, "--worst", EXPORTED)
    tree = correct(exported, start.folder / "masks")
    images = {image.get("name"): image for image in tree.findall("image")}
    assert [*images] == list(start.ranking.index[:EXPORTED])
    *_, confirmed, rejected = images
    for own, label in ((confirmed, "confirmed"), (rejected, "rejected")):
        Xml.SubElement(images[own], "tag", label=label, source="manual")
    tree.write(edited)
    ranking = import_and_fit(start, folder, edited, run, "--by", "anna")
    assert ranking.loc[confirmed, ["quality", "flags"]].tolist() == [1, "confirmed"]
    assert ranking.index[0] == rejected
    assert ranking.loc[rejected, ["quality", "flags"]].tolist() == [0, "rejected"]


def test_masks_that_datumaro_has_written(start, tmp_path, run):
    """The other formats that it has written are in test_verdict_tools.py."""
    file = DATUMARO / "cvat/annotations.xml"
    import_and_fit(start, copy_start(start, tmp_path), file, run)


def test_masks_corrected_with_datumaro(start, tmp_path, run):
    pytest.importorskip("datumaro")
    from tests.support.tool_files.datumaro_files import correct_in_cvat

    folder = copy_start(start, tmp_path)
    exported = folder / "cvat/annotations.xml"
    exported.parent.mkdir()
    call(run, "export", folder / "model.zarr", "--to", "cvat", "-o", exported, "--worst", EXPORTED)
    (folder / "cvat/images").symlink_to(start.folder / "images")
    correct_in_cvat(folder / "cvat", folder / "out")
    import_and_fit(start, folder, folder / "out/cvat/annotations.xml", run)
