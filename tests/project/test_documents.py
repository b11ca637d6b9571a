"""The code and the commands in README.md and docs/ work.

The blocks marked ``sh`` and ``python`` of a page are run in order in one folder. Blocks that need
other machines or programs are marked ``console`` or ``{code-block}``.
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
from PIL import Image

from gpgc_dask.cli import main
from gpgc_dask.clusters.registry import CLUSTERS
from gpgc_dask.pipelines.ingest import ingest
from gpgc_dask.pipelines.train import train
from gpgc_dask.results.verdicts import list_verdicts
from tests.support.kinds import KINDS
from tests.support.object_store import object_store
from tests.support.places import save_corrections, save_folders, save_job, save_others

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
"""Commands run by .ci/run, and by tests/cli/test_help.py with smaller datasets."""

NOT_HERE = ("//host", "--cluster kubernetes")
"""Clusters that do not exist: such a command must fail only when it connects."""

MAX_NOT_RUN = 8
"""Number of blocks in all pages that are not run."""


def named(path):
    return path.relative_to(ROOT).as_posix()


def blocks(page):
    """(language, text) of each block, padded so that errors have the line numbers of the page."""
    text = page.read_text()
    return [
        (found[1], "\n" * text.count("\n", 0, found.start(2)) + found[2])
        for found in BLOCK.finditer(text)
    ]


RUN = [
    page
    for page in PAGES
    if {"python", "sh"} & {language for language, _ in blocks(page)} and page.stem not in KINDS
]
"""Pages of kinds of data are run by test_kinds.py."""


# -- before a page is run -----------------------------------------------------------------


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """Photos and masks, and the results of getting-started.md: (folder, copy of it)."""
    place = tmp_path_factory.mktemp("pages") / "place"
    photos, masks = save_folders(place)
    save_others(place)
    save_corrections(place)
    save_job(place)
    ingest(photos, masks, place / "horses.zarr")
    train(place / "horses.zarr", place / "model.zarr")
    ingest(place / "job/photos", place / "job/masks", place / "job.zarr")
    train(place / "job.zarr", place / "job-model.zarr")
    return place, shutil.copytree(place, place.with_name("copy"))


@pytest.fixture
def place(template, monkeypatch):
    """The folder in its original state, at the same path, because datasets contain it."""
    here, saved = template
    shutil.rmtree(here)
    shutil.copytree(saved, here)
    monkeypatch.chdir(here)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return here


@pytest.fixture
def near(monkeypatch):
    """Let commands start workers as threads of this process, which is faster.

    tests/cli/test_help.py runs the same commands on processes. Connections time out after a second.
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
    """An object store for s3://bucket."""
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
    """Datasets and models that commands create, which must not exist before."""
    for words in commands:
        if words[1] in ("ingest", "fit") and not {"--resume", "--overwrite"} & {*words}:
            yield words[words.index("-o") + 1]


# -- running -------------------------------------------------------------------------------


