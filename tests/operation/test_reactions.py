"""The table of reactions: it is what the docs say, and what operations do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest

import metastore as ms
from metastore.errors import MetastoreError
from metastore.operation.marks import OwnMark
from metastore.port.commit import Cause, Conflicted
from metastore.retry.reactions import NOBODY_WON, REACTIONS, Reaction
from metastore.store import Store
from tests.operation.ground import PATH, StillClock, session_of, store_on, store_with

DOCS: Final = Path(__file__).parents[2] / "docs" / "progress.md"
COLUMNS: Final = ("change", "exclusive", "other", "transaction", "helper")
CAUSES: Final = get_args(Cause)


def test_every_cause_has_its_row() -> None:
    assert list(REACTIONS) == [*CAUSES, "lost", "unavailable", "rejected"]
    assert {"lost", "serialization", "unavailable"} == NOBODY_WON


def test_the_docs_quote_the_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", DOCS.read_text(), re.MULTILINE)
    quoted = {cause: tuple(cell.strip() for cell in cells.split("|")) for cause, cells in rows if cause in REACTIONS}
    header = r"^\| cause \| change \| exclusive \| other \| transaction \| helper \| own mark \| token \|$"
    assert re.search(header, DOCS.read_text(), re.MULTILINE)
    assert quoted == {
        cause: (
            *(cast(Reaction, getattr(reactions, column)).value for column in COLUMNS),
            "yes" if reactions.own_mark else "",
            "yes" if reactions.nobody_won else "",
        )
        for cause, reactions in REACTIONS.items()
    }


class Once:
    """A backend whose next commit, or help, loses to a cause; it notes what is called from then on."""

    def __init__(self, inner: Any, method: str, cause: Cause) -> None:
        self._inner, self._method, self._cause = inner, method, cause
        self.calls: list[str] = []
        self.lost = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return self._noting(name, method) if callable(method) else method

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.lost:
                asks_for_others = name == "pending" and args[1] is None
                self.calls.append("help others" if asks_for_others else name)
            elif name == self._method:
                self.lost = True
                return Conflicted(self._cause, None, None)
            return method(*args, **kwargs)

        return call


def alter(store: Store) -> None:
    store.topics.alter(PATH, ms.SetComment("mine"))


def in_a_transaction(store: Store) -> None:
    with store.transaction() as tx:
        tx.topics.alter(PATH, ms.SetComment("mine"))


def helped(store: Store) -> None:
    topic = store.topics.load(PATH)
    session_of(store).hot.note(topic.id, ("topic", topic.names))
    alter(store)


CALLS: Final[dict[str, Callable[[Store], object]]] = {
    "change": alter,
    "exclusive": lambda store: store.topics.rename(PATH, "u"),
    "other": lambda store: store.topics.alter(PATH, ms.SetComment("mine"), expected_version=1),
    "transaction": in_a_transaction,
    "helper": helped,
}
SIGNS: Final = {
    Reaction.ANNOUNCE: "write_down",
    Reaction.MARK: "mark",
    Reaction.STEP_ASIDE: "marked",
    Reaction.LOOK: "confirm",
    Reaction.HELP: "help others",
}
"""The first call of the backend that shows a reaction."""


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("cause", CAUSES)
def test_they_do_what_the_table_says(column: str, cause: Cause) -> None:
    reaction: Reaction = getattr(REACTIONS[cause], column)
    clock = StillClock()
    once = Once(session_of(store_with(clock)).backend, "help" if column == "helper" else "commit", cause)
    store = store_on(once, clock)
    began = clock.monotonic()
    error: Exception | None = None
    try:
        CALLS[column](store)
    except (MetastoreError, AssertionError) as raised:
        error = raised
    assert once.lost
    if reaction in SIGNS:
        # a refused id: first of all, is there a row?
        assert once.calls[0] == ("steps" if cause == "stale_id" else SIGNS[reaction])
    elif reaction is Reaction.RAISE:
        assert error is not None
        assert "commit" not in once.calls
    else:
        assert error is None
        assert (clock.monotonic() > began) == (reaction is Reaction.BACK_OFF)


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if REACTIONS[cause].own_mark])
def test_a_mark_that_is_gone_is_looked_for_first(cause: Cause, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StillClock()
    once = Once(session_of(store_with(clock)).backend, "commit", cause)
    store = store_on(once, clock)
    asked: list[OwnMark] = []

    def is_gone(mark: OwnMark) -> bool:
        asked.append(mark)
        return False

    monkeypatch.setattr(OwnMark, "is_gone", is_gone)
    store.topics.rename(PATH, "u")
    assert len(asked) == 1
