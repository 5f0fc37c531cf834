"""A page that has room for a part of an answer says so, and shows the part that matters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import metastore as ms
from tests.console.server import Console, served

MANY = 101
TABLE = "lake.c.s.t"


@pytest.fixture(scope="module")
def many(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """Serve a store in which many roles may read a schema, each of another user, and a table was dropped many times."""
    file = tmp_path_factory.mktemp("many") / "metastore.db"
    file.write_bytes(sqlite_template.read_bytes())
    with ms.open(f"sqlite:///{file}", principal="ada") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.c", type="relational")
        schema = store.schemas.create("lake.c.s")
        store.tables.create(TABLE)
        with store.transaction() as tx:
            one = tx.roles.create("lake.of_all")
            for privilege in ("use_catalog", "use_schema"):
                tx.roles.grant(one, privilege, "lake", kind="metalake")
            everybody = tx.groups.create("lake.everybody")
            tx.roles.assign(one, everybody)
            for n in range(MANY):
                role, user = tx.roles.create(f"lake.r{n:03}"), tx.users.create(f"lake.u{n:03}")
                tx.groups.add(everybody, user)
                tx.roles.grant(role, "select_table", schema)
                tx.roles.assign(role, user)
                tx.roles.assign(role, "lake.u000") if n else None
        for n in range(7):
            store.tables.create("lake.c.s.daily")
            store.tables.drop("lake.c.s.daily", principal=f"job{n}")
    with served(f"sqlite:///{file}") as console:
        yield console


def test_who_may_says_that_there_may_be_more(many: Console) -> None:
    text = many.get("rights", path=TABLE, kind="table").text
    assert "Who may read or change it at least 100" in text
    assert "Grants here and above more than 102" in text
    assert all(many.store.allowed(("lake", f"u{n:03}"), "select_table", TABLE) for n in (0, 50, MANY - 1))


def test_who_may_counts_what_it_shows_completely(many: Console) -> None:
    assert "Grants here and above 2 " in many.get("rights", path="lake.c", kind="catalog").text


def test_a_list_that_is_cut_says_so(many: Console) -> None:
    cut = "Only the first rows are shown; there are more."
    assert cut in many.get(path="lake.u000", kind="user").text
    assert cut in many.get(path="lake.everybody", kind="group").text
    assert cut not in many.get(path="lake.u001", kind="user").text


def test_of_many_that_were_dropped_here_the_last_ones_are_shown(many: Console) -> None:
    text = many.get(path="lake.c.s.daily", kind="table", status=404).text
    assert [who for who in text.split() if who.startswith("job")] == [f"job{n}" for n in (6, 5, 4, 3, 2)]