def command_lines(text):
    """The commands of a block, each as a list of words."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    wanted = [each for each in words if each and not " ".join(each).startswith(ELSEWHERE)]
    assert all(each[0] == "gpgc" for each in wanted), f"only gpgc is run: {wanted}"
    return wanted


def call(words, capsys):
    """Run a command; ``> FILE`` at its end works as in a shell."""
    words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    out, err = capsys.readouterr()
    far = any(mark in " ".join(words) for mark in NOT_HERE)
    assert (ended.value.code or 0) in ((1, 2) if far else (0,)), f"{shlex.join(words)}: {err}"
    if target is not None:
        Path(target).write_text(out)


def run_blocks(page, capsys):
    """Run the code and the commands of a page in the current folder: the names of the code."""
    names = {"__name__": "__main__"}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, named(page), "exec"), names)
        for words in command_lines(text) if language == "sh" else ():
            call(words, capsys)
    return names


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
    names = run_blocks(page, capsys)
    CHECKS.get(named(page), lambda place, names: None)(place, names)


# -- expected results ----------------------------------------------------------------------


def check_readme(place, names):
    assert len(list((place / "clean/images").iterdir())) == 9
    assert len(list((place / "predicted").glob("*.png"))) == 12
    assert names["worst"]["rank"].tolist() == list(range(1, 13))
    assert (place / "report.html").exists()


def check_arrays(place, names):
    model, agreement = names["model"], names["agreement"]
    wrong = ["photo_03.jpg", "photo_17.jpg"]
    assert sorted(model.groups_[np.argsort(model.confidence_)][:2]) == wrong
    assert sorted(agreement.groups[np.argsort(agreement.iou)][:2]) == wrong


def check_monitor(place, names):
    assert names["by_annotator"]["quality"].idxmin() == "ben"
    assert names["noise"].idxmax() == "ben"
    assert names["trend"].shape == (2, 3)
    assert len((place / "look-at-today.txt").read_text().splitlines()) == 6
    assert len(names["today"]) == 3


def check_clean(place, names):
    assert len(list((place / "clean/masks").iterdir())) == 9
    assert len((place / "by-image.csv").read_text().splitlines()) == 4
    assert len(list((place / "rough-masks").glob("*.png"))) == 12


def check_loop(place, names):
    verdicts = list_verdicts(place / "horses.zarr")
    assert verdicts["image"].tolist() == ["photo_003.jpg", "photo_007.jpg"]
    assert verdicts["verdict"].tolist() == ["confirmed", "confirmed"]
    drawn = {path.name: Image.open(path) for path in (place / "corrected-masks").iterdir()}
    clean = {path.name for path in (place / "clean/masks").iterdir()}
    assert len(clean) == 9
    assert clean & {*drawn}
    for name, mask in drawn.items():
        assert np.array_equal(mask, Image.open(place / "masks" / name))
    for name in clean & {*drawn}:
        assert np.array_equal(drawn[name], Image.open(place / "clean/masks" / name))
    assert len((place / "look-at.txt").read_text().splitlines()) == 3
    assert not names["changes"].changed
    assert len(names["todo"]) == 10


def check_interop(place, names):
    assert names["report"].known == 2
    assert names["decided"]["verdict"].tolist() == ["corrected", "corrected"]
    assert names["written"].masks == 2
    assert (place / "verdicts/photo_003.png").exists()


CHECKS = {
    "README.md": check_readme,
    "docs/arrays.md": check_arrays,
    "docs/how-to/clean.md": check_clean,
    "docs/how-to/loop.md": check_loop,
    "docs/how-to/monitor.md": check_monitor,
    "docs/interop.md": check_interop,
}


def test_few_blocks_are_not_run():
    kinds = [language for page in PAGES for language, _ in blocks(page)]
    known = {"console", "python", "sh", "text"}
    assert all(kind in known or kind.startswith("{code-block}") for kind in kinds)
    assert sum(kind not in ("python", "sh", "text") for kind in kinds) <= MAX_NOT_RUN
    assert {*CHECKS} <= {named(page) for page in RUN}
    assert len(RUN) >= 15


# -- numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "title", "measured"),
    [
        ("costs.md", "Planned", "performance.md"),
        ("costs.md", "Measured", "performance.md"),
        ("accuracy.md", "Accuracy", "experiments.md"),
    ],
)
def test_numbers_are_those_that_were_measured(page, title, measured):
    """Tables that repeat numbers which scripts have written to another page."""
    docs = ROOT / "docs"
    section = re.split(r"^#+ ", (docs / page).read_text(), flags=re.MULTILINE)
    (text,) = (part for part in section if part.startswith(f"{title}\n"))
    source = (docs / measured).read_text()
    cells = [cell for row in re.findall(r"^\|.*\|$", text, re.M) for cell in row.split("|")[2:-1]]
    numbers = {number for cell in cells for number in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)}
    assert len(numbers) > 10
    assert not {number for number in numbers if number not in source}
