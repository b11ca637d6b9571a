"""The code and the commands of README.md and docs/ run as they stand.

A page is run from its first block to its last in one folder. Blocks marked ``sh`` and ``python``
are; ``console`` and ``{code-block}`` are for what needs machines or programs of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import s3fs
from distributed import LocalCluster

from gpgc_dask.cli import main
from gpgc_dask.clusters.registry import CLUSTERS
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from tests.support.object_store import object_store
from tests.support.places import save_folders, save_job, save_others

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(
        path
        for path in (ROOT / "docs").rglob("*.md")
        if not {"_build", "notebooks"} & {*path.relative_to(ROOT).parts}
    ),
]
BLOCK = re.compile(r"^ *```(\w+|{code-block} \w+)\n(.*?)^ *```$", flags=re.DOTALL | re.MULTILINE)

ELSEWHERE = ("python3 -m venv", "gpgc demo", "gpgc compare horses.zarr --test test.zarr -o tables/")
"""Run by .ci/run and by tests/cli/test_help.py, which has smaller datasets for the last one."""

NOT_HERE = ("//host", "--cluster kubernetes")
"""Clusters that are not there: such a command is spelt rightly if it gets as far as to look."""

MOST_NOT_RUN = 8
"""Blocks that are not run, in all of it."""


def named(path):
    return path.relative_to(ROOT).as_posix()


def blocks(page):
    """(language, text) of each; with empty lines before it, so that errors tell its own lines."""
    text = page.read_text()
    return [
        (found[1], "\n" * text.count("\n", 0, found.start(2)) + found[2])
        for found in BLOCK.finditer(text)
    ]


RUN = [page for page in PAGES if {"python", "sh"} & {language for language, _ in blocks(page)}]


# -- what is there when a page begins ------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Photos and masks, and what getting-started.md leaves behind: (where, a copy of it)."""
    place = tmp_path_factory.mktemp("pages") / "place"
    photos, masks = save_folders(place)
    save_others(place)
    save_job(place)
    ingest(photos, masks, place / "horses.zarr")
    train(place / "horses.zarr", place / "model.zarr")
    ingest(place / "job/photos", place / "job/masks", place / "job.zarr")
    train(place / "job.zarr", place / "job-model.zarr")
    return place, shutil.copytree(place, place.with_name("as it was"))


@pytest.fixture
def place(template, monkeypatch):
    """The folder as it was: at the same path, because datasets know theirs."""
    here, saved = template
    shutil.rmtree(here)
    shutil.copytree(saved, here)
    monkeypatch.chdir(here)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return here


@pytest.fixture
def near(monkeypatch):
    """Workers that commands start are threads of this process: each would take its seconds.

    tests/cli/test_help.py runs the same commands on processes. Hosts that are not there are not
    there after a second either.
    """

    def local(request):
        return LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        )

    monkeypatch.setattr("gpgc_dask.clusters.remote.CONNECT_SECONDS", 1)
    CLUSTERS.add("local", local)
    yield
    CLUSTERS.remove("local")


@pytest.fixture
def bucket(monkeypatch):
    """What s3://bucket is."""
    with object_store() as store:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        s3fs.S3FileSystem.clear_instance_cache()
        yield s3fs.S3FileSystem()
        s3fs.S3FileSystem.clear_instance_cache()


def made_by(commands):
    """Datasets and models that commands make anew: these must not be there yet."""
    for words in commands:
        if words[1] in ("ingest", "fit") and not {"--resume", "--overwrite"} & {*words}:
            yield words[words.index("-o") + 1]


# -- running -------------------------------------------------------------------------------


