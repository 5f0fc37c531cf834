"""Restore a whole database: write the rows of another database below the managers.

A restore takes several steps, each a transaction. It can stop after any step and continue later. From the first step to
the last, no program can open the database: ``info.compatible_from`` is beyond every format. A program that has opened
the database before finds no path, because the restore writes the guard rows below the root last. It can create nothing,
because the root has a mark that does not expire. Meanwhile ``info.epoch`` has the source and the progress of the
restore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Protocol
from uuid import UUID, uuid5

from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.port.format import RESTORED, RESTORING

Row = tuple[Any, ...]
Rows = Mapping[str, Sequence[Row]]
"""Whole rows by table, with their columns in the order of :data:`COLUMNS`. Ids of operations are strings."""

NEVER: Final = 1 << 60
"""The expiry of the root's mark (µs since 1970)."""

_NAMESPACE: Final = UUID("5c0d3f6e-6f3c-4d0b-9d0a-1b7b6f0a3d52")

_AUDIT = "created_by created_at modified_by modified_at"
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    table: tuple(names.split())
    for table, names in {
        "guard": "id parent_id kind family name key fold state in_use scope_version dropped_at mark marked_at "
        "marked_until quiet_until",
        "entity": f"id version doc {_AUDIT}",
        "owned": f"owner_id kind name id version doc {_AUDIT}",
        "relation": f"from_id kind slot column_id value id to_id version {_AUDIT}",
        "operation": "operation_id ordinal seq entity_id version owner_id kind action principal time path_before "
        "path_after changes scope_version in_use doc attempt deadline digest result format fences "
        "other_id other_path parent_id name fold state family key through",
        "info": "id format compatible_from epoch origin collected_seq last_id last_seq forgotten past_from",
    }.items()
}
"""The columns of each table that is restored."""

_SEQ: Final = COLUMNS["operation"].index("seq")


def stored(table: str, rows: Sequence[Row]) -> tuple[tuple[str, ...], Sequence[Row]]:
    """Return the columns and rows to write. Each row with a position says that it was restored."""
    if table != "operation":
        return COLUMNS[table], rows
    return (*COLUMNS[table], "writer"), [(*row, None if row[_SEQ] is None else RESTORED) for row in rows]


class Ending(NamedTuple):
    """The rows and values that a restore writes at its end."""

    top: Sequence[Row]
    """The guard rows below the root."""
    collected_seq: int
    forgotten: int
    epoch: str


class Restorer(Protocol):
    """The three steps of a restore. ``token`` identifies its source; the marks grow, and show its progress."""

    def begin(self, token: str, last_id: int, last_seq: int) -> int:
        """Begin in an empty database, and draw its numbers up to these; or continue a restore.

        Return the last mark; 0: nothing is written yet.

        Raises InvalidArgument for a database that is not empty, or into which another source is being restored.
        """

    def write(self, token: str, last: int, mark: int, rows: Rows) -> None:
        """Write all rows, and note ``mark``. Raises InvalidArgument if the last noted mark is not ``last``."""

    def finish(self, token: str, last: int, ending: Ending) -> None:
        """Write the ending, and open the database for use."""


class Under(NamedTuple):
    """A restore that is under way, as ``info.epoch`` describes it."""

    token: str
    mark: int
    compatible_from: int
    """The value that ``info`` had before the restore."""

    def __str__(self) -> str:
        return f"restoring {self.token} {self.mark} {self.compatible_from}"


def mark_of(token: str) -> UUID:
    """Return the operation id of the mark on the root."""
    return uuid5(_NAMESPACE, token)


def under_way(epoch: str, compatible_from: int) -> Under | None:
    """Return the restore that is under way, from two columns of ``info``; None: no restore is."""
    word, *rest = epoch.split(" ")
    if word == "restoring" and len(rest) == 3:
        return Under(rest[0], int(rest[1]), int(rest[2]))
    if compatible_from == RESTORING:
        raise BackendUnavailable(
            "this database is a copy of one into which an import was not finished; it cannot continue here: "
            "drop the database, make and migrate another, and import again"
        )
    return None


def raise_taken() -> NoReturn:
    """Raise the error for a restore while another one is under way."""
    raise InvalidArgument(
        "the import of another file into this database was not finished; finish it with that file, or drop the "
        "database, make and migrate another"
    )


def raise_not_empty() -> NoReturn:
    """Raise the error for a database that contains something, or once did."""
    raise InvalidArgument(
        "ids and history can only be imported into an empty database, and this one holds or held something; create "
        "and migrate another, or export without ids and history"
    )


def raise_overtaken() -> NoReturn:
    """Raise the error for a step that another process has already done."""
    raise InvalidArgument("another process imports the same file into this database; let it finish")


def required(there: Under | None, token: str, last: int) -> Under:
    """Return the restore that is under way; it must have this source and last mark. Raises InvalidArgument."""
    if there is None or (there.token, there.mark) != (token, last):
        raise_overtaken()
    return there
