"""A server with the console, in a thread of the test."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import uvicorn

import metastore as ms
from metastore.serve import Principals, application
from tests.servers.process import wait_until

__all__ = ["Console", "Page", "crawled", "served"]


class Page(HTMLParser):
    """What a page has: its links, forms, texts, and whether anything in it could run."""

    def __init__(self, address: str, html: str) -> None:
        super().__init__()
        self.address, self.html = address, html
        self.links: list[str] = []
        self.loads: list[str] = []
        self.inline: list[str] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._inside = tag
        if tag == "a" and not (given.get("href") or "#").startswith("#"):
            self.links.append(urljoin(self.address, given["href"] or ""))
        if tag in ("script", "img", "iframe", "link", "object", "embed"):
            self.loads.append(urljoin(self.address, given.get("src") or given.get("href") or ""))
        self.inline += [f"{tag} {name}" for name in given if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.inline.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """All that can be read."""
        return " ".join(" ".join(self.texts).split())


@dataclass
class Console:
    """A console that runs, and a client of it."""

    address: str
    client: httpx.Client
    store: ms.Store

    def get(self, page: str = "", *, status: int = 200, **query: object) -> Page:
        """Return a page."""
        given = {key.rstrip("_"): str(value) for key, value in query.items() if value is not None}
        answer = self.client.get(f"{self.address}{page}", params=given)
        assert answer.status_code == status, (answer.status_code, Page(self.address, answer.text).text[:500])
        return Page(str(answer.url), answer.text)


def crawled(console: Console, *, alike: int) -> dict[str, Page]:
    """Follow the links of every page; assert that each answers, and that nothing on it can run. Return the pages.

    ``alike``: how many pages are looked at whose addresses differ in values only: a path, a position, a version.
    """
    waiting, seen, shapes = [console.address], dict[str, Page](), Counter[object]()
    while waiting:
        address = waiting.pop()
        parts = urlsplit(address)
        query = parse_qs(parts.query)
        shape = (parts.path, tuple(query), *[query.get(key, [""])[0] for key in ("kind", "tab")])
        if address in seen or shapes[shape] >= alike:
            continue
        shapes[shape] += 1
        answer = console.client.get(address)
        page = seen[address] = Page(str(answer.url), answer.text)
        assert answer.status_code in (200, 300, 400, 403, 404, 410), (answer.status_code, address)
        assert "Something went wrong" not in page.text, address
        assert len(answer.content) <= 100_000, address
        assert not page.inline, (address, page.inline)
        assert all(one.startswith(console.address) for one in page.loads), (address, page.loads)
        waiting += [link.partition("#")[0] for link in page.links if link.startswith(console.address)]
    return seen


@contextmanager
def served(
    url: str,
    principals: Principals | None = None,
    *,
    admins: Iterable[str] | None = None,
    warehouses: Mapping[str, str] | None = None,
    reports: Path | None = None,
) -> Iterator[Console]:
    """Serve the console of a database. With ``admins`` each request is checked."""
    store = ms.open(url, principal="ada", admins=admins or ())
    rights = admins is not None
    app = application(store, warehouses=warehouses, principals=principals, authorization=rights, reports=reports)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert wait_until(lambda: server.started, 30.0)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(timeout=20) as client:
            yield Console(f"http://127.0.0.1:{port}/console/", client, store)
    finally:
        server.should_exit = True
        thread.join()
