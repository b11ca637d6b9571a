"""A real browser for the pages that tests write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


def find_chromium() -> str:
    """Return the path of Chromium, or skip the test; fail if GPGC_BROWSER is "required"."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = "no Chromium found: install the package chromium to test pages in a browser"
        if os.environ.get("GPGC_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    return path


class Page:
    """A page opened from disk, with the errors and requests that it has made."""

    def __init__(self, page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._add(message))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))

    def _add(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path, wait: str = ".card") -> Page:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(wait)
        return self

    def names(self) -> list[str]:
        """Names of the images in view, in the order of the page."""
        return self.page.locator(".card .file").all_inner_texts()

    def from_elsewhere(self) -> list[str]:
        """Requests that are neither for the page itself nor for what is embedded in it."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
