"""A user's create on PostgreSQL: its short statement leaves the rows that the general statement leaves."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import metastore as ms
from metastore.backends.postgres import create_owned
from metastore.port.commit import Commit
from tests.contract.authorized import prepare

TABLES = {"guard": "id", "entity": "id", "relation": "from_id", "operation": "coalesce(owner_id, entity_id)"}


def rows_of(url: str, made: ms.Table) -> dict[str, list[dict[str, Any]]]:
    """Return all rows of an entity and its owner, with names in the place of what differs between two creates."""
    found: dict[str, list[dict[str, Any]]] = {}
    with psycopg.connect(url.replace("+psycopg", "", 1), row_factory=psycopg.rows.dict_row) as connection:
        for table, column in TABLES.items():
            found[table] = connection.execute(f"SELECT * FROM {table} WHERE {column} = %s", [made.id]).fetchall()
    (relation,) = found["relation"]
    first, last = sorted(row["seq"] for row in found["operation"])
    assert first < last
    positions, ids = {first: "first", last: "last"}, {made.id: "id", relation["id"]: "relation"}
    names = {made.name: "name", str(relation["id"]): "relation"}
    times = {row["created_at"] for row in found["entity"]}
    assert times == {row["modified_at"] for row in found["entity"]}

    def shown(column: str, value: Any) -> Any:
        if column in ("operation_id", "digest") or value in times or "time" in column or column.endswith("_at"):
            return value is not None
        if column in ("seq", "through"):
            return positions.get(value, value)
        if column in ("name", "key") or isinstance(value, str):
            return names.get(value, value.replace(made.path, "path"))
        return ids.get(value, value) if column.endswith("id") else value

    every = {t: [{c: shown(c, v) for c, v in row.items()} for row in rows] for t, rows in found.items()}
    every["operation"].sort(key=lambda row: row["ordinal"])
    return every


@pytest.mark.parametrize("caller", [False, True], ids=["", "under an id of the caller"])
def test_it_leaves_the_rows_of_the_general_statement(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caller: bool
) -> None:
    taken: list[bool] = []
    fits = create_owned.fits

    def noted(commit: Commit) -> bool:
        taken.append(fits(commit))
        return taken[-1]

    with ms.open(postgres_url) as store:
        lake = prepare(store)
        lake.grant(lake.reader(), ("create_table", "catalog", "lake.sales"))
        ann = store.as_user("ann@corp")

        def create(name: str) -> ms.Table:
            return ann.tables.create(
                f"lake.sales.eu.{name}",
                columns=[ms.Column("a", "int")],
                comment="it's",
                properties={"k": "v"},
                operation_id=ms.new_operation_id() if caller else None,
            )

        monkeypatch.setattr(create_owned, "fits", noted)
        short = rows_of(postgres_url, create("short"))
        assert taken == [True]
        monkeypatch.setattr(create_owned, "fits", lambda commit: False)
        assert short == rows_of(postgres_url, create("general"))
        assert [row["ordinal"] for row in short["operation"]] == [0, 1]
        assert store.verify() == []
