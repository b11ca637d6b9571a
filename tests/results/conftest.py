"""A browser for the pages that results write."""

from __future__ import annotations

import pytest

from tests.support.browser import FLAGS, find_chromium


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_chromium()
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()
