"""``python -m tests.console.pictures`` makes the pictures of docs/console.md again."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Final

import metastore as ms
from tests.console.server import served
from tests.loadtest.browser import chromium

__all__ = ["main"]

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
ORDERS: Final = "path=lake.sales.shop.orders&kind=table"
PAGES: Final = {
    "console.png": ("?path=lake.sales.shop&kind=schema", "light"),
    "console-table.png": (f"?{ORDERS}", "light"),
    "console-rights.png": (f"rights?{ORDERS}&user=bob&privilege=select_table", "light"),
    "console-dropped.png": ("?path=lake.sales&kind=catalog&tab=dropped", "light"),
    "console-feed.png": ("feed", "light"),
    "console-contention.png": ("contention", "dark"),
}


def shop(store: ms.Store) -> None:
    """Fill a store with what a shop may have."""
    bob, cyn = store.bind(principal="bob"), store.bind(principal="cyn")
    store.metalakes.create("lake", comment="Everything that the shop knows")
    store.catalogs.create("lake.sales", type="relational", comment="Orders, customers and what they pay")
    store.catalogs.create("lake.web", type="messaging", comment="Clicks and searches")
    for name in ("ann", "bob", "cyn"):
        store.users.create(("lake", name))
    store.groups.create("lake.analysts")
    store.groups.add("lake.analysts", "lake.bob")
    store.roles.create("lake.reader")
    columns = (
        ms.Column("id", "long", nullable=False, comment="The order"),
        ms.Column("customer", "long", comment="Who ordered"),
        ms.Column("email", "string", comment="Where the bill goes"),
        ms.Column("total", "decimal(10,2)", default="0"),
        ms.Column("placed_at", "timestamptz(6)"),
        ms.Column("address", "struct<street: string, city: string, zip: varchar(10)>"),
    )
    about = {
        "customers": "Who buys here",
        "payments": "What was paid, and how",
        "refunds": "What came back",
        "shipments": "What left the house, and when",
        "invoices": "Bills, as they were sent",
    }
    orders = store.tables.create(
        "lake.sales.shop.orders",
        parents=True,
        columns=columns,
        partitioning=["day(placed_at)"],
        comment="One row per order",
        location="s3://lake/shop/orders",
        format="parquet",
        properties={"team": "shop", "runbook": "https://wiki.example.com/orders", "db-password": "x"},
    )
    for name, comment in about.items():
        cyn.tables.create(f"lake.sales.shop.{name}", columns=columns[: len(name) % 4 + 2], comment=comment)
    for name in ("stock", "returns_by_month", "suppliers"):
        bob.tables.create(f"lake.sales.old.{name}", parents=True, columns=columns[:3])
    store.tags.create("lake.pii", allowed_values=("email", "phone"))
    store.tags.attach(orders, "lake.pii", value="email", column="email")
    store.tags.create("lake.gold")
    store.tags.attach("lake.sales", "lake.gold")
    store.policies.create("lake.keep-30-days", content={"days": 30})
    store.policies.attach("lake.sales", "lake.keep-30-days")
    store.owners.set("lake.sales", "lake.ann")
    store.roles.grant("lake.reader", "use_catalog", "lake.sales")
    store.roles.grant("lake.reader", "use_schema", "lake.sales")
    store.roles.grant("lake.reader", "select_table", "lake.sales")
    store.roles.assign("lake.reader", "lake.analysts")
    store.views.create("lake.sales.shop.big_orders", representations=[ms.SQL("spark", "select * from orders")])
    store.topics.create("lake.web.events.clicks", parents=True)
    bob.tables.alter(orders, ms.AddColumn("currency", "string", after="total"))
    cyn.tables.alter(orders, ms.RenameColumn("customer", "customer_id"), ms.SetProperty("team", "checkout"))
    cyn.tables.rename("lake.sales.shop.refunds", "returns")
    cyn.tables.drop("lake.sales.shop.invoices")
    bob.schemas.drop("lake.sales.old", cascade=True)
    store.consumers.get("search-index", start="beginning")


def _write(store: ms.Store, number: int, stop: threading.Event) -> None:
    count = 0
    while not stop.is_set():
        count += 1
        table = "orders" if count % 3 else ("customers", "payments", "shipments")[number % 3]
        store.tables.alter(f"lake.sales.shop.{table}", ms.SetProperty(f"writer-{number}", str(count)))
        stop.wait(0.02)


def main() -> None:
    """Make a store, open its pages, and write the pictures."""
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/metastore.db"
        with ms.open(url, principal="ada") as store:
            shop(store)
        with served(url) as console, chromium() as browser:
            writers = [
                threading.Thread(target=_write, args=(console.store.bind(principal=f"loader-{n}"), n, stop))
                for n in range(6)
            ]
            for name, (path, scheme) in PAGES.items():
                page = browser.new_page(viewport={"width": 1240, "height": 760}, color_scheme=scheme)
                page.goto(f"{console.address}{path}")
                if name == "console-contention.png":
                    for one in writers:
                        one.start()
                    page.wait_for_timeout(25_000)
                page.screenshot(path=DOCS / name)
                page.close()
            stop.set()
            for one in writers:
                one.join()


if __name__ == "__main__":
    main()
