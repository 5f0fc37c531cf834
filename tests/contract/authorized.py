"""A metalake with two catalogs, and users, groups and roles in it; the ground of the tests of authorization."""

from __future__ import annotations

from dataclasses import dataclass

import metastore as ms
from metastore import Store
from metastore.kinds.entity import Entity

__all__ = ["Lake", "prepare"]


@dataclass(frozen=True)
class Lake:
    """``lake`` with ``sales.eu`` (tables ``orders``, ``refunds``) and ``hr.people`` (table ``salaries``)."""

    store: Store
    sales: Entity
    schema: Entity
    orders: Entity
    hr: Entity
    salaries: Entity

    def role(self, name: str, *grants: tuple[str, str, str], deny: bool = False, to: str = "ann@corp") -> Entity:
        """Make a role with (privilege, kind, path) grants, and give it to a user."""
        role = self.store.roles.create(("lake", name), if_exists="return")
        self.grant(role, *grants, deny=deny)
        self.store.roles.assign(role, self.store.users.load(("lake", to)))
        return role

    def grant(self, role: Entity, *grants: tuple[str, str, str], deny: bool = False) -> None:
        """Grant (privilege, kind, path) to a role."""
        for privilege, kind, path in grants:
            on = self.store.manager(kind).load(path)
            self.store.roles.grant(role, privilege, on, effect="deny" if deny else "allow")

    def reader(self, to: str = "ann@corp") -> Entity:
        """Let a user read the sales catalog."""
        words = ("use_catalog", "use_schema", "select_table")
        return self.role("reader", *[(word, "catalog", "lake.sales") for word in words], to=to)


def prepare(store: Store) -> Lake:
    """Make the lake."""
    store.metalakes.create("lake")
    sales = store.catalogs.create("lake.sales", type="relational")
    schema = store.schemas.create("lake.sales.eu")
    orders = store.tables.create("lake.sales.eu.orders", columns=[ms.Column("id", "long")])
    store.tables.create("lake.sales.eu.refunds")
    hr = store.catalogs.create("lake.hr", type="relational")
    store.schemas.create("lake.hr.people")
    salaries = store.tables.create("lake.hr.people.salaries")
    for name in ("ann@corp", "bob@corp"):
        store.users.create(("lake", name))
    return Lake(store, sales, schema, orders, hr, salaries)
