"""Masks that go to Label Studio, are corrected with its own library, and come back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpgc_dask.results.verdicts import list_verdicts
from tests.support import tool_files
from tests.support.exporting import decode_brush
from tests.support.round_trip import (
    EXPORTED,
    WRONG,
    call,
    copy_start,
    import_and_fit,
    make_start,
)
from tests.support.verdict_files import write_json

pytestmark = pytest.mark.newest

FILES = Path(tool_files.__file__).parent / "label_studio"
CHOICE = {"type": "choices", "from_name": "verdict", "to_name": "image"}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return make_start(tmp_path_factory.mktemp("round-trip-label-studio"))


def export_tasks(folder, run):
    call(
        run, "export", folder / "model.zarr", "--to", "label-studio",
        "-o", folder / "tasks.json", "--worst", EXPORTED,
    )  # fmt: skip
    return folder / "tasks.json"


def image_of(task):
    return Path(task["data"]["image"]).name


def test_masks_corrected_by_the_encoder_of_label_studio(start, tmp_path, run):
    folder = copy_start(start, tmp_path)
    exported = json.loads(export_tasks(folder, run).read_text())
    tasks = json.loads((FILES / "export.json").read_text())
    given = {image_of(task): task["predictions"][-1]["result"] for task in exported}
    assert {*WRONG} <= {*given}
    unchanged = [image_of(task) for task in tasks if image_of(task) not in WRONG]
    for task in tasks:
        its = task["annotations"][0]["result"]
        for pair in zip(given.get(image_of(task), []), its, strict=False):
            one, other = (decode_brush(region["value"]["rle"]) for region in pair)
            assert np.array_equal(one, other) == (image_of(task) in unchanged)
    rejected = unchanged[-1]
    for task in tasks:
        if image_of(task) == rejected:
            choice = CHOICE | {"value": {"choices": ["rejected"]}}
            task["annotations"][0]["result"].append(choice)
    file = write_json(folder / "export.json", tasks)
    ranking = import_and_fit(start, folder, file, run)
    assert {*list_verdicts(folder / "data.zarr")["by"]} == {"anna@example.org"}
    assert ranking.index[0] == rejected
    assert ranking.loc[rejected, ["quality", "flags"]].tolist() == [0, "rejected"]
    assert (ranking.loc[unchanged[:-1], "flags"] == "confirmed").all()


def test_masks_corrected_with_label_studio_sdk(start, tmp_path, run):
    pytest.importorskip("label_studio_sdk")
    from tests.support.tool_files.label_studio_files import correct_in_label_studio

    folder = copy_start(start, tmp_path)
    tasks = export_tasks(folder, run)
    correct_in_label_studio(tasks, folder / "tasks.config.xml", folder / "out")
    import_and_fit(start, folder, folder / "out/export.json", run)
