#!/usr/bin/env python3
"""Build the release, and try it as users will: one command, `.ci/release.py`.

1. sdist and wheel by `python -m build`, the wheel again by `pip wheel` (both must be the same
   bytes), `twine check --strict`, `check-wheel-contents`, CITATION.cff by cffconvert and the conda
   recipe by rattler-build's own reader;
2. for each Python: the wheel in an empty environment, `pip check`, time of the import, installed
   size, `gpgc demo`, then the quick tests from a folder that holds the tests and no source;
3. a list of all that the image holds (SBOM, CycloneDX) from an environment that is made of
   deploy/constraints.txt with hashes, and SHA256SUMS.

Everything is written to `dist/`. Exit code 1 if a step fails; all other steps are run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("build", "check-wheel-contents", "py-rattler-build", "twine", "uv")
TESTED = (
    *("tests", "benchmarks", "conda", "deploy", "docs", "examples"),
    *("conftest.py", "pyproject.toml"),
    *("README.md", "CHANGELOG.md", "CITATION.cff"),
)
"""What the tests read besides the package; a copy has no folder gpgc_dask."""

IMPORTS = ("import gpgc_dask", "from gpgc_dask import GPGC")
MAX_IMPORT_SECONDS = 1.0
"""Of `import gpgc_dask`, in CPU time."""

MEASURE = (
    "import os, sys\n{statement}\ntimes = os.times()\nprint(times.user + times.system)\n"
    "assert 'site-packages' in sys.modules['gpgc_dask'].__file__, sys.modules['gpgc_dask']"
)


class Release:
    """The steps, and which of them failed."""

    def __init__(self, work: Path, out: Path) -> None:
        self.work, self.out = work, out
        self.failed: list[str] = []
        # Archives have the time of the commit: the same source gives the same bytes.
        stamp = self.call("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
        os.environ["SOURCE_DATE_EPOCH"] = stamp
        os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        except (subprocess.CalledProcessError, AssertionError, OSError, StopIteration) as error:
            self.failed.append(title)
            details = getattr(error, "output", None) or str(error)
            print(f"FAILED {title}\n{details[-4000:]}", flush=True)
        else:
            print(f"passed {title} ({time.monotonic() - start:.0f} s)", flush=True)

    def call(self, *command: str | Path, cwd: Path | None = None) -> str:
        return subprocess.run(
            [str(part) for part in command],
            cwd=cwd or self.work,
            check=True,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ).stdout

    def environment(self, name: str, python: str | Path, *packages: str) -> Path:
        """A new environment; the folder of its programs."""
        self.call(python, "-m", "venv", "--clear", self.work / name)
        place = self.work / name / "bin"
        if packages:
            self.call(place / "pip", "install", "--quiet", *packages)
        return place


def build(release: Release, tools: Path) -> Path:
    """Build and check the archives; the wheel."""
    out = release.out
    with release.step("sdist, and the wheel from it"):
        release.call(tools / "python", "-m", "build", "--outdir", out, ROOT)
    with release.step("pip wheel makes the same bytes"):
        release.call(tools / "pip", "wheel", "--quiet", "--no-deps", "-w", release.work / "w", ROOT)
        (other,) = (release.work / "w").glob("gpgc_dask-*.whl")
        assert other.read_bytes() == (out / other.name).read_bytes(), other.name
    archives = sorted(out.glob("gpgc_dask-*"))
    with release.step("twine check --strict"):
        release.call(tools / "twine", "check", "--strict", *archives)
    with release.step("check-wheel-contents"):
        release.call(tools / "check-wheel-contents", *out.glob("*.whl"))
    (wheel,) = out.glob("*.whl")
    return wheel


def check_metadata(release: Release, tools: Path) -> None:
    """Check citation and recipe, and write the recipe that builds from the sdist."""
    with release.step("CITATION.cff by cffconvert"):
        # In an environment of its own: it needs an old jsonschema.
        own = release.environment("cff", sys.executable, "cffconvert")
        release.call(own / "cffconvert", "--validate", "-i", ROOT / "CITATION.cff")
    with release.step("conda recipe by rattler-build"):
        folder = release.out / "conda"
        folder.mkdir(exist_ok=True)
        (sdist,) = release.out.glob("*.tar.gz")
        digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
        text = (ROOT / "conda/recipe.yaml").read_text()
        source = f"  path: ../{sdist.name}\n  sha256: {digest}\n"
        text, count = re.subn(r"  path: \.\.\n  use_gitignore: true\n", source, text)
        assert count == 1
        (folder / "recipe.yaml").write_text(text)
        for path in (ROOT / "conda/recipe.yaml", folder / "recipe.yaml"):
            program = (
                "import sys, rattler_build as r\n"
                "recipe = r.Stage0Recipe.from_file(sys.argv[1])\n"
                "one, = recipe.render(r.VariantConfig({'python': ['3.11']}))\n"
                "print(one)"
            )
            release.call(tools / "python", "-c", program, path)


def try_wheel(release: Release, tools: Path, wheel: Path, python: str, *, tests: bool) -> None:
    """Install the wheel into an empty environment, and use it far from the source."""
    name = release.call(python, "-V").split()[1]
    place = release.work / f"env-{name}"
    with release.step(f"Python {name}: wheel in an empty environment"):
        own = release.environment(place.name, python, str(wheel))
        release.call(own / "pip", "check")
        packages = json.loads(release.call(own / "pip", "list", "--format=json"))
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) / 1e6
        print(f"  {len(packages) - 1} packages without pip, {size:.0f} MB with its bytecode")
    for statement in IMPORTS:
        with release.step(f"Python {name}: {statement}"):
            program = MEASURE.format(statement=statement)
            seconds = min(float(release.call(own / "python", "-c", program)) for _ in range(3))
            print(f"  {seconds:.2f} s of CPU, the best of 3")
            assert statement != IMPORTS[0] or seconds < MAX_IMPORT_SECONDS
    with release.step(f"Python {name}: gpgc demo"):
        folder = release.work / f"demo-{name}"
        folder.mkdir()
        release.call(own / "gpgc", "demo", cwd=folder)
        result = json.loads((folder / "gpgc-demo/demo.json").read_text())
        print(f"  {result['found']} of {result['corrupted']} bad masks found")
        assert result["corrupted"] == 67
        assert result["found"] >= 65
    if not tests:
        return
    with release.step(f"Python {name}: quick tests of the installed package"):
        folder = release.work / f"tests-{name}"
        for part in TESTED:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            folder.mkdir(exist_ok=True)
            copy(ROOT / part, folder / part)
        pip = (tools / "uv", "pip", "install", "--quiet", "--python", own / "python")
        release.call(*pip, f"gpgc_dask[test] @ {wheel.as_uri()}")
        arguments = ("-q", "-m", "quick", "-n", "0", "-p", "no:cacheprovider", "tests")
        lines = release.call(own / "pytest", *arguments, cwd=folder).splitlines()
        print(f"  {lines[-1]}")


def describe_image(release: Release, wheel: Path) -> None:
    """SBOM of what the image holds, made as in the Dockerfile."""
    with release.step("SBOM of the image"):
        dockerfile = (ROOT / "deploy/Dockerfile").read_text()
        (version,) = re.findall(r"^ARG BASE=.*python:(\d+\.\d+)", dockerfile, re.MULTILINE)
        program = find_python(version) or sys.executable
        pip = ("pip", "install", "--quiet", "--no-deps")
        locked = (*pip, "--require-hashes", "--only-binary", ":all:", "-r")
        image, made = (release.environment(name, program) for name in ("image", "made"))
        release.call(image / locked[0], *locked[1:], ROOT / "deploy/constraints.txt")
        release.call(made / locked[0], *locked[1:], ROOT / "deploy/build-constraints.txt")
        release.call(image / pip[0], *pip[1:], "--no-index", wheel)
        release.call(image / "pip", "check")
        target = release.out / f"{wheel.name.split('-py3')[0]}.cdx.json"
        command = (made / "cyclonedx-py", "environment", "--output-reproducible")
        project = ("--pyproject", ROOT / "pyproject.toml")
        release.call(*command, *project, "-o", target, image / "python")
        text = target.read_text()
        parts = json.loads(text)["components"]
        print(f"  {len(parts)} components in {target.name}")
        listed = (ROOT / "deploy/constraints.txt").read_text().count("==")
        assert len(parts) >= listed, (len(parts), listed)
        private = [place for place in (str(release.work), str(ROOT)) if place in text]
        assert not private, f"{target.name} names {private}"


def write_sums(out: Path) -> None:
    """Write SHA256SUMS."""
    files = sorted(path for path in out.iterdir() if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    (out / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def find_python(version: str) -> str | None:
    """Program of a version such as 3.12: on the path, or installed by pyenv."""
    known = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for program in (*map(str, known), shutil.which(f"python{version}"), sys.executable):
        if program is None:
            continue
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return program
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the release, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="*", default=PYTHONS, help="versions or programs")
    parser.add_argument("--no-tests", action="store_true", help="without the quick tests")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="is emptied first")
    args = parser.parse_args(arguments)
    out = args.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="release-") as work:
        release = Release(Path(work), out)
        tools = release.environment("tools", sys.executable, *TOOLS)
        wheel = build(release, tools)
        check_metadata(release, tools)
        for wanted in args.python:
            program = wanted if "/" in wanted else find_python(wanted)
            if program is None:
                print(f"skipped Python {wanted}: it is not installed", flush=True)
            else:
                try_wheel(release, tools, wheel, program, tests=not args.no_tests)
        describe_image(release, wheel)
    write_sums(out)
    print(*(path.relative_to(out).as_posix() for path in sorted(out.rglob("*"))), sep="\n")
    print(f"{len(release.failed)} steps failed" + "".join(f"\n  {t}" for t in release.failed))
    return int(bool(release.failed))


if __name__ == "__main__":
    sys.exit(main())
