"""A real browser for pages that the tests make."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking")


def find_chromium() -> str:
    """Its path. Without one the test is skipped, unless CI has said that there must be one."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        told = "no Chromium here: install the package chromium to test the report in a browser"
        if os.environ.get("GPGC_BROWSER") == "required":
            pytest.fail(told)
        pytest.skip(told)
    return found


class Page:
    """A page opened from disk, that remembers what it complained of and what it asked for."""

    def __init__(self, page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._hear(message))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))

    def _hear(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path, wait: str = ".card") -> Page:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(wait)
        return self

    def names(self) -> list[str]:
        """Of the images in view, in the order of the page."""
        return self.page.locator(".card .file").all_inner_texts()

    def from_elsewhere(self) -> list[str]:
        """Requests for anything but the page itself and what it carries."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
