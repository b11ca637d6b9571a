"""The documentation is built without warnings and offline, and its links work."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.browser import FLAGS, Page, find_chromium

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "gpgc_dask"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the pages; warnings and unknown references are errors."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q"]
    done = subprocess.run(
        [*command, "-d", str(target / "doctrees"), str(DOCS), str(target / "html")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()
    return target / "html"


class Markup(HTMLParser):
    """Links, loaded files and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.add(attributes.get("id") or "")
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag in ("img", "script") and attributes.get("src"):
            self.loaded.append(attributes["src"])
        if tag == "link" and attributes.get("rel") == "stylesheet":
            self.loaded.append(attributes["href"])


def test_links_work_and_nothing_is_loaded_from_other_hosts(site):
    found = (path for path in site.rglob("*.html") if "_static" not in path.parts)
    pages = {path: Markup(path) for path in found}
    assert len(pages) > 25
    broken = []
    for path, page in pages.items():
        assert not [each for each in page.loaded if urlsplit(each).netloc], path.name
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            known = pages[target].ids if target in pages else None
            if not target.is_file() or (known is not None and fragment and fragment not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


@pytest.mark.parametrize("width", [420, 1400])
def test_formulas_are_drawn_without_network(site, width):
    """The page also fits the width of a phone."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = find_chromium()
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
        opened = Page(page).open(site / "how-it-works.html", "mjx-container svg")
        assert page.locator("mjx-container").count() > 50
        assert page.locator("mjx-merror").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.complaints == []
        assert opened.from_elsewhere() == []
        browser.close()


def test_every_notebook_is_a_page(site):
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        assert (site / "notebooks" / f"{notebook.stem}.html").is_file(), notebook.name


def test_every_command_and_option_is_documented(site):
    text = (site / "reference/commands.html").read_text()
    for command in ("ingest", "fit", "rank", "report", "certs"):
        assert f'id="gpgc-{command}"' in text
    assert 'id="cmdoption-gpgc-fit-resume"' in text
    assert "gpgc fit horses.zarr -o model.zarr" in re.sub(r"<[^>]+>", "", text)


def test_architecture_shows_the_enforced_layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [one["layers"] for one in contracts["contracts"] if one["type"] == "layers"]
    page = (DOCS / "architecture.md").read_text()
    assert "\n".join(layers) in page
    packages = {name.strip() for layer in layers for name in layer.split("|")} - {"__main__"}
    assert packages == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert packages == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_architecture_names_files_that_exist():
    """In the table of where to add things."""
    page = (DOCS / "architecture.md").read_text()
    section = page.split("## Where to add things")[1].split("\n## ")[0]
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", section))
    assert len(paths) > 10
    assert not {path for path in paths if not (PACKAGE / path).exists()}
    registered = re.findall(r"`([A-Z_]+)` in `([\w/]+\.py)`", section)
    assert len(registered) >= 5
    for name, path in registered:
        assert re.search(rf"^{name}\b", (PACKAGE / path).read_text(), re.MULTILINE), name


def messages():
    """All string literals of the package, with … for interpolated values."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (getattr(part, "value", "") for part in node.values)
                yield "".join(part if isinstance(part, str) else "…" for part in parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_troubleshooting_quotes_messages_of_the_package():
    """Text between quotes in headings; numbers are examples."""
    texts = "\n".join(messages())
    headings = re.findall(r"^### (.*)$", (DOCS / "troubleshooting.md").read_text(), re.M)
    quoted = [text for heading in headings for text in re.findall(r'"([^"]+)"', heading)]
    assert len(headings) >= 15
    assert len(quoted) >= 15
    for text in quoted:
        for piece in re.split(r"…|\S*\d\S*(?: GiB)?", text):
            assert piece.strip() in texts, f"{text!r}: no message contains {piece.strip()!r}"
