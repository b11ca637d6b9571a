"""Every error that gpgc_dask raises on purpose.

All of them are :class:`GpgcError`, and each is also the built-in kind that a caller would expect
(``ValueError``, ``FileNotFoundError``, …). The program ``gpgc`` prints a :class:`GpgcError` as one
line; any other exception is a bug and is shown with its traceback. Where a message has advice, it
has the spelling of Python and that of the program, in the forms that ``options_only`` in
``gpgc_dask.core.text`` describes; the program shows its own only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpgc_dask.core.text import preview

__all__ = [
    "EXIT_BELOW",
    "EXIT_MAY_PASS",
    "EXIT_PERMANENT",
    "AccessDeniedError",
    "ChangedError",
    "ClusterError",
    "CorruptedError",
    "ExistsError",
    "GpgcError",
    "InputError",
    "InputTypeError",
    "IsAFolderError",
    "MissingDependencyError",
    "MissingFileError",
    "NotAFolderError",
    "NotEnoughMemoryError",
    "NotFiniteError",
    "NotReviewedError",
    "PipelineError",
    "Problem",
    "SchedulerNotFoundError",
    "StoppedError",
    "StoreError",
    "UnsafeWeightsError",
    "UnusableFileError",
    "VersionError",
    "exit_code",
    "list_problems",
]

EXIT_MAY_PASS, EXIT_PERMANENT, EXIT_BELOW = 1, 2, 3
"""Exit codes: the same call may succeed later; it would fail again until something is changed;
masks are below a limit."""

PERMANENT = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
"""Errors of the operating system that remain until something is changed."""


class GpgcError(Exception):
    """Base class of the errors that gpgc_dask raises; messages include what to do next.

    Attributes
    ----------
    may_pass : bool
        Whether the same call may succeed later although nothing was changed. The program ``gpgc``
        then exits with code 1 instead of 2, and Kubernetes starts it again.
    """

    may_pass = False


class InputError(GpgcError, ValueError):
    """An argument, an option or the content of a file has a value that cannot be used."""


class InputTypeError(GpgcError, TypeError):
    """An argument has a type that cannot be used."""


class MissingFileError(GpgcError, FileNotFoundError):
    """A file, folder, dataset or model does not exist."""


class ExistsError(GpgcError, FileExistsError):
    """The target exists already and may not be overwritten."""


class NotAFolderError(GpgcError, NotADirectoryError):
    """A folder was expected and the path is a file."""


class IsAFolderError(GpgcError, IsADirectoryError):
    """A file was expected and the path is a folder."""


class AccessDeniedError(GpgcError, PermissionError):
    """The permissions do not allow to read or write a file or an object store."""


class StoreError(GpgcError, OSError):
    """An object store did not answer, although the request was repeated."""

    may_pass = True


class CorruptedError(GpgcError, ValueError):
    """Stored data is not what was written; the message names the file and how to repair it."""


class ChangedError(GpgcError, RuntimeError):
    """A dataset was updated while it was open: open it again. What was read before is intact."""

    may_pass = True


class NotEnoughMemoryError(GpgcError, MemoryError):
    """The work needs more memory than is available."""


class MissingDependencyError(GpgcError, ImportError):
    """An optional package is not installed; the message names the extra to install."""


class ClusterError(GpgcError, RuntimeError):
    """The cluster is gone, or its workers cannot do the work. No result is wrong or lost."""

    may_pass = True


class SchedulerNotFoundError(GpgcError, ConnectionError):
    """No Dask scheduler answers at the given address."""

    may_pass = True


class VersionError(ClusterError):
    """Scheduler or workers run another program than the caller, and have to be replaced."""

    may_pass = False


class UnusableFileError(InputError):
    """A photo or mask cannot be used; the message has the reason and what to do."""


class NotReviewedError(InputError, AttributeError):
    """A model has no review of its images, or one that an older version made."""


class UnsafeWeightsError(InputError):
    """A file of network weights contains something other than tensors."""


@dataclass(frozen=True)
class Problem:
    """A file that cannot be used, and the reason.

    Attributes
    ----------
    name : str
        Name of the file, as in the folder of photos.
    reason : str
        Why it cannot be used, and what to do.
    """

    name: str
    reason: str


class PipelineError(GpgcError, RuntimeError):
    """Work on many photos stopped; finished work is kept.

    Attributes
    ----------
    problems : list of Problem
        Files that caused the error, if any.
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


class StoppedError(PipelineError):
    """Work was stopped by the cluster, a full disk or another program, not by its files."""

    may_pass = True


class NotFiniteError(InputError):
    """X contains NaN or infinity.

    Attributes
    ----------
    rows, columns, groups : sequence
        Numbers of the rows and columns, and names of the groups if they are known.
    """

    def __init__(
        self, rows: list[Any], columns: Sequence[int] = (), groups: Sequence[Any] = ()
    ) -> None:
        super().__init__(rows, columns, groups)  # so that unpickling can rebuild it
        self.rows, self.columns, self.groups = rows, columns, groups

    def __str__(self) -> str:
        groups = f", group(s) {preview(self.groups)}" if len(self.groups) else ""
        columns = f", column(s) {preview(self.columns)}" if self.columns else ""
        return (
            f"X contains NaN or infinity in row(s) {preview(self.rows)}{columns}{groups}: "
            "drop those rows or impute them before fitting"
        )


def exit_code(error: BaseException) -> int:
    """Exit code of a program that ends with this error."""
    if isinstance(error, GpgcError):
        return EXIT_MAY_PASS if error.may_pass else EXIT_PERMANENT
    return EXIT_PERMANENT if isinstance(error, PERMANENT) else EXIT_MAY_PASS


def list_problems(problems: Sequence[Problem], limit: int = 10, names: int = 3) -> str:
    """One line per kind of problem, at most ``limit`` of them, with the first files of it.

    Problems are of one kind if their reasons differ in numbers and names of files only.
    """
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(_kind(problem), []).append(problem)
    lines = []
    for kind in list(kinds.values())[:limit]:
        more = f" and {len(kind) - names:,} more" if len(kind) > names else ""
        files = [problem.name for problem in kind[:names]]
        if len({problem.reason for problem in kind}) == 1:
            lines.append(f"{', '.join(files)}{more}: {kind[0].reason}")
        else:
            lines.append(f"{files[0]}: {kind[0].reason} (alike: {', '.join(files[1:])}{more})")
    if len(kinds) > limit:
        rest = sum(len(kind) for kind in list(kinds.values())[limit:])
        lines.append(f"… and {rest} more")
    return "\n".join(lines)


def _kind(problem: Problem) -> str:
    """The reason without what differs from file to file."""
    stem = re.escape(problem.name.rpartition(".")[0] or problem.name)
    own = re.sub(rf"(?<!\w){stem}(?=[._/])", "*", problem.reason)
    return re.sub(r"\d+(, \d+)*", "0", own)
