"""What each page shows, and that it is safe to show."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

import metastore as ms
from metastore.cli.app import run
from metastore.serve.console.asked import Asked, Shown
from metastore.serve.console.words import command
from metastore.verify.report import Report, write_report
from metastore.verify.violations import Violation
from tests.console.lake import HOSTILE, build
from tests.console.server import Console, Page, crawled, served

ORDERS: dict[str, Any] = {"path": "lake.sales.shop.orders", "kind": "table"}


def test_the_root_leads_to_the_console(console: Console) -> None:
    root = console.client.get(console.address.removesuffix("console/"))
    assert (root.status_code, root.headers["location"]) == (307, "console/")
    assert console.client.get(console.address.removesuffix("/")).headers["location"] == "console/"
    assert "lake" in console.get().text


def test_every_answer_has_the_headers(console: Console) -> None:
    for page in ("", "nothing", "style.css", "?path=lake.none", "feed?before=x"):
        headers = console.client.get(f"{console.address}{page}").headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'"), page
        assert "frame-ancestors 'none'" in policy, page
        assert "unsafe" not in policy, page
        assert headers["referrer-policy"] == "same-origin", page
        assert headers["cache-control"] == ("no-cache" if page == "style.css" else "no-store"), page
    kept = next(one for one in console.get().loads if "style.css" in one)
    assert "immutable" in console.client.get(kept).headers["cache-control"]


def test_lists_say_who_changed_what_when_and_how(console: Console) -> None:
    text = console.get(path="lake.sales.shop", kind="schema").text
    assert "Tables 1" in text
    assert re.search(
        r"orders Orders 4 columns renamed the column total to amount, and 1 more bob (just now|\d+ \w+ ago)", text
    )
    for kind in ("Views", "Filesets", "Topics", "Models", "Functions"):
        assert f"{kind} 1" in text


def test_pages_of_a_list_are_by_key(console: Console) -> None:
    console.store.tables.create_many(
        console.store.schemas.create("lake.sales.many", if_exists="return"),
        [{"name": f"t{n:03}"} for n in range(120)],
        if_exists="return",
    )
    page, names = console.get(path="lake.sales.many", kind="schema", list="table"), list[str]()
    for _ in range(5):
        names += re.findall(r"t\d{3}(?= 0 columns)", page.text)
        following = [link for link in page.links if "token=" in link]
        if not following:
            break
        assert "more than 50" in page.text
        page = Page(following[0], console.client.get(following[0]).text)
    assert names == [f"t{n:03}" for n in range(120)]
    assert "t119" in console.get(path="lake.sales.many", kind="schema", prefix="t11").text
    assert "This cannot be shown" in console.get(path="lake.sales.many", list="table", token="forged", status=400).text


def test_the_dropped_tab_says_what_it_held_and_how_it_comes_back(console: Console) -> None:
    page = console.get(path="lake.sales", kind="catalog", tab="dropped")
    old = next(one for one in console.store.schemas.dropped("lake.sales") if one.name == "old")
    assert "old 1 table · look inside bob" in page.text
    assert f"metastore restore lake.sales.old --id {old.id} --kind schema" in page.text
    (inside, *_) = [link for link in page.links if "at=" in link]
    assert "As" not in inside
    assert "t 0 columns created" in Page(inside, console.client.get(inside).text).text
    gone = console.get(path="lake.sales.shop.invoices", kind="table", status=404).text
    assert "invoices was here. bob dropped it" in gone
    assert "It held: 2 columns" in gone


def test_a_table_shows_everything_but_secrets(console: Console) -> None:
    page = console.get(**ORDERS)
    for text in (
        "decimal(10,2)",
        "The order",
        "pii = email",
        "gold from lake.sales",
        "keep from lake.sales",
        "ann",
        "1200",
    ):
        assert text in page.text, text
    assert "pk: primary (id)" in page.text
    assert "2026-11-24" in page.text
    assert "hunter" not in page.html
    assert "******" in page.text
    assert "secret:env:KEY" in page.text
    assert "https://example.com/x" in page.links
    assert not [link for link in page.links if link.startswith("javascript")]
    for other in (
        console.get("feed"),
        console.get("compare", **ORDERS, a=1, b=3, all=1),
        console.get(**ORDERS, tab="history"),
    ):
        assert "hunter" not in other.html
    (made,) = [one for one in console.store.changes() if one.kind == "model_version"]
    result = console.get("operation", id=str(made.operation_id)).text
    assert "******" in result
    assert "hunter" not in result


def test_secrets_deep_in_a_document(console: Console) -> None:
    """The names of secrets may stand anywhere: in the environment of a job, in the content of a policy."""
    store, path = console.store, "lake.uploads"
    template = store.job_templates.create(
        path, type="shell", executable="echo", environments={"DB_PASSWORD": "hunter3", "MODE": "daily"}
    )
    store.job_templates.alter(template, ms.SetTemplate({"environments": {"DB_PASSWORD": "hunter4", "MODE": "hourly"}}))
    store.policies.create(
        "lake.sealing", content={"rules": [{"client-secret": "hunter5"}], "passwords": {"db": "hunter6"}, "days": 30}
    )
    store.policies.alter("lake.sealing", ms.SetContent({"passwords": ["hunter7"]}))
    pages = {
        "place": console.get(path=path, kind="job_template"),
        "history": console.get(path=path, kind="job_template", tab="history"),
        "compare": console.get("compare", path=path, kind="job_template", a=1, b=2, all=1),
        "first policy": console.get(path="lake.sealing", kind="policy", version=1),
        "policy": console.get(path="lake.sealing", kind="policy"),
        "history of the policy": console.get(path="lake.sealing", kind="policy", tab="history"),
    }
    for name, page in pages.items():
        assert "hunter" not in page.html, name
    assert "hourly" in pages["place"].text
    assert "******" in pages["place"].text
    assert "******" in pages["policy"].text


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("lake.sales.shop.big", "view", "In spark select '<script>'"),
        ("lake.sales.shop.images", "fileset", "s3://lake/images"),
        ("lake.sales.shop.churn", "model", "prod default: s3://models/1"),
        ("lake.sales.shop.tax", "function", "x * 0.19"),
        ("lake.nightly", "job_template", "echo"),
        ("lake.run-1", "job", "queued"),
        ("lake.pii", "tag", "lake.sales.shop.orders email email"),
        ("lake.keep", "policy", "days"),
        ("lake.reader", "role", "allow select_table lake.sales.shop schema"),
        ("lake.analysts", "group", "Members User lake.narrow"),
        ("lake.ann", "user", "Owns Kind Path table lake.sales.shop.orders"),
    ],
)
def test_each_kind_shows_what_is_its_own(console: Console, path: str, kind: str, text: str) -> None:
    assert text in console.get(path=path, kind=kind, tab="details").text


def test_ten_thousand_columns_open_in_pages(console: Console) -> None:
    columns = [ms.Column(f"c{n}", "int") for n in range(10_000)]  # what a document of 1 MB holds
    console.store.tables.create("lake.sales.wide.t", parents=True, columns=columns, if_exists="return")
    first = console.get(path="lake.sales.wide.t", kind="table")
    assert "1 to 100 of 10,000" in first.text
    assert len(first.html) < 100_000
    assert "c9999" in console.get(path="lake.sales.wide.t", kind="table", column=9_900).text
    assert "c9999" in console.get(path="lake.sales.wide.t", kind="table", column=10**15).text


def test_who_may_and_why(console: Console) -> None:
    text = console.get("rights", **ORDERS, user="narrow", privilege="select_table").text
    assert "Yes: narrow may use select_table on lake.sales.shop.orders" in text
    assert "the role reader of the group analysts allows select_table on lake.sales.shop" in text
    assert "Who may read or change it 1 User select_table modify_table narrow yes" in text
    assert (
        "No: bob may not use modify_table" in console.get("rights", **ORDERS, user="bob", privilege="modify_table").text
    )


def test_two_versions_are_side_by_side(console: Console) -> None:
    text = console.get("compare", **ORDERS, a=1, b=3).text
    assert "~ amount total decimal(10,2) default 0 amount decimal(10,2) default 0" in text
    assert "+ currency currency string" in text
    assert "comment One row per order Orders" in text
    assert "email" not in text
    assert "Version 1" in console.get(**ORDERS, tab="details", version=1).text.replace("version 1", "Version 1")


def test_everything_that_changed_is_folded_as_a_tree(console: Console) -> None:
    page = console.get("changes", path="lake.sales", kind="catalog", from_="1 hour ago")
    assert re.search(r"shop \d+ ", page.text)
    assert "added the column currency (string)" in page.text
    assert page.html.count("<details") >= 3
    for wrong in ("yesterday-ish", "2026-13-45", "ffff-0000000000000000"):
        assert "This cannot be shown" in console.get("changes", path="lake.sales", from_=wrong, status=400).text


def test_what_takes_too_long_is_cut(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    """Differences are looked for before the first one is found: this took up to ten seconds, and then it was a 503."""
    monkeypatch.setattr("metastore.serve.console.times._SECONDS", 0.0)
    text = console.get("changes", path="lake.sales", kind="catalog", from_="1 hour ago").text
    assert "More than 0 differences; take a shorter time" in text
    first = next(iter(console.store.tables.history("lake.sales.shop.orders"))).time.isoformat()
    assert "The plan takes longer than a page may read" in console.get("revert", **ORDERS, to=first).text


def test_a_revert_is_a_plan_with_its_command(console: Console) -> None:
    first = next(iter(console.store.tables.history("lake.sales.shop.orders"))).time.isoformat()
    text = console.get("revert", **ORDERS, to=first).text
    assert "This page changes nothing" in text
    assert f"metastore revert lake.sales.shop.orders --to {first}" in text
    assert console.store.tables.load("lake.sales.shop.orders").version == 3


def test_any_page_as_of_a_moment(console: Console) -> None:
    first = next(iter(console.store.tables.history("lake.sales.shop.orders"))).time.isoformat()
    page = console.get(**ORDERS, at=first)
    assert "The past: as of" in page.text
    assert "currency" not in page.text
    assert "total" in page.text
    assert all("at=" in link for link in page.links if urlsplit(link).query.startswith("path=lake.sales.shop&"))
    assert "This cannot be shown" in console.get(**ORDERS, at="zzz", status=400).text


def test_the_feed_goes_back_to_the_beginning(console: Console) -> None:
    page, seen = console.get("feed"), list[str]()
    for _ in range(20):
        seen += re.findall(r'id="c-([^"]+)"', page.html)
        older = [link for link in page.links if "before=" in link]
        if not older:
            break
        link = re.sub(r"before=([^-&]+)-", r"before=\1t00000002-", older[0])  # another server gave the page before
        page = Page(link, console.client.get(link).text)
    assert seen == [one.position for one in console.store.changes()][::-1]
    assert "search-index" in console.get("feed").text
    assert set(re.findall(r'class="change a-(\w+)"', console.get("feed", under="lake.sales.shop.invoices").html)) == {
        "drop",
        "create",
    }


def test_the_feed_by_place_kind_and_principal(console: Console) -> None:
    text = console.get("feed", under="lake.sales.shop.orders", kind="table", by="bob").text
    assert "added the column currency (string)" in text
    assert set(
        re.findall(r"class=\"change a-(\w+)\"", console.get("feed", under="lake.sales.shop.orders", by="bob").html)
    ) == {"alter"}
    dropped = console.get("feed", did="drop")
    assert {"lake.sales.shop.invoices", "lake.sales.old"} <= set(dropped.text.split())
    assert set(re.findall(r'class="change a-(\w+)"', dropped.html)) == {"drop"}
    assert "got the tag lake.pii" in console.get("feed", kinds="tag_on").text


def test_search_finds_names_by_their_beginning(console: Console) -> None:
    assert "lake.sales.shop.orders" in console.get("search", q="ord").text
    assert "Nothing that you may see fits" in console.get("search", q="zzz").text
    assert "lake.sales.shop.orders" in console.get("search", q="*rder*", under="lake.sales", of="table").text
    assert "This cannot be shown" in console.get("search", q="x", of="nothing", status=400).text


def test_what_is_near_an_unknown_path(console: Console) -> None:
    page = console.get(path="lake.sales.shop.ordres", status=404)
    assert "lake.sales.shop.orders" in page.text
    for path in (
        "lake.sales.shop",
        "nothing.at.all",
        "..",
        "a\x00b",
        "x" * 1000,
        "",
        " ",
        "`",
        "lake..sales",
        "%2e%2e%2f",
    ):
        answer = console.client.get(console.address, params={"path": path, "kind": "table"})
        assert answer.status_code in (200, 400, 404), path


def test_a_hostile_name_is_a_name(console: Console) -> None:
    for name in HOSTILE:
        table = console.store.tables.load(("lake", "sales", "odd", name))
        for tab in (None, "history"):
            page = console.get(path=table.path, kind="table", tab=tab)
            assert not page.inline
            assert all(one.startswith(console.address) for one in page.loads)
            assert f"table {' '.join(name.split())}"[:100] in page.text
        assert " ".join(table.path.split()) in console.get("feed", under=table.path, kind="table").text


@pytest.mark.long
def test_every_link_leads_somewhere(console: Console) -> None:
    pages = crawled(console, alike=2)
    assert len(pages) > 80
    kinds = {parse_qs(urlsplit(address).query).get("kind", [""])[0] for address in pages}
    assert {one.kind for one in console.store.find("lake")} <= kinds


@pytest.mark.long
def test_every_link_of_every_page_leads_somewhere(url: str) -> None:
    with ms.open(url, principal="ada") as store:
        build(store)
    with served(url) as console:
        pages = crawled(console, alike=10_000)
        paths = {parse_qs(urlsplit(address).query).get("path", [""])[0] for address in pages}
        assert {one.path for one in console.store.find("lake")} <= paths


def test_an_operation_with_values_called_properties_has_a_page(console: Console) -> None:
    table = console.store.tables.create("lake.sales.shop.of_properties", columns=[ms.Column("properties", "string")])
    call = ms.new_operation_id()
    console.store.partitions.create(table, "p", values={"properties": "2024"}, operation_id=call)
    assert "'values': {'properties': '2024'}" in console.get("operation", id=str(call)).text
    console.store.tables.purge(table)


def test_bad_queries_are_told(console: Console) -> None:
    for page, query in (
        ("compare", {**ORDERS, "a": "x"}),
        ("compare", {**ORDERS, "a": "1" * 30}),
        ("feed", {"before": "x"}),
        ("feed", {"kinds": "no;kind"}),
        ("rights", {**ORDERS, "user": "bob", "privilege": "nonsense"}),
        ("operation", {"id": "x"}),
        ("", {"path": "lake", "kind": "x"}),
        ("", {**ORDERS, "tab": "contents", "at": "1 day ago "}),
        ("", {"at": "999999 weeks ago"}),
    ):
        answer = console.client.get(f"{console.address}{page}", params=query)
        assert answer.status_code in (400, 404), (page, query)
        assert "Something went wrong" not in answer.text
    assert "unknown" in console.get("operation", id=str(ms.new_operation_id())).text
    assert console.client.get(f"{console.address}a/b").status_code == 404
    assert console.client.get(f"{console.address}compare", params={**ORDERS, "page": 1}).status_code == 200
    assert console.client.get(f"{console.address}compare", params={**ORDERS, "a": 99, "b": 100}).status_code == 404


def test_a_command_is_safe_to_paste(console: Console) -> None:
    """A terminal obeys control characters, also between quotes: a link could run a command of its own."""
    sent = "\x1b[201~\x15it's\n\\"
    page = console.get("search", q=sent)
    copied = page.html.split('data-copy="')[-1].split('"')[0]
    assert "x1b" not in ascii(copied)
    assert "\\u001b" in copied
    words = command("find", "--name", sent)
    shown = subprocess.run(["bash", "-c", f"printf %s {words.split(' ', 3)[3]}"], capture_output=True, check=True)
    assert shown.stdout.decode() == sent


def test_a_search_goes_on_by_a_link(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metastore.serve.console.search._SECONDS", 60.0)  # a busy machine would stop it before its end
    assert "lake.sales.shop.orders" in console.get("search", q="CURRENCY", in_="texts").text
    assert "lake.sales.shop.orders" in console.get("search", q="example.com", in_="texts").text
    assert "Nothing that you may see fits" in console.get("search", q="hunter3", in_="texts").text
    assert "find lake --text ann" in console.get("search", q="ann", under="lake", in_="texts").text
    monkeypatch.setattr("metastore.serve.console.search._SECONDS", 1e-9)
    page, pages = console.get("search", q="one row per", under="lake", in_="texts"), 1
    while onward := [one for one in page.links if "token=" in one]:
        assert "So far it looked at" in page.text
        page, pages = Page(onward[0], console.client.get(onward[0]).text), pages + 1
        assert pages < 1000
    assert pages > 1
    assert "This is the end" in page.text or "There is nothing more" in page.text
    assert "damaged" in console.get("search", q="o", token="x", status=400).text


def test_contention_and_health(console: Console) -> None:
    table = console.store.tables.load("lake.sales.shop.orders")
    for who in ("bob", "carol"):  # carol comes second, with what bob has replaced
        console.store.bind(principal=who).tables.alter(table, ms.SetProperty("writer", who))
    ticket = console.store._session.backend.queue([table.id], 60.0)
    text = console.get("contention").text
    console.store._session.backend.leave([table.id], ticket)
    assert "carol alter bob operation lake.sales.shop.orders another change of the same entity" in text
    assert re.search(r"First waits lake\.sales\.shop\.orders 1 \d+\.\d s", text)
    assert "Hottest entities" in text
    assert "lake.sales.shop.orders" in text
    assert "before-the-sale" in text
    assert f"version {ms.__version__}" in console.get("health").text


def test_health_shows_the_last_reports(lake_url: str, tmp_path: Path) -> None:
    with served(lake_url, reports=tmp_path) as console:
        assert "There is no report" in console.get("health").text
        bad = Violation(2, 7, "lake.<b>", "it has no parent")
        report = Report(datetime(2026, 11, 29, tzinfo=UTC), 61.5, console.store.position(back=1), 1, (bad,))
        write_report(tmp_path / "verify.json", report)
        for n, started in enumerate(("2026-11-27T10:00:00.000+00:00", "2026-11-28T10:00:00.000+00:00")):
            (tmp_path / f"run{n}").mkdir()
            runs = [{"clients": 8, "operations_per_second": 123.4}]
            facts = {"scenario": "zipf", "started": started, "checked": True, "findings": [], "runs": runs}
            (tmp_path / f"run{n}" / "summary.json").write_text(json.dumps(facts))
        (tmp_path / "run1" / "summary.json").replace(tmp_path / "run0" / "summary.json")
        (tmp_path / "run1" / "summary.json").write_text("[1")
        text = console.get("health").text
        assert "invariants 1 violation began" in text
        assert "lake.<b> it has no parent" in text
        assert "began 2026-11-28 10:00:00+00:00 UTC clients 8 most operations a second 123.4" in text
        elsewhere = f"other-{report.position.rpartition('-')[2]}"
        write_report(tmp_path / "verify.json", replace(report, position=elsewhere))
        assert "is of another database" in console.get("health").text
        (tmp_path / "verify.json").write_text("{}")
        assert "is not a report of metastore verify" in console.get("health").text


def test_the_command_shows_the_reports_too(lake_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``metastore console --reports``: what it would serve has the folder."""
    (tmp_path / "verify.json").write_text("{}")
    shown: list[str] = []

    async def health(app: Any) -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return (await client.get("/console/health")).text

    def serve_application(app: Any, **_: object) -> None:
        shown.append(asyncio.run(health(app)))

    monkeypatch.setattr("metastore.serve.serve_application", serve_application)
    code = run(["--url", lake_url, "console", "--no-browser", "--reports", str(tmp_path)])
    assert (code, len(shown)) == (0, 1)
    assert "is not a report of metastore verify" in shown[0]


