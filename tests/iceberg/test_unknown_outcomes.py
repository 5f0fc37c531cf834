"""Answers of the database that are lost: an unknown outcome is never called a failure, and loses no file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

import metastore as ms
from metastore.pyiceberg import MetastoreCatalog
from metastore.pyiceberg.once import Once
from tests.servers.proxy import Cut, PostgresProxy

ROWS = pa.table({"n": pa.array([1, 2], pa.int64())})
POINTER = b"metadata_location"


class _Disturbed:
    """A catalog whose connection goes through a proxy, and a second one that is not disturbed."""

    def __init__(self, proxy: PostgresProxy, catalog: MetastoreCatalog, calm: MetastoreCatalog) -> None:
        self.proxy, self.catalog, self.calm = proxy, catalog, calm

    def lose_the_answer(self) -> Cut:
        """Lose the answer of the next commit that writes a pointer."""
        return self.proxy.cut_after_send(lambda message: message[:1] == b"B" and POINTER in message)

    def lose_all_answers(self) -> Cut:
        """Lose that answer, and let no other message pass from then on."""
        cut = self.lose_the_answer()
        for _ in range(500):
            self.proxy.cut_before_send(lambda _: cut.fired.is_set())
        return cut


@pytest.fixture
def disturbed(postgres_address: tuple[str, int], postgres_url: str, tmp_path: Path) -> Iterator[_Disturbed]:
    properties = {"warehouse": f"file://{tmp_path}/warehouse"}
    with (
        PostgresProxy(*postgres_address) as proxy,
        ms.open(proxy.url_for(postgres_url), deadline=2.0) as store,
        ms.open(postgres_url) as other,
    ):
        other.metalakes.create("lake")
        other.catalogs.create("lake.ice", type="relational")
        calm = MetastoreCatalog.of_store(other, ("lake", "ice"), properties)
        calm.create_namespace("a")
        yield _Disturbed(proxy, MetastoreCatalog.of_store(store, ("lake", "ice"), properties), calm)


def test_a_lost_answer_is_looked_up(disturbed: _Disturbed) -> None:
    cut = disturbed.lose_the_answer()
    table = disturbed.catalog.create_table("a.t", ROWS.schema)
    assert cut.fired.is_set()
    cut = disturbed.lose_the_answer()
    table.append(ROWS)
    assert cut.fired.is_set()
    now = disturbed.calm.load_table("a.t")
    assert (now.scan().to_arrow().num_rows, len(now.metadata.snapshots)) == (2, 1)


def test_a_create_that_may_have_happened_keeps_its_file(disturbed: _Disturbed) -> None:
    cut = disturbed.lose_all_answers()
    with pytest.raises(CommitStateUnknownException):
        disturbed.catalog.create_table("a.t", ROWS.schema)
    assert cut.fired.is_set()
    disturbed.proxy.reset()
    assert disturbed.calm.load_table("a.t").scan().to_arrow().num_rows == 0  # it did happen


def test_a_commit_that_may_have_happened_keeps_its_files(disturbed: _Disturbed) -> None:
    disturbed.calm.create_table("a.t", ROWS.schema, properties={"commit.retry.num-retries": "0"})
    table = disturbed.catalog.load_table("a.t")
    disturbed.lose_all_answers()
    with pytest.raises(CommitStateUnknownException):
        table.append(ROWS)
    disturbed.proxy.reset()
    assert disturbed.calm.load_table("a.t").scan().to_arrow().num_rows == 2


def test_a_commit_to_several_tables_that_may_have_happened(disturbed: _Disturbed) -> None:
    commits = []
    for name in ("a.t", "a.u"):
        uuid = disturbed.calm.create_table(name, ROWS.schema).metadata.table_uuid
        commits.append((name, (AssertTableUUID(uuid=uuid),), (SetPropertiesUpdate(updates={"k": "v"}),)))
    disturbed.lose_all_answers()
    with pytest.raises(CommitStateUnknownException):
        disturbed.catalog.commit_tables(commits)
    disturbed.proxy.reset()
    assert [disturbed.calm.load_table(name).properties["k"] for name in ("a.t", "a.u")] == ["v", "v"]
    disturbed.lose_the_answer()
    again = (SetPropertiesUpdate(updates={"k": "w"}),)
    disturbed.catalog.commit_tables([(name, own, again) for name, own, _ in commits])
    assert [disturbed.calm.load_table(name).properties["k"] for name in ("a.t", "a.u")] == ["w", "w"]


def test_an_interrupt_deletes_no_file_that_a_commit_may_name(
    disturbed: _Disturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = disturbed.calm.create_table("a.t", ROWS.schema)
    tables = disturbed.calm.store.tables
    alter = tables.alter

    def interrupted(*arguments: object, **options: object) -> None:
        alter(*arguments, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "alter", interrupted)
    with pytest.raises(KeyboardInterrupt):
        table.append(ROWS)
    assert disturbed.catalog.load_table("a.t").scan().to_arrow().num_rows == 2


class _Meanwhile(Once):
    """Change a table after the attempt has read it, once."""

    def __init__(self, catalog: MetastoreCatalog, name: str) -> None:
        super().__init__(catalog.store)
        self._catalog, self._name = catalog, name

    def begin(self) -> dict[str, object]:
        if self._name:
            name, self._name = self._name, ""
            self._catalog.load_table(name).append(ROWS)
        return {}


def test_what_a_commit_requires_of_a_table_that_it_does_not_change_holds_at_the_commit(disturbed: _Disturbed) -> None:
    from pyiceberg.table.update import AssertRefSnapshotId

    calm = disturbed.calm
    for name in ("a.t", "a.u"):
        calm.create_table(name, ROWS.schema)
    empty = AssertRefSnapshotId.model_validate({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None})
    catalog = MetastoreCatalog.of_store(calm.store, ("lake", "ice"), calm.properties, _Meanwhile(calm, "a.u"))
    with pytest.raises(CommitFailedException, match="main"):
        catalog.commit_tables([("a.t", (), (SetPropertiesUpdate(updates={"k": "v"}),)), ("a.u", (empty,), ())])
    assert "k" not in calm.load_table("a.t").properties
