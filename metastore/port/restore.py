"""What it takes to put a whole database back: rows as they were in another one, written below the managers.

It is done in steps, each a transaction, and can be stopped after any of them. From the first to the last no program
opens the database (``info.compatible_from`` is beyond every format), and in one that has it open already, no path
leads anywhere (the guard rows below the root come last) and nothing can be created (the root carries a mark that does
not expire). ``info.epoch``, which nobody needs meanwhile, says what is being restored, and how far it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol
from uuid import UUID, uuid5

from metastore.errors import BackendUnavailable, InvalidArgument

__all__ = [
    "COLUMNS",
    "NEVER",
    "RESTORING",
    "Ending",
    "Restorer",
    "Row",
    "Rows",
    "Under",
    "mark_of",
    "raise_not_empty",
    "raise_overtaken",
    "raise_taken",
    "under_way",
]

Row = tuple[Any, ...]
Rows = Mapping[str, Sequence[Row]]
"""Whole rows by table, their columns in the order of :data:`COLUMNS`. Ids of operations are strings."""

RESTORING: Final = 2**31 - 1
"""The oldest format that can work with a database into which a restore is not finished."""

NEVER: Final = 1 << 60
"""When the root's mark expires (µs since 1970)."""

_NAMESPACE: Final = UUID("5c0d3f6e-6f3c-4d0b-9d0a-1b7b6f0a3d52")

_AUDIT = "created_by created_at modified_by modified_at"
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    table: tuple(names.split())
    for table, names in {
        "guard": "id parent_id kind family name key fold state in_use scope_version dropped_at mark marked_at "
        "marked_until quiet_until",
        "entity": f"id version doc {_AUDIT}",
        "owned": f"owner_id kind name id version doc {_AUDIT}",
        "operation": "operation_id ordinal seq entity_id version owner_id kind action principal time path_before "
        "path_after changes scope_version in_use doc attempt deadline digest result format fences",
        "info": "id format compatible_from epoch origin collected_seq last_id last_seq forgotten",
    }.items()
}
"""The columns of each table."""


class Ending(NamedTuple):
    """What a restore writes last."""

    top: Sequence[Row]
    """The guard rows below the root."""
    collected_seq: int
    forgotten: int
    epoch: str


class Restorer(Protocol):
    """The three steps. ``token`` names what is restored; the marks grow, and say how much of it is done."""

    def begin(self, token: str, last_id: int, last_seq: int) -> int:
        """Take an empty database, and draw its numbers up to these; or go on. Return the last mark; 0: none.

        Raises InvalidArgument for a database that is not empty, or into which something else is being restored.
        """
        ...

    def write(self, token: str, last: int, mark: int, rows: Rows) -> None:
        """Write rows, if ``last`` is the last mark, which is then ``mark``: all of it, or nothing."""
        ...

    def finish(self, token: str, last: int, ending: Ending) -> None:
        """Write what is missing, and let the database be used."""
        ...


class Under(NamedTuple):
    """A restore that is under way, as ``info.epoch`` says it."""

    token: str
    mark: int
    compatible_from: int
    """What ``info`` said before."""

    def __str__(self) -> str:
        return f"restoring {self.token} {self.mark} {self.compatible_from}"


def mark_of(token: str) -> UUID:
    """Return the operation that the root is marked by."""
    return uuid5(_NAMESPACE, token)


def under_way(epoch: str, compatible_from: int) -> Under | None:
    """Return the restore that is under way, from two columns of ``info``; None: there is none."""
    word, *rest = epoch.split(" ")
    if word == "restoring" and len(rest) == 3:
        return Under(rest[0], int(rest[1]), int(rest[2]))
    if compatible_from == RESTORING:
        raise BackendUnavailable(
            "this database is a copy of one into which an import was not finished; it cannot go on here: "
            "drop the database, make and migrate another, and import again"
        )
    return None


def raise_taken() -> NoReturn:
    """Raise the error for another restore than the one that is under way."""
    raise InvalidArgument(
        "the import of another file into this database was not finished; finish it with that file, or drop the "
        "database, make and migrate another"
    )


def raise_not_empty() -> NoReturn:
    """Raise the error for a database that holds something, or did."""
    raise InvalidArgument(
        "ids and history can only be imported into an empty database, and this one holds something, or did; make and "
        "migrate another, or export without ids and history"
    )


def raise_overtaken() -> NoReturn:
    """Raise the error for a step that somebody else has done."""
    raise InvalidArgument("another process imports the same file into this database; let it finish")
