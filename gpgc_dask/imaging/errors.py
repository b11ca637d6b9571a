"""What is wrong with somebody's files, as against what is wrong with the program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["IngestError", "InputError", "Problem", "told"]


class InputError(ValueError):
    """A photo or mask that cannot be used; the message says why and what to do about it."""


@dataclass(frozen=True)
class Problem:
    """A file that cannot be used, and why."""

    name: str
    reason: str


class IngestError(RuntimeError):
    """The ingest stopped; what is done is kept. ``problems`` are the files at fault, if any."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


def told(problems: Sequence[Problem], most: int = 10) -> str:
    """A line a problem."""
    lines = [f"{problem.name}: {problem.reason}" for problem in problems[:most]]
    if len(problems) > most:
        lines.append(f"… and {len(problems) - most} more")
    return "\n".join(lines)
