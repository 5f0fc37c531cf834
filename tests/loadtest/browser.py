"""A page of our own in a real browser, and what the browser says of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.setup.browser import HINT, find_chromium


@contextmanager
def chromium() -> Iterator[Any]:
    """Give a headless Chromium; skip where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    program = find_chromium()
    if program is None:
        pytest.skip(HINT)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(program), args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page that is shown. ``said``: errors, and what was written to the console; ``asked``: all it requested."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def boxes(self, selector: str) -> list[tuple[float, float]]:
        """Return width and height of each element that is found."""
        script = "all => all.map(one => [one.getBoundingClientRect().width, one.getBoundingClientRect().height])"
        return [(width, height) for width, height in self.page.eval_on_selector_all(selector, script)]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found

    def color(self, selector: str, of: str) -> tuple[int, ...]:
        """Return a color of the first element that is found, as red, green, blue."""
        script = "(one, of) => getComputedStyle(one)[of]"
        text = self.page.eval_on_selector(selector, script, of)
        return tuple(int(part) for part in text.removeprefix("rgb(").removesuffix(")").split(","))


@contextmanager
def opened(browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> Iterator[Opened]:
    """Open a file."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    shown = Opened(page)
    page.on("console", lambda message: shown.said.append(message.text))
    page.on("pageerror", lambda error: shown.said.append(str(error)))
    page.on("dialog", lambda dialog: shown.said.append(dialog.message))  # and it stays: then the page does not load
    page.on("request", lambda request: shown.asked.append(request.url))
    page.goto(path.as_uri(), wait_until="load")
    yield shown
    page.close()