def test_a_database_that_is_away_is_told_and_tried_again(lake_url: str) -> None:
    with served(lake_url) as console:
        console.store.close()
        for path in ("", "feed", "contention", "?path=lake.sales"):
            answer = console.client.get(f"{console.address}{path}")
            assert answer.status_code == 503, path
            assert 'http-equiv="refresh"' in answer.text
            assert "sqlite" not in answer.text


@pytest.mark.long
def test_a_crowd_is_turned_away_and_the_api_answers(lake_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have threads and a line of their own."""
    go_on = threading.Event()

    def stuck(_: Asked) -> Shown:
        assert go_on.wait(30)
        return Shown("failure.html", "late", {"message": "late", "near": [], "again": None, "dropped": []})

    monkeypatch.setattr("metastore.serve.console.app.PAGES", {"place": stuck})
    with served(lake_url) as console, ThreadPoolExecutor(120) as clients:
        asked = [clients.submit(httpx.get, console.address, timeout=60) for _ in range(120)]
        busy = next(iter(as_completed(asked))).result()
        assert (busy.status_code, busy.headers["retry-after"]) == (503, "2")
        api = console.client.get(f"{console.address.removesuffix('console/')}api/metalakes")
        assert api.status_code == 200
        go_on.set()
        codes = Counter(one.result().status_code for one in asked)
        assert codes == {200: 104, 503: 16}


def test_a_damaged_row_is_named_and_the_others_are_shown(sqlite_url: str) -> None:
    with ms.open(sqlite_url, principal="ada") as store:
        build(store)
        damaged = store.tables.create("lake.sales.shop.broken").id
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as database:
        database.execute("update entity set doc = '{' where id = ?", (damaged,))
        database.execute("update operation set changes = '{', doc = '{' where entity_id = ?", (damaged,))
    database.close()
    with served(sqlite_url) as console:
        text = console.get(path="lake.sales.shop", kind="schema").text
        assert "broken damaged; see: metastore verify" in text
        assert "orders Orders" in text
        assert "This cannot be shown" in console.get(path="lake.sales.shop.broken", kind="table", status=500).text
        assert "lake.sales.shop.orders" in console.get("feed").text
