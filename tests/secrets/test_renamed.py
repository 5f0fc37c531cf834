"""A catalog that is renamed has another scope version and the same settings: calls below it go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

import metastore as ms
from metastore.kinds.registry import KINDS
from metastore.managers.attempts.alter import alter, merge_of
from metastore.operation.request import Proposal, View
from metastore.operation.seals import Stale
from metastore.secrets.keyring import VARIABLE, new_key

PATTERNS = "metastore.secret-properties"
TABLE = KINDS["table"]
T = "m.c.s.t"


@pytest.fixture(params=["", "pin"], ids=["plain", "declared"])
def stores(
    request: pytest.FixtureRequest, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ms.Store, ms.Store]]:
    """Give two processes' stores; the catalog of the table declares something secret, or nothing."""
    monkeypatch.setenv(VARIABLE, new_key())
    with ms.open(sqlite_url) as ours, ms.open(sqlite_url) as other:
        ours.metalakes.create("m")
        for name in "cd":
            ours.catalogs.create(f"m.{name}", type="relational", properties={PATTERNS: "pin"} if request.param else {})
        ours.tables.create(T, parents=True, properties={"pin": "0"})
        yield ours, other


def renamed(store: ms.Store) -> None:
    """Rename the catalog, and back: its path leads to it, with another scope version."""
    store.catalogs.rename("m.c", "e")
    store.catalogs.rename("m.e", "c")


def declaring(store: ms.Store) -> None:
    """Let the catalog declare something else secret."""
    store.catalogs.alter("m.c", ms.SetProperty(PATTERNS, "other"))


def attempted(store: ms.Store, *, between: Any) -> Proposal[Any]:
    """Prepare an alter, let the other process do something, and return what the attempt proposes then."""
    session = store._session
    assert session.seals is not None
    seal = session.seals.seal(session.backend, TABLE, T)
    changes = seal.changes([ms.SetProperty("pin", "1")])
    merge = merge_of(TABLE, T, changes, seal.settled)
    between()
    attempt = alter(
        TABLE, T, changes, None, None if seal.declared.patterns else merge, None, seal, seal.announced(merge)
    )
    return cast(Proposal[Any], attempt(View(session.backend, False)))


def test_an_attempt_goes_on_after_a_rename(stores: tuple[ms.Store, ms.Store]) -> None:
    ours, other = stores
    proposal = attempted(ours, between=lambda: renamed(other))
    guards = {guard.id: guard.scope_version for guard in proposal.guards}
    assert proposal.merge is not None
    assert proposal.merge.settled is not None  # it is announced below the catalog as it is now
    assert guards[proposal.merge.settled[0]] == proposal.merge.settled[1]
    assert proposal.merge.evidence in ((), (proposal.merge.settled,))


def test_an_attempt_begins_again_under_other_settings(stores: tuple[ms.Store, ms.Store]) -> None:
    ours, other = stores
    with pytest.raises(Stale):
        attempted(ours, between=lambda: declaring(other))


def test_an_attempt_begins_again_below_a_catalog_with_other_settings(stores: tuple[ms.Store, ms.Store]) -> None:
    ours, other = stores

    def swapped() -> None:
        other.catalogs.alter("m.d", ms.SetProperty(PATTERNS, "pin other"))
        other.tables.create("m.d.s.t", parents=True)
        for name, to in (("m.c", "e"), ("m.d", "c")):
            other.catalogs.rename(name, to)

    with pytest.raises(Stale):
        attempted(ours, between=swapped)


def test_calls_below_a_renamed_catalog_are_not_made_again(
    stores: tuple[ms.Store, ms.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To begin again takes as long as others need to rename the catalog once more."""
    ours, other = stores
    again: list[Stale] = []

    def noted(stale: Stale) -> None:
        again.append(stale)

    monkeypatch.setattr(Stale, "__init__", noted)
    for number in ("1", "2", "2"):  # the last one finds nothing to write
        ours.tables.alter(T, ms.SetProperty("pin", number))
        renamed(other)
    assert again == []
    assert ours.tables.load(T).version == 3


def test_a_replacement_is_announced_under_the_settings_that_it_was_decided_with(
    stores: tuple[ms.Store, ms.Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog declares its property secret after the commit lost, and before the change is announced."""
    ours, other = stores
    backend = ours._session.backend
    commit, write_down = backend.commit, backend.write_down

    def lost(given: Any) -> Any:
        monkeypatch.setattr(backend, "commit", commit)
        other.tables.alter(T, ms.SetComment("meanwhile"))
        return commit(given)

    def declared(entry: Any) -> Any:
        monkeypatch.setattr(backend, "write_down", write_down)
        declaring(other)
        return write_down(entry)

    monkeypatch.setattr(backend, "commit", lost)
    monkeypatch.setattr(backend, "write_down", declared)
    ours.tables.create(T, if_exists="replace", properties={"other": "plain text"})
    assert backend.write_down == write_down  # it was announced
    assert ours.reveal(T, "other") == "plain text"
