"""Exit codes: 1 where the same command may succeed later, 2 where it would fail again."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
from distributed import KilledWorker
from distributed.comm import CommClosedError

from gpgc_dask.cli import EXIT_CODES
from gpgc_dask.core import errors
from gpgc_dask.core.errors import GpgcError, exit_code
from gpgc_dask.execution.batches import translate_failures

ROOT = Path(__file__).parents[2]

MAY_PASS = {"ChangedError", "ClusterError", "SchedulerNotFoundError", "StoppedError", "StoreError"}


def kinds(base=GpgcError):
    """All kinds of errors of the package."""
    return {base} | {kind for each in base.__subclasses__() for kind in kinds(each)}


def test_which_errors_may_pass():
    ours = {kind for kind in kinds() if kind.__module__ == errors.__name__}
    assert {kind.__name__ for kind in ours if kind.may_pass} == MAY_PASS
    assert {kind.__name__ for kind in ours} > MAY_PASS | {"InputError", "VersionError"}
    assert exit_code(errors.StoreError("busy")) == 1
    assert exit_code(errors.VersionError("another image")) == 2


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, 2),
        (errno.EACCES, 2),
        (errno.EISDIR, 2),
        (errno.ENOSPC, 1),
        (errno.EIO, 1),
        (errno.ECONNRESET, 1),
    ],
)
def test_errors_of_the_operating_system(number, code):
    assert exit_code(OSError(number, "what happened", "file")) == code


@pytest.mark.parametrize(
    "error",
    [KilledWorker("ingest-1", None, 3), CommClosedError("lost"), OSError(errno.ENOSPC, "full")],
)
def test_lost_workers_and_full_disks_may_pass(error):
    with pytest.raises(errors.PipelineError) as raised, translate_failures("place", "a photo"):
        raise error
    assert exit_code(raised.value) == 1
    assert exit_code(errors.PipelineError("photo_001.jpg is no image")) == 2


def test_what_cannot_pass_exits_with_2(run, reference, tmp_path):
    """A job of Kubernetes ends at once, see podFailurePolicy."""
    missing, out = tmp_path / "no.zarr", ("-o", tmp_path / "model.zarr")
    (tmp_path / "foreign").mkdir()
    for arguments in (
        ("fit", missing, *out),
        ("fit", tmp_path / "foreign", *out),
        ("fit", reference, *out, "--workers", 1, "--memory-limit", "50MB"),
        ("fit", reference, *out, "--max-iter", 0),
        ("rank", missing),
        ("score", missing, tmp_path, tmp_path),
        ("update", missing, tmp_path, tmp_path),
        ("ingest", tmp_path / "none", tmp_path / "none", *out),
    ):
        code, _, err = run(*arguments)
        assert code == 2, err
        assert "Traceback" not in err


def test_a_refused_plan_exits_with_2(run, reference, tmp_path, monkeypatch):
    monkeypatch.setattr("gpgc_dask.planning.memory.USABLE_SHARE", 1e-9)
    given = ("--workers", 1, "--memory-limit", "300MB")
    code, _, err = run("fit", reference, "-o", tmp_path / "m.zarr", *given)
    assert code == 2, err
    assert "a worker needs" in err


def test_bugs_exit_with_1(run, reference, monkeypatch):
    def fail(*arguments):
        raise RuntimeError("not foreseen")

    monkeypatch.setattr("gpgc_dask.models.persistence.read_attributes", fail)
    code, _, err = run("rank", reference)
    assert code == 1
    assert "this is a bug in gpgc_dask" in err


def test_the_codes_are_documented(run):
    _, out, _ = run("--help")
    for code in ("0", "1", "2", "3", "130"):
        assert re.search(rf"\b{code} (done|failed|stopped)", EXIT_CODES)
    assert "Exit codes: 0 done; 1 failed" in " ".join(out.split())
    for page in ("docs/getting-started.md", "docs/reference/commands.md", "deploy/README.md"):
        text = " ".join((ROOT / page).read_text().split())
        assert "exit code" in text.lower()
        assert "2 (wrong usage)" not in text
