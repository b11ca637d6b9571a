"""The program, as it is called."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from gpgc_dask import __version__, open_dataset
from gpgc_dask.cli import main
from gpgc_dask.pipelines.ingest import Recipe, ingest
from gpgc_dask.storage.integrity import read_attributes
from tests.support.images import save_pair, save_pairs
from tests.support.interrupts import interrupt_after

pytestmark = pytest.mark.newest

QUICK = ["--backbone", "colour", "--superpixels", "20"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return save_pairs(tmp_path_factory.mktemp("photos"), 12)


def test_ingest_and_info(run, folders, tmp_path):
    target = tmp_path / "data.zarr"
    code, out, err = run("ingest", *folders, "-o", target, *QUICK, "--workers", 1)
    assert code == 0, err
    assert "12 images" in out
    assert "31 features" in out
    assert "images 12/12" in err
    assert "/s" in err
    code, out, _ = run("info", target)
    assert code == 0
    for text in ("14 appearance, 16 position, 1 constant", "background", "foreground", "colour"):
        assert text in out
    code, out, _ = run("info", target, "--json")
    assert json.loads(out)["images"] == 12


def test_ingest_prints_json(run, folders, tmp_path):
    save_pair(tmp_path, "good", 1)
    save_pair(tmp_path, "[red]bad[/red]", 2)
    (tmp_path / "images/[red]bad[/red].jpg").write_bytes(b"")
    given = [tmp_path / "images", tmp_path / "masks", "-o", tmp_path / "data.zarr", *QUICK]
    code, out, err = run("ingest", *given, "--workers", 1)
    assert (code, out) == (2, "")
    assert "[red]bad[/red].jpg: the file is empty" in err
    assert "--on-error skip" in err
    assert "Traceback" not in err
    assert not (tmp_path / "data.zarr").exists()
    code, out, _ = run("ingest", *given, "--workers", 1, "--on-error", "skip", "--json")
    assert code == 0
    report = json.loads(out)
    assert report["images"] == 1
    assert report["skipped"] == [{"name": "[red]bad[/red].jpg", "reason": "the file is empty"}]
    code, out, _ = run("info", tmp_path / "data.zarr")
    assert "1 files skipped" in out
    assert "[red]bad[/red].jpg" in out


def test_masks_are_read_with_the_given_options(run, folders, tmp_path):
    target = tmp_path / "data.zarr"
    given = [*folders, "-o", target, *QUICK, "--workers", 1, "--classes", "0=grass,255=disc"]
    assert run("ingest", *given)[0] == 0
    assert open_dataset(target).attrs["classes"] == ["grass", "disc"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ingest", "a", "b"], "--out"),
        (["ingest", "a", "b", "-o", "c", "--void", "x"], "whole numbers"),
        (["ingest", "a", "b", "-o", "c", "--classes", "0=a,0=b"], "named twice"),
        (["ingest", "a", "b", "-o", "c", "--mean", "1,2"], "three numbers"),
        (["ingest", "a", "b", "-o", "c", "--on-error", "cry"], "cry"),
        (["ingest", "a", "b", "-o", "c", "--workers", "0"], "--workers"),
        (["ingest", "/nowhere", "b", "-o", "c"], "gpgc: /nowhere is not a folder"),
        (["ingest", "a", "-o", "c"], "name the masks: a folder, a file with its --format"),
        (["ingest", "a", "b", "-o", "c", "--resume", "--overwrite"], "exclude each other"),
        (["info", "/nowhere"], "make a dataset with gpgc ingest"),
        (["fly"], "fly"),
    ],
)
def test_wrong_calls(run, arguments, message):
    code, out, err = run(*arguments)
    assert code == 2
    assert message in " ".join(err.split())
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--backbone", "vgg", "backbone must be one of lite0, colour, FILE.onnx"),
        ("--layer", "x", "lite0 has no options layers"),
        ("--format", "x", "choose one of masks, answers, layers, coco"),
    ],
)
def test_wrong_options_of_an_ingest(run, folders, tmp_path, option, value, message):
    code, out, err = run("ingest", *folders, "-o", tmp_path / "c", option, value)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "c").exists()


def test_version(run):
    assert run("--version") == (0, f"gpgc_dask {__version__}\n", "")


LOOK = """
import sys
from gpgc_dask.cli import main
try:
    main(sys.argv[1:])
finally:
    print(sorted({"dask", "numpy", "pandas", "sklearn", "zarr"} & {*sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize("called", [["--help"], ["fit", "--help"], ["fit"], ["plan"]])
def test_help_and_wrong_calls_do_not_wait_for_the_library(called):
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *called], capture_output=True, text=True, check=False
    )
    assert done.returncode == (0 if "--help" in called else 2), done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_debug_shows_where(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["info", str(tmp_path / "nothing.zarr"), "--debug"])


def test_an_existing_dataset_is_rejected(run, folders, tmp_path):
    target = tmp_path / "data.zarr"
    ingest(*folders, target, recipe=Recipe(backbone="colour", superpixels=20))
    code, _, err = run("ingest", *folders, "-o", target, *QUICK)
    assert code == 2
    assert "--overwrite" in err
    code, out, _ = run("ingest", *folders, "-o", target, *QUICK, "--resume")
    assert code == 0
    assert "12 of them by an earlier run" in out


def test_no_scheduler_there(run, folders, tmp_path, monkeypatch):
    monkeypatch.setattr("gpgc_dask.clusters.remote.CONNECT_SECONDS", 1)
    given = [*folders, "-o", tmp_path / "data.zarr", *QUICK, "--scheduler", "tcp://127.0.0.1:9"]
    code, _, err = run("ingest", *given)
    assert code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in err
    assert not (tmp_path / "data.zarr").exists()


def test_a_running_scheduler(client, run, folders, tmp_path):
    address = client.scheduler.address
    given = [*folders, "-o", tmp_path / "data.zarr", *QUICK, "--scheduler", address]
    assert run("ingest", *given)[0] == 0
    assert open_dataset(tmp_path / "data.zarr").sizes["photo"] == 12


def test_ctrl_c_says_how_to_continue(tmp_path):
    images, masks = save_pairs(tmp_path, 60)
    command = ["ingest", images, masks, "-o", tmp_path / "data.zarr", *QUICK]
    batch = "gpgc_dask.core.progress:Meter.__call__"  # the first call has nothing done yet
    code, err = interrupt_after(tmp_path, batch, [*command, "--workers", 1], call=2)
    assert code == 130, err
    assert "the same command with --resume continues it" in err
    assert "Traceback" not in err
    done = subprocess.run(
        [sys.executable, "-m", "gpgc_dask", *map(str, command), "--resume"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "by an earlier run" in done.stdout


def test_log_messages_are_printed_as_notes(run, monkeypatch, tmp_path):
    def noisy(location):
        logging.getLogger("gpgc_dask").warning("the store is slow")
        return read_attributes(location)

    monkeypatch.setattr("gpgc_dask.models.persistence.read_attributes", noisy)
    code, _, err = run("rank", tmp_path / "no.zarr")
    assert code == 2
    assert err.splitlines()[0] == "gpgc: the store is slow"
