"""Every command's help teaches by examples that run as they are written."""

from __future__ import annotations

import json
import shlex
import shutil

import pytest
import typer

from gpgc_dask.cli import app, main
from gpgc_dask.pipelines.ingest import ingest
from tests.support.images import save_pair
from tests.support.ingesting import QUICK
from tests.support.networks import save_vit
from tests.support.places import save_folders

pytestmark = pytest.mark.newest

COMMANDS = {info.name: info.epilog for info in app.registered_commands}

ORDER = [
    "deploy",
    "autoseg",
    "ingest",
    "update",
    "info",
    "plan",
    "fit",
    "rank",
    "select",
    "export",
    "report",
    "check",
    "verdicts",
    "score",
    "predict",
    "evaluate",
    "compare",
    "certs",
]
"""Examples stand on those before them."""


def examples(command):
    """Its examples, but for what is not there.

    Clusters are in tests/clusters/test_tls.py, annotators and answers in tests/cli/test_people.py.
    """
    lines = COMMANDS[command].splitlines()
    absent = ("//host", "--people", "--best-answer")
    return [
        line for line in lines if line.startswith("gpgc ") and not any(a in line for a in absent)
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which all that the examples name is there."""
    place = tmp_path_factory.mktemp("examples")
    _, masks = save_folders(place)
    save_pair(place, "horse", 99)
    (place / "images/horse.jpg").rename(place / "horse.jpg")
    (place / "masks/horse.png").unlink()
    shutil.copytree(place / "photos", place / "new-photos")
    save_vit(place / "network.onnx")
    for name in ("gp", "gpgc", "true-masks", "corrected-masks", "new-masks", "anna", "ben"):
        shutil.copytree(masks, place / name)
    return place


def call(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command)[1:])
    out, err = capsys.readouterr()
    assert not ended.value.code, f"{command}: {err}"
    return out


def _make_small(place, *names):
    """Datasets of few features: comparisons take dozens of fits."""
    for name in names:
        shutil.rmtree(place / name, ignore_errors=True)
        ingest(place / "photos", place / "masks", place / name, recipe=QUICK)


@pytest.mark.filterwarnings("ignore")
def test_examples_run_as_written(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    ran = [command for name in ORDER for command in examples(name)]
    for command in ran:
        if command == examples("compare")[0]:
            _make_small(place, "horses.zarr", "test.zarr")
        assert call(command, capsys).strip(), command
    assert len(ran) >= 2 * len(ORDER) - 3
    assert len((place / "keep.txt").read_text().splitlines()) == 3
    assert len((place / "ranking.csv").read_text().splitlines()) == 13
    assert {path.name for path in (place / "clean").iterdir()} == {"images", "masks"}
    assert len(list((place / "predicted").glob("*.png"))) == 13
    assert (place / "std/horse.tiff").exists()
    assert (place / "report.html").stat().st_size > 10_000


def test_the_demo_finds_the_corrupted_masks(tmp_path, monkeypatch, capsys):
    """As its help has it, but for 200 images: .ci/run looks at what the README's demo finds."""
    monkeypatch.chdir(tmp_path)
    (command,) = examples("demo")
    out = call(f"{command} --images 36", capsys)
    (folder,) = tmp_path.iterdir()
    found = json.loads((folder / "demo.json").read_text())
    assert found["images"] == 36
    assert found["corrupted"] == 12
    assert found["found"] >= 0.9 * found["corrupted"], found["kinds"]
    assert len(found["kinds"]) == 6
    assert found["learned_accuracy"] > found["given_accuracy"]
    assert f"{found['found']} of the 12 corrupted masks are among the worst third" in out
    assert (folder / "report.html").as_uri() in out.replace("\n", "")


def test_every_command_is_tried():
    """``gpgc review`` runs until it is stopped: see tests/review/test_server.py."""
    assert {*ORDER, "demo", "review"} == {*COMMANDS}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(command, capsys):
    out = call(f"gpgc {command} --help", capsys)
    assert f"gpgc {command}" in out
    assert "Example" in out
    group = typer.main.get_command(app)
    context = typer.Context(group.commands[command])
    for parameter in group.commands[command].params:
        _, told = parameter.get_help_record(context)
        assert len(told.replace("[required]", "").strip()) > 10, parameter.name