def command_lines(text):
    """The commands of a block, split into words."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    wanted = [each for each in words if each and not " ".join(each).startswith(ELSEWHERE)]
    assert all(each[0] == "gpgc" for each in wanted), f"only gpgc is run: {wanted}"
    return wanted


def call(words, capsys):
    """Run a command; ``> FILE`` at its end is as in a shell."""
    words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    out, err = capsys.readouterr()
    far = any(mark in " ".join(words) for mark in NOT_HERE)
    assert (ended.value.code or 0) == (1 if far else 0), f"{shlex.join(words)}: {err}"
    if target is not None:
        Path(target).write_text(out)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", RUN, ids=named)
def test_page_runs(page, place, near, request, capsys):
    found = blocks(page)
    commands = [words for kind, text in found if kind == "sh" for words in command_lines(text)]
    if any("s3://" in text for _, text in found):
        store = request.getfixturevalue("bucket")
        store.put(str(place / "horses.zarr"), "bucket/horses.zarr", recursive=True)
    for target in made_by(commands):
        if not target.startswith("s3://"):
            shutil.rmtree(target, ignore_errors=True)
        elif store.exists(target):
            store.rm(target, recursive=True)
    names = {"__name__": "__main__"}
    for language, text in found:
        if language == "python":
            exec(compile(text, named(page), "exec"), names)
        for words in command_lines(text) if language == "sh" else ():
            call(words, capsys)
    CHECKS.get(named(page), lambda place, names: None)(place, names)


# -- what must have come of it -------------------------------------------------------------


def check_readme(place, names):
    assert len(list((place / "clean/images").iterdir())) == 9
    assert len(list((place / "predicted").glob("*.png"))) == 12
    assert names["worst"]["rank"].tolist() == list(range(1, 13))
    assert (place / "report.html").exists()


def check_arrays(place, names):
    model, agreement = names["model"], names["agreement"]
    spoilt = ["photo_03.jpg", "photo_17.jpg"]
    assert sorted(model.groups_[np.argsort(model.confidence_)][:2]) == spoilt
    assert sorted(agreement.groups[np.argsort(agreement.iou)][:2]) == spoilt


def check_monitor(place, names):
    assert names["by_annotator"]["agreement"].idxmin() == "ben"
    assert names["noise"].idxmax() == "ben"
    assert names["trend"].shape == (2, 3)
    assert len((place / "look-at-today.txt").read_text().splitlines()) == 6
    assert len(names["today"]) == 3


def check_clean(place, names):
    assert len(list((place / "clean/masks").iterdir())) == 9
    assert len((place / "by-image.csv").read_text().splitlines()) == 4
    assert len(list((place / "rough-masks").glob("*.png"))) == 12


CHECKS = {
    "README.md": check_readme,
    "docs/arrays.md": check_arrays,
    "docs/how-to/clean.md": check_clean,
    "docs/how-to/monitor.md": check_monitor,
}


def test_few_blocks_are_not_run():
    kinds = [language for page in PAGES for language, _ in blocks(page)]
    known = {"console", "python", "sh", "text"}
    assert all(kind in known or kind.startswith("{code-block}") for kind in kinds)
    assert sum(kind not in ("python", "sh", "text") for kind in kinds) <= MOST_NOT_RUN
    assert {*CHECKS} <= {named(page) for page in RUN}
    assert len(RUN) >= 15


# -- what is told of measurements ----------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "title", "measured"),
    [
        ("costs.md", "Planned", "performance.md"),
        ("costs.md", "Measured", "performance.md"),
        ("accuracy.md", "Accuracy", "experiments.md"),
    ],
)
def test_numbers_are_those_that_were_measured(told, title, measured):
    """Tables that repeat some of the numbers that scripts have written elsewhere."""
    docs = ROOT / "docs"
    section = re.split(r"^#+ ", (docs / told).read_text(), flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(f"{title}\n"))
    source = (docs / measured).read_text()
    cells = [cell for row in re.findall(r"^\|.*\|$", text, re.M) for cell in row.split("|")[2:-1]]
    numbers = {number for cell in cells for number in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)}
    assert len(numbers) > 10
    assert not {number for number in numbers if number not in source}
