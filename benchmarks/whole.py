"""What users wait for: fit, review and report of many photos, and ``gpgc demo``.

The photos are those of the demo. Each installation makes a dataset of the same photos, which is not
timed; then ``gpgc fit``, which reviews the masks and estimates their quality, and ``gpgc report``
run as commands of their own. ``--other PYTHON`` runs the commands of another installation too, in
alternation, and prints ratios.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from common import Section, parser

from gpgc_dask.demo.folders import write_set

TARGET = 0.6

STEPS = ("fit and review", "report", "demo")


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, and of all processors in all processes."""

    wall: float
    processors: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.processors + other.processors)

    def __str__(self) -> str:
        return f"{self.wall:.1f} ({self.processors:.1f})"


class Installation:
    """A Python with gpgc_dask, and a folder for what it makes."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name, self.python, self.folder = name, python, folder
        folder.mkdir()

    def run(self, *arguments: str) -> Cost:
        """Run a command; raise an error with what it wrote if it fails."""
        start = time.perf_counter()
        with open(self.folder / "log.txt", "w+") as log:
            command = [self.python, "-I", "-m", "gpgc_dask", *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                log.seek(0)
                raise RuntimeError(f"{' '.join(command)}\n{log.read()}")
        return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)

    def ingest(self, photos: Path, backbone: str) -> None:
        options = ("-o", "data.zarr", "--backbone", backbone)
        self.run("ingest", str(photos / "images"), str(photos / "masks"), *options)

    def measure(self, demo: tuple[str, ...]) -> dict[str, Cost]:
        """The costs of all steps."""
        fit = self.run("fit", "data.zarr", "-o", "model.zarr", "--overwrite")
        report = self.run("report", "data.zarr", "model.zarr", "-o", "report.html")
        return dict(zip(STEPS, (fit, report, self.run("demo", *demo)), strict=True))


def best(runs: list[dict[str, Cost]]) -> dict[str, Cost]:
    """The fastest run of each step."""
    return {step: min((run[step] for run in runs), key=lambda cost: cost.wall) for step in STEPS}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--other", metavar="PYTHON", help="program of another installation")
    options.add_argument("--images", type=int, default=5000, help="number of photos")
    args = options.parse_args()
    section = Section(args, __file__)
    n, drawn, backbone = (30, 30, "colour") if args.smoke else (args.images, 200, "lite0")
    demo = ("--images", str(drawn), "--backbone", backbone, "--out", "demo")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_set(place / "photos", n, seed=1)
        pythons = {"this version": sys.executable}
        if args.other:
            pythons["the other installation"] = args.other
        installations = [
            Installation(name, python, place / str(number))
            for number, (name, python) in enumerate(pythons.items())
        ]
        for one in installations:
            one.ingest(place / "photos", backbone)
        runs: dict[str, list[dict[str, Cost]]] = {name: [] for name in pythons}
        for _ in range(args.repeats):
            for one in installations:
                runs[one.name].append(one.measure(demo))
    costs = {name: best(each) for name, each in runs.items()}
    section.add(
        f"{n:,} photos of 320×240 pixels, backbone {backbone}; the demo draws {drawn}. Commands "
        f"run on threads of one process unless they start workers themselves, {os.cpu_count()} "
        f"cores; best of {args.repeats} runs. Seconds by the clock, and of all cores in brackets."
    )
    section.table(
        ["step", *costs],
        [(step, *(str(own[step]) for own in costs.values())) for step in STEPS],
    )
    if args.other:
        add_ratios(section, n, *costs.values())
    section.finish()


def add_ratios(section: Section, n: int, own: dict[str, Cost], other: dict[str, Cost]) -> None:
    """A table of the ratios."""
    sums = [cost["fit and review"] + cost["report"] for cost in (own, other)]
    pairs = {
        f"fit, review, quality and report of {n:,} photos": sums,
        "`gpgc demo`": [own["demo"], other["demo"]],
    }
    section.table(
        ["ratio to the other installation", "time", "target", "seconds of all cores"],
        [
            (name, f"{new.wall / old.wall:.2f}", f"at most {TARGET}",
             f"{new.processors / old.processors:.2f}")
            for name, (new, old) in pairs.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
