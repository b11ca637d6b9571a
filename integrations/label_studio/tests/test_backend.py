"""The backend as a program, and what it answers, read by Label Studio's own library."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

from gpgc_dask import Recipe, ingest, open_dataset, train
from gpgc_dask.results.export.runs import brush_bytes
from gpgc_dask.results.verdicts import list_verdicts

sdk = pytest.importorskip("label_studio_sdk")
from label_studio_sdk.converter.brush import decode_rle  # noqa: E402
from label_studio_sdk.label_interface import LabelInterface  # noqa: E402
from label_studio_sdk.label_interface.objects import PredictionValue  # noqa: E402

PACKAGE = Path(__file__).parents[1]
IMAGES, WRONG = 40, 5

BRUSH = """<View><Image name="image" value="$image"/>
<BrushLabels name="mask" toName="image"><Label value="foreground"/></BrushLabels></View>"""
POLYGON = """<View><Image name="picture" value="$photo"/>
<PolygonLabels name="outline" toName="picture"><Label value="horse"/></PolygonLabels></View>"""


def draw(rng, size=(64, 96)):
    height, width = size
    y, x = np.mgrid[:height, :width]
    cy, cx = rng.uniform(0.4, 0.6, 2) * size
    inside = (y - cy) ** 2 + (x - cx) ** 2 < rng.uniform(14, 20) ** 2
    photo = np.where(inside[..., None], (210, 160, 60), (30, 70, 120))
    photo = photo + rng.normal(0, 12, (*size, 3))
    return photo.clip(0, 255).astype(np.uint8), inside


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """photos/ with masks of which the first are wrong, new/ photos, and a model."""
    rng, place = np.random.default_rng(0), tmp_path_factory.mktemp("label-studio")
    for name in ("photos", "masks", "new"):
        (place / name).mkdir()
    for number in range(IMAGES):
        photo, inside = draw(rng)
        Image.fromarray(photo).save(place / "photos" / f"{number:02}.png")
        mask = 255 * (inside ^ (number < WRONG)).astype(np.uint8)
        Image.fromarray(mask).save(place / "masks" / f"{number:02}.png")
    for number in range(3):
        photo, inside = draw(rng)
        Image.fromarray(photo).save(place / "new" / f"{number}.png")
        np.save(place / "new" / f"{number}.npy", inside)
    ingest(place / "photos", place / "masks", place / "d.zarr", recipe=Recipe(backbone="colour"))
    train(place / "d.zarr", place / "m.zarr")
    return place


@pytest.fixture
def serve():
    """Start the program; its address."""
    running = []

    def start(*arguments):
        command = [sys.executable, "-m", "gpgc_label_studio.server", *map(str, arguments)]
        process = subprocess.Popen(
            [*command, "--port", "0"], cwd=PACKAGE, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        return process.stdout.readline().strip()

    yield start
    for process in running:
        process.terminate()
        process.wait(10)


def ask(url, content=None, kind="application/json"):
    body = None if content is None else json.dumps(content).encode()
    try:
        with urlopen(Request(url, body, {"Content-Type": kind}), timeout=60) as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        text = error.read()
        return error.code, json.loads(text) if text.startswith(b"{") else text.decode()


def local(path, key="image"):
    return {"data": {key: f"/data/local-files/?d={path}"}}


def annotated(name, mask, config_name="mask"):
    """A task with an annotation, as Label Studio has it."""
    height, width = mask.shape
    value = {"format": "rle", "rle": brush_bytes(mask), "brushlabels": ["foreground"]}
    result = {
        "id": "x", "from_name": config_name, "to_name": "image", "type": "brushlabels",
        "original_width": width, "original_height": height, "image_rotation": 0, "value": value,
    }  # fmt: skip
    note = {"id": 7, "result": [result], "was_cancelled": False, "updated_at": "2026-01-01T00:00Z"}
    return {"id": 1, **local(name), "annotations": [note]}


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


def test_brushes(place, serve):
    url = serve(place / "m.zarr", "--document-root", place)
    assert ask(url + "/health") == (200, {"status": "UP", "model_class": "GPGC"})
    status, setup = ask(url + "/setup", {"project": "1.2", "schema": BRUSH})
    tasks = [local(f"new/{number}.png") for number in range(3)]
    status, answer = ask(url + "/predict", {"tasks": tasks, "label_config": BRUSH})
    assert status == 200
    interface = LabelInterface(BRUSH)
    for number, prediction in enumerate(answer["results"]):
        assert prediction["model_version"] == setup["model_version"]
        assert 0.5 < prediction["score"] <= 1
        assert not interface.validate_prediction(prediction, return_errors=True)
        PredictionValue(**prediction)
        (region,) = prediction["result"]
        shape = region["original_height"], region["original_width"]
        mask = decode_rle(region["value"]["rle"]).reshape(*shape, 4)[..., 3] > 0
        assert iou(mask, np.load(place / "new" / f"{number}.npy")) > 0.8


def test_polygons_with_another_name(place, serve):
    url = serve(place / "m.zarr", "--document-root", place)
    _, answer = ask(url + "/predict", {"tasks": [local("new/0.png", "photo")],
                                       "label_config": POLYGON})  # fmt: skip
    (prediction,) = answer["results"]
    assert not LabelInterface(POLYGON).validate_prediction(prediction, return_errors=True)
    region = prediction["result"][0]
    assert region["value"]["polygonlabels"] == ["horse"]
    points = np.array(region["value"]["points"])
    assert points.min() >= 0
    assert points.max() <= 100
    inside = np.load(place / "new" / "0.npy")
    y, x = np.nonzero(inside)
    centre = 100 * np.array([x.mean() / 96, y.mean() / 64])
    assert np.abs(points.mean(0) - centre).max() < 8


def test_the_score_is_that_of_the_annotation(place, serve):
    url = serve(place / "m.zarr", "--document-root", place)
    right = np.load(place / "new" / "0.npy")
    tasks = [annotated("new/0.png", right), annotated("new/0.png", ~right), local("new/0.png")]
    _, answer = ask(url + "/predict", {"tasks": tasks, "label_config": BRUSH})
    good, bad, none = (prediction["score"] for prediction in answer["results"])
    assert bad < 0.3 < 0.7 < good
    assert none > 0.7


def test_what_cannot_be_used(place, serve, tmp_path):
    outside = tmp_path / "secret.png"
    shutil.copy(place / "new" / "0.png", outside)
    url = serve(place / "m.zarr", "--document-root", place / "new")
    for bad in (f"../../{tmp_path.name}/secret.png", str(outside), "none.png"):
        status, answer = ask(url + "/predict", {"tasks": [local(bad)], "label_config": BRUSH})
        assert status == 400
        assert "no photo can be used" in answer["error"]
    file = {"data": {"image": f"file://{outside}"}}
    assert ask(url + "/predict", {"tasks": [file], "label_config": BRUSH})[0] == 400
    tasks = [local("none.png"), local("0.png")]
    status, answer = ask(url + "/predict", {"tasks": tasks, "label_config": BRUSH})
    assert (status, answer["results"][0]) == (200, [])
    assert answer["results"][1]["result"]
    for config, message in (
        ("<View/>", "no BrushLabels"),
        ("<View", "is no XML"),
        (BRUSH.replace("/></Brush", '/><Label value="b"/></Brush').replace("foreground", "a"), "a"),
    ):
        status, answer = ask(url + "/predict", {"tasks": tasks, "label_config": config})
        assert status == 400
        assert message in answer["error"]
    assert ask(url + "/predict", {"tasks": tasks}, "text/plain")[0] == 415
    assert ask(url + "/predict", [1])[0] == 400


def test_annotations_are_verdicts_and_the_model_learns_from_them(place, serve, tmp_path):
    data = shutil.copytree(place / "d.zarr", tmp_path / "d.zarr")
    options = ("--dataset", data, "--refit-to", tmp_path / "next.zarr", "--document-root", place)
    url = serve(place / "m.zarr", *options)
    given = np.asarray(Image.open(place / "masks" / "00.png")) > 0
    task = annotated("photos/00.png", ~given)
    (note,) = task.pop("annotations")
    event = {"action": "ANNOTATION_CREATED", "task": task, "annotation": note}
    assert ask(url + "/webhook", event) == (200, {"result": "0 confirmed, 1 corrected"})
    (row,) = list_verdicts(data).to_dict("records")
    assert row["image"] == "00.png"
    skipped = event | {"annotation": note | {"was_cancelled": True}}
    assert ask(url + "/webhook", skipped)[1]["result"] == "ignored: the task was skipped"
    _, before = ask(url + "/versions")
    assert ask(url + "/webhook", {"action": "START_TRAINING"})[0] == 201
    deadline = time.monotonic() + 120
    while (after := ask(url + "/versions")[1]) == before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert after != before
    assert (tmp_path / "next.zarr").exists()
    corrected = open_dataset(data)
    assert corrected is not None
    other = serve(place / "m.zarr")
    status, answer = ask(other + "/webhook", {"action": "START_TRAINING"})
    assert (status, "--refit-to" in answer["error"]) == (400, True)


def test_wrong_models(place, tmp_path):
    command = [sys.executable, "-m", "gpgc_label_studio.server"]
    for words in ([tmp_path / "none.zarr"], [place / "m.zarr", "--refit-to", tmp_path / "x.zarr"]):
        done = subprocess.run(
            [*command, *map(str, words)], cwd=PACKAGE, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith("gpgc-label-studio: ")
