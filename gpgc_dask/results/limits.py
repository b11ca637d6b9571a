"""Limits that the masks of a dataset must keep: a summary in Markdown, and JUnit's XML."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from gpgc_dask.core.arrays import Mask
from gpgc_dask.core.errors import InputError
from gpgc_dask.results.ranking import headline, is_suspect

__all__ = ["DEFAULT_SUSPECT", "CheckReport", "Limit", "check_limits", "parse_limits"]

DEFAULT_SUSPECT = "5%"
"""Largest share of suspect masks, if no limit is given."""

LISTED = 20
"""Number of images that messages name."""


@dataclass(frozen=True)
class Limit:
    """A limit and what was found.

    Attributes
    ----------
    name : str
        What is limited.
    allowed, found : str
        The limit and the measured value, in words.
    passed : bool
    images : tuple of str
        Names of the images that count against it, worst first.
    """

    name: str
    allowed: str
    found: str
    passed: bool
    images: tuple[str, ...]


@dataclass(frozen=True)
class CheckReport:
    """Whether the masks of a dataset keep their limits.

    Attributes
    ----------
    dataset : str
        Its name.
    images : int
        Number of masks.
    headline : str
        How many of them are bad and suspect.
    limits : tuple of Limit
    worst : pandas.DataFrame
        The images that count against a limit that is missed, worst first.
    """

    dataset: str
    images: int
    headline: str
    limits: tuple[Limit, ...]
    worst: pd.DataFrame

    @property
    def passed(self) -> bool:
        """Whether no limit is missed."""
        return all(limit.passed for limit in self.limits)

    def to_markdown(self) -> str:
        """The summary, for the page of a pipeline or a pull request."""
        verdict = "passed" if self.passed else "failed"
        lines = [f"## Masks of {_cell(self.dataset)}: {verdict}", "", f"{self.headline}.", ""]
        lines += ["| check | limit | found | |", "| --- | --- | --- | --- |"]
        for limit in self.limits:
            mark = "passed" if limit.passed else "**failed**"
            lines.append(f"| {limit.name} | {limit.allowed} | {limit.found} | {mark} |")
        if len(self.worst):
            lines += [
                "",
                "| image | quality | 80 % interval | flags |",
                "| --- | --- | --- | --- |",
            ]
            for row in self.worst.head(LISTED).itertuples():
                cells = (row.image, _number(row.quality), _interval(row), row.flags)
                lines.append("| " + " | ".join(_cell(str(cell)) for cell in cells) + " |")
            if len(self.worst) > LISTED:
                lines += ["", f"and {len(self.worst) - LISTED:,} more."]
        return "\n".join(lines) + "\n"

    def to_junit(self) -> str:
        """One test case per limit, as JUnit writes them and every CI service reads them."""
        failed = sum(not limit.passed for limit in self.limits)
        counts = {"tests": str(len(self.limits)), "failures": str(failed), "errors": "0"}
        suites = ElementTree.Element("testsuites", counts)
        suite = ElementTree.SubElement(suites, "testsuite", counts | {"name": "gpgc check"})
        for limit in self.limits:
            case = ElementTree.SubElement(
                suite, "testcase", name=limit.name, classname=_xml(self.dataset)
            )
            if not limit.passed:
                message = f"{limit.found}, allowed: {limit.allowed}"
                failure = ElementTree.SubElement(case, "failure", message=message)
                failure.text = _xml("\n".join(limit.images))
        ElementTree.indent(suites)
        return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True).decode() + "\n"


def parse_limits(max_suspect: str | None, min_quality: float | None) -> tuple[str | None, bool]:
    """Check limits before any work; (text of the first one, whether it is a share).

    Parameters
    ----------
    max_suspect : str, optional
        A share such as "5%", or a number. By default "5%", if there is no other limit.
    min_quality : float, optional
        From 0 to 1.
    """
    if min_quality is not None and not 0 <= min_quality <= 1:
        raise InputError(
            f"the lowest quality (--min-quality) is between 0 and 1, got {min_quality:g}"
        )
    if max_suspect is None:
        return (None, False) if min_quality is not None else (DEFAULT_SUSPECT, True)
    text = max_suspect.strip()
    is_share = text.endswith("%")
    try:
        valid = 0 <= float(text[:-1]) <= 100 if is_share else int(text) >= 0
    except ValueError:
        valid = False
    if not valid:
        raise InputError(
            "the limit of suspect masks (--max-suspect) is a share such as 5% or a number such as "
            f"20, got {max_suspect}"
        )
    return text, is_share


def check_limits(
    ranking: pd.DataFrame,
    dataset: str,
    *,
    max_suspect: str | None = None,
    min_quality: float | None = None,
) -> CheckReport:
    """Compare the masks of a dataset with limits.

    Parameters
    ----------
    ranking : pandas.DataFrame
        As ``gpgc_dask.rank`` returns it, worst first.
    dataset : str
        Its name.
    max_suspect : str, optional
        Largest number of suspect masks, or share of all: "20", "5%". By default "5%", if there is
        no other limit.
    min_quality : float, optional
        No mask may have a lower estimated quality, or an unknown one.

    Returns
    -------
    CheckReport

    Raises
    ------
    InputError
        If a limit cannot be one.
    """
    most, is_share = parse_limits(max_suspect, min_quality)
    n = len(ranking)
    limits: list[Limit] = []
    worst = np.zeros(n, dtype=bool)

    def add(name: str, allowed: str, found: str, against: Mask, *, passed: bool) -> None:
        images = tuple(ranking["image"].to_numpy(str)[against].tolist())
        limits.append(Limit(name, allowed, found, passed, images))
        if not passed:
            worst[against] = True

    if most is not None:
        against = is_suspect(ranking)
        count = int(against.sum())
        allowed = float(most[:-1]) / 100 * n if is_share else int(most)
        found = f"{count:,} of {n:,} ({100 * count / max(n, 1):.1f} %)"
        # The product of a share and a number may be too small by a rounding error.
        passed = count <= allowed + 1e-9
        add("suspect masks", f"at most {most}", found, against, passed=passed)
    if min_quality is not None:
        against = ~(ranking["quality"].to_numpy() >= min_quality)
        found = f"{int(against.sum()):,} of {n:,} below"
        allowed_text = f"at least {min_quality:g}"
        add("quality of every mask", allowed_text, found, against, passed=not against.any())
    return CheckReport(dataset, n, headline(ranking), tuple(limits), ranking[worst])


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _interval(row: Any) -> str:
    limits = _number(row.quality_low), _number(row.quality_high)
    return "–".join(limits) if all(limits) else ""


def _cell(text: str) -> str:
    """Text of a table: no line breaks, no bars, no markup of names."""
    text = " ".join(text.split())
    return re.sub(r"([\\`*{}\[\]<>|#])", r"\\\1", text)


def _xml(text: str) -> str:
    """Text without characters that XML cannot hold."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
