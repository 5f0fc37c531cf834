"""The console in a real browser: what it shows live, how it looks, and that nothing is in its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.console.server import Console
from tests.loadtest.browser import chromium

ORDERS = "path=lake.sales.shop.orders&kind=table"
PAGES = (
    "",
    "?path=lake.sales&kind=catalog",
    "?path=lake.sales.shop&kind=schema",
    "?path=lake.sales&kind=catalog&tab=dropped",
    "?path=lake.sales.odd&kind=schema",
    f"?{ORDERS}",
    f"?{ORDERS}&tab=history",
    f"?{ORDERS}&at=1+second+ago",
    f"compare?{ORDERS}&a=1&b=3&all=1",
    f"rights?{ORDERS}&user=narrow&privilege=select_table",
    f"revert?{ORDERS}&to=1+second+ago",
    "changes?path=lake.sales&kind=catalog&from=1+hour+ago",
    "feed",
    "search?q=o",
    "search?q=e&in=texts",
    "contention",
    "health",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@dataclass
class Opened:
    """A page that is shown. ``said``: errors, and what its console says; ``asked``: all that it requested."""

    page: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, scheme: str = "light", **more: Any) -> Iterator[Opened]:
    """Open a page; assert at the end that it said nothing, and asked no other host."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    page = context.new_page()
    shown = Opened(page)
    page.on("console", lambda message: shown.said.append(message.text))
    page.on("pageerror", lambda error: shown.said.append(str(error)))
    page.on("request", lambda request: shown.asked.append(request.url))
    page.goto(address, wait_until="load")
    yield shown
    context.close()
    assert shown.said == []
    host = address.split("/console/", maxsplit=1)[0]
    assert all(one.startswith(host) for one in shown.asked), shown.asked


def test_changes_of_others_appear_by_themselves(console: Console, browser: Any) -> None:
    with opened(browser, f"{console.address}feed") as shown:
        shown.page.locator("#state", has_text="live").wait_for()
        before = shown.page.locator("#feed > li").count()
        for n in range(3):
            console.store.tables.create(f"lake.sales.shop.browser{n}", comment="<img src=x onerror=alert(1)>")
        shown.page.get_by_text("lake.sales.shop.browser2").wait_for(timeout=10_000)
        first = shown.page.locator("#feed > li").first.inner_text()
        assert "browser2" in first
        assert shown.page.locator("#feed > li").count() == before + 3
        shown.page.get_by_role("button", name="Pause").click()
        console.store.tables.drop("lake.sales.shop.browser0")
        shown.page.get_by_role("button", name="Go on").click()
        shown.page.locator("#feed > li.a-drop", has_text="browser0").wait_for(timeout=10_000)
        ids = shown.page.eval_on_selector_all("#feed > li", "all => all.map(one => one.id)")
        assert len(ids) == len(set(ids))


@pytest.mark.long
def test_contention_moves(console: Console, browser: Any) -> None:
    with opened(browser, f"{console.address}contention") as shown:
        shown.page.locator("#gauges svg polyline").first.wait_for(state="attached", timeout=15_000)


@pytest.mark.long
def test_ten_tabs_load_pages(console: Console, browser: Any) -> None:
    """A browser opens six connections to a server: a tab that nobody sees gives its own back."""
    context = browser.new_context()
    try:
        for _ in range(10):
            page = context.new_page()
            page.goto(f"{console.address}feed", wait_until="load", timeout=10_000)
            page.evaluate(
                "Object.defineProperty(document, 'hidden', {value: true});"
                "document.dispatchEvent(new Event('visibilitychange'))"
            )
    finally:
        context.close()


@pytest.mark.long
def test_it_works_without_a_script(console: Console, browser: Any) -> None:
    with opened(browser, console.address, java_script_enabled=False) as shown:
        for name in ("lake", "sales", "shop", "orders", "History", "compare"):
            shown.page.locator("main").get_by_role("link", name=name, exact=True).first.click()
        assert "Version 2" in shown.page.inner_text("main")
        shown.page.get_by_role("searchbox").fill("ord")
        shown.page.keyboard.press("Enter")
        shown.page.get_by_role("link", name="lake.sales.shop.orders", exact=True).wait_for()


@pytest.mark.long
def test_the_keyboard_is_enough(console: Console, browser: Any) -> None:
    with opened(browser, console.address) as shown:
        shown.page.keyboard.press("Tab")
        assert shown.page.evaluate("document.activeElement.className") == "skip"
        shown.page.keyboard.press("Enter")
        for _ in range(3):
            shown.page.keyboard.press("Tab")
            if shown.page.evaluate("document.activeElement.closest('td') !== null"):
                break
        focused = "getComputedStyle(document.activeElement).outlineStyle"
        assert shown.page.evaluate(focused) != "none"
        shown.page.keyboard.press("Enter")
        shown.page.wait_for_url("**kind=metalake**")


@pytest.mark.long
def test_a_copy_button_copies_exactly(console: Console, browser: Any) -> None:
    origin = console.address.removesuffix("/console/")
    with opened(browser, f"{console.address}?{ORDERS}") as shown:
        shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=origin)
        shown.page.get_by_role("button", name="Copy the path").click()
        shown.page.locator(".copy.done").first.wait_for()
        assert shown.page.evaluate("navigator.clipboard.readText()") == "lake.sales.shop.orders"


def test_a_frame_of_another_page_stays_empty(console: Console, browser: Any) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"{console.address.removesuffix('console/')}healthz")
    page.evaluate(
        "address => new Promise(done => { const f = document.createElement('iframe'); f.onload = done; f.src = address;"
        " document.body.append(f); })",
        console.address,
    )
    assert any("frame" in one.lower() for one in said)
    page.close()


@pytest.mark.long
def test_it_fits_from_420_to_1600_pixels(console: Console, browser: Any) -> None:
    for width in (420, 800, 1600):
        with opened(browser, console.address, width=width) as shown:
            for path in PAGES:
                shown.page.goto(f"{console.address}{path}")
                over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert shown.page.evaluate(over) <= 0, (path, width)


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (420, "light"), (420, "dark")])
def test_axe_finds_nothing(console: Console, browser: Any, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    with opened(browser, console.address, width=width, scheme=scheme) as shown:
        for path in PAGES:
            shown.page.goto(f"{console.address}{path}", wait_until="load")
            found = axe.run(shown.page)
            assert found.violations_count == 0, (path, found.generate_report())


def test_signing_in(guarded: Console, browser: Any) -> None:
    with opened(browser, f"{guarded.address}?{ORDERS}") as shown:
        shown.page.get_by_label("Token").fill("narrow-token")
        shown.page.get_by_role("button", name="Sign in").click()
        shown.page.get_by_role("heading", name="orders").wait_for()
        assert shown.page.get_by_role("link", name="Contention").count() == 0
        (cookie,) = shown.page.context.cookies()
        assert cookie["httpOnly"] is True
        assert cookie["sameSite"] == "Strict"
        shown.page.get_by_role("button", name="Sign out").click()
        shown.page.get_by_label("Token").wait_for()
        shown.page.goto(f"{guarded.address}?{ORDERS}")
        shown.page.get_by_label("Token").wait_for()
