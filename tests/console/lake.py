"""A store with an entity of each kind, with rights, tags, a past, and names that try to break pages."""

from __future__ import annotations

import metastore as ms

__all__ = ["HOSTILE", "build"]

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a.b",
    "tick`tick",
    "..",
    "a/../b",
    "a%2Fb",
    "a%0Ab",
    "{{ 7 * 7 }}",
    "&amp;",
    "x" * 255,
    "日本",
    "a b?c#d",
    "'; drop table guard; --",
)
"""Names that stores take, and that pages must show as they are."""
_COLUMNS = (
    ms.Column("id", "long", nullable=False, comment="The order"),
    ms.Column("email", "string"),
    ms.Column("total", "decimal(10,2)", default="0"),
)


def build(store: ms.Store) -> None:
    """Fill an empty store."""
    bob = store.bind(principal="bob")
    store.metalakes.create("lake", comment="All of it")
    store.catalogs.create("lake.sales", type="relational", comment="<b>bold</b> & more")
    for name in ("ann", "bob", "narrow"):
        store.users.create(("lake", name))
    store.groups.create("lake.analysts")
    store.groups.add("lake.analysts", "lake.narrow")
    store.roles.create("lake.reader")
    table = store.tables.create(
        "lake.sales.shop.orders",
        parents=True,
        columns=_COLUMNS,
        comment="One row per order",
        indexes=[ms.Index("pk", ("id",))],
        location="s3://lake/orders",
        properties={
            "docs": "https://example.com/x",
            "bad": "javascript:alert(1)",
            "db-password": "hunter2",
            "key": ms.secret("env:KEY"),
        },
    )
    store.tags.create("lake.pii", allowed_values=("email",))
    store.tags.attach(table, "lake.pii", value="email", column="email")
    store.tags.create("lake.gold")
    store.tags.attach("lake.sales", "lake.gold")
    store.policies.create("lake.keep", content={"days": 30})
    store.policies.attach("lake.sales", "lake.keep")
    store.owners.set(table, "lake.ann")
    bob.tables.alter(table, ms.AddColumn("currency", "string", after="total"), ms.SetComment("Orders"))
    bob.tables.alter(table, ms.RenameColumn("total", "amount"), ms.SetProperty("db-password", "secret:hunter3"))
    store.tables.create("lake.sales.shop.invoices", columns=_COLUMNS[:2])
    bob.tables.drop("lake.sales.shop.invoices")
    store.tables.create("lake.sales.old.t", parents=True)
    bob.schemas.drop("lake.sales.old", cascade=True)
    store.tables.create("lake.sales.hidden.secret_plans", parents=True, comment="nobody knows")
    _other_kinds(store, table)
    store.roles.grant("lake.reader", "use_catalog", "lake.sales")
    for word in ("use_schema", "select_table"):
        store.roles.grant("lake.reader", word, "lake.sales.shop")
    store.roles.assign("lake.reader", "lake.analysts")
    store.consumers.get("search-index", start="beginning")
    store.pin("before-the-sale")
    for name in HOSTILE:
        store.tables.create(("lake", "sales", "odd", name), parents=True, comment=name, properties={name: name})


def _other_kinds(store: ms.Store, table: ms.Table) -> None:
    store.views.create("lake.sales.shop.big", representations=[ms.SQL("spark", "select '<script>'\nfrom orders")])
    store.filesets.create("lake.sales.shop.images", locations={"default": "s3://lake/images"})
    store.models.create("lake.sales.shop.churn")
    store.topics.create("lake.sales.shop.clicks")
    tax = ms.Definition((ms.Column("x", "double"),), "double", (ms.Implementation("sql", "x * 0.19"),))
    store.functions.create("lake.sales.shop.tax", definitions=[tax])
    store.statistics.set(table, {"custom-rows": 1200})
    store.partitions.create(table, "2026-11-24", values={"day": "2026-11-24"})
    store.job_templates.create("lake.nightly", type="shell", executable="echo")
    store.jobs.create("lake.run-1", template="nightly", command={"executable": "echo"})
    secrets = {"password": "hunter2"}
    store.models.add_version(
        "lake.sales.shop.churn", uris={"default": "s3://models/1"}, aliases=("prod",), properties=secrets
    )
