"""Write the changes of a commit on SQLite, one by one, each with its row of history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from metastore.backends.precondition import PreconditionFailed, of_found
from metastore.backends.sql.reads import ENTITY, NODE
from metastore.backends.sqlite import relations
from metastore.backends.sqlite.checks import CLEARED, TAKEN, check_update
from metastore.backends.sqlite.text import is_no_text
from metastore.port.commit import Commit
from metastore.port.conditions import DROPPED, LIVE
from metastore.port.format import SCHEMA_FORMAT
from metastore.port.note import note_below, note_of
from metastore.port.records import Node, Record
from metastore.port.unreadable import damaged
from metastore.port.writes import Delete, Insert, Named, Put, Relate, Result, Update, Write

UNMARK = f"UPDATE guard SET {CLEARED} WHERE id = :id AND mark = :operation_id RETURNING 1"
_NAMED = f"""SELECT {NODE.format("g")}, {ENTITY} FROM guard g JOIN entity e ON e.id = g.id
WHERE g.parent_id = ? AND g.family = ? AND g.key = ? AND g.state = 0"""
_STANDS = """SELECT scope_version, in_use, parent_id, name, fold, state, family, key FROM guard WHERE id = ?"""


# the columns are named, because a newer program may have added a column
_ENTITY = """INSERT INTO entity (id, version, doc, created_by, created_at, modified_by, modified_at)
VALUES (?, 1, ?, ?, ?, ?, ?)"""
_OWNED = """INSERT INTO owned (owner_id, kind, name, id, version, doc, created_by, created_at, modified_by, modified_at)
VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, ?)"""


def next_id(connection: Any) -> int:
    """Draw an id."""
    ((new,),) = connection.execute("UPDATE info SET last_id = last_id + 1 RETURNING last_id").fetchall()
    return int(new)


def next_seq(connection: Any) -> int:
    """Draw a position in the feed."""
    ((new,),) = connection.execute("UPDATE info SET last_seq = last_seq + 1 RETURNING last_seq").fetchall()
    return int(new)


class Writer:
    """The writes of one commit, applied one by one."""

    def __init__(self, connection: Any, commit: Commit, now: int) -> None:
        self._connection = connection
        self._run = connection.execute
        self._commit = commit
        self._now = now
        self._logged = 0

    def write(self, write: Write) -> Result | None:
        if isinstance(write, Insert):
            return self._insert(write)
        if isinstance(write, Update):
            return self._update(write) if write.named is None else self._by_name(write, write.named)
        if isinstance(write, Put):
            return self._put(write)
        return self._relate(write) if isinstance(write, Relate) else self._delete(write)

    def _insert(self, write: Insert) -> Result | None:
        # a query, because an error of the unique index would not name the taken name
        sql = f"SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND {TAKEN}"
        if self._run(sql, (write.parent_id, write.family, write.key)).fetchone():
            if self._commit.skip_existing:
                return None
            raise PreconditionFailed("name", write.parent_id)
        row_id = next_id(self._connection) if write.id is None else write.id
        self._run(
            """INSERT INTO guard (id, parent_id, kind, family, name, key, fold, state, in_use, scope_version)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (row_id, write.parent_id, write.kind, write.family, write.name, write.key, write.fold, LIVE, True, 1),
        )
        by, now = self._commit.principal, self._now
        self._run(_ENTITY, (row_id, write.doc, by, now, by, now))
        place = (write.parent_id, write.name, write.fold, LIVE, write.family, write.key)
        return self._log(write, row_id, 1, None, (1, True, write.doc, *place))

    def _by_name(self, write: Update, named: Named) -> Result:
        """Apply an update of the entity that has the given name at this moment."""
        try:
            row = self._run(_NAMED, (named.parent_id, named.family, named.key)).fetchone()
        except Exception as error:
            if not is_no_text(error):
                raise
            raise PreconditionFailed("self") from None  # the next attempt reads the row, and reports the damage
        found: Record | None = None
        if row is not None:
            entity_id, kind, name, scope, in_use, folds, *body = row
            found = Record((Node(entity_id, kind, name, scope, bool(in_use), bool(folds)),), *body)
        return replace(self._update(of_found(write, found)), found=found)

    def _update(self, write: Update) -> Result:
        check_update(self._run, self._commit, write, self._now)
        if write.scope_version is not None:
            self._stand(write)
            self._run(UNMARK, {"id": write.id, "operation_id": str(self._commit.operation_id), "now": self._now})
            # the intents on the entity become *moved*; the attempt is raised, so that a late claim of such a row fails
            sql = """UPDATE operation SET action = 'moved', attempt = coalesce(attempt, 0) + 1
            WHERE entity_id = ? AND action = 'pending'"""
            self._run(sql, (write.id,))
        ((doc,),) = self._returned(
            write,
            write.id,
            """UPDATE entity SET version = version + 1, doc = coalesce(?, doc), modified_by = ?, modified_at = ?
            WHERE id = ? RETURNING doc""",
            (write.doc, self._commit.principal, self._now, write.id),
        )
        scope, in_use, *place = self._run(_STANDS, (write.id,)).fetchone()
        if write.scope_version is None or place[3] != LIVE:
            place[4:] = None, None  # the row does not take a name: it keeps its name, or gives it up
        result = self._log(write, write.id, write.version + 1, None, (scope, in_use, doc, *place))
        return result if write.scope_version is not None else replace(result, scope_version=scope)

    def _returned(self, write: Update | Delete, row_id: int, sql: str, parameters: tuple[Any, ...]) -> list[Any]:
        """Run a write of one row; return the values of its RETURNING clause. Raises UnreadableRow."""
        try:
            rows: list[Any] = self._run(sql, parameters).fetchall()
        except Exception as error:
            if not is_no_text(error):
                raise
            why = UnicodeError("one of its texts is not UTF-8")
            raise damaged(why, write.event.kind, row_id, write.version) from None
        return rows

    def _stand(self, write: Update) -> None:
        place = write.place
        if place is not None:
            sql = f"SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND {TAKEN} AND id <> ?"
            ((family,),) = self._run("SELECT family FROM guard WHERE id = ?", (write.id,)).fetchall()
            if self._run(sql, (place.parent_id, family, place.key, write.id)).fetchone():
                raise PreconditionFailed("name", place.parent_id)
        elif write.state == LIVE:
            sql = """SELECT 1 FROM guard g JOIN guard o USING (parent_id, family, key)
            WHERE g.id = ? AND o.id <> g.id AND (o.state = 0 OR o.state = 3)"""
            if self._run(sql, (write.id,)).fetchone():
                raise PreconditionFailed("name", write.id)
        self._run(
            """UPDATE guard SET scope_version = scope_version + 1, parent_id = coalesce(?, parent_id),
            name = coalesce(?, name), key = coalesce(?, key), fold = coalesce(?, fold), state = coalesce(?, state),
            in_use = coalesce(?, in_use), dropped_at = CASE ? WHEN 0 THEN NULL WHEN 1 THEN ? ELSE dropped_at END
            WHERE id = ?""",
            (
                *((place.parent_id, place.name, place.key, place.fold) if place else (None,) * 4),
                write.state,
                write.in_use,
                {LIVE: 0, DROPPED: 1}.get(-1 if write.state is None else write.state),
                self._now,
                write.id,
            ),
        )

    def _put(self, write: Put) -> Result:
        known = self._owned(write)
        by, now = self._commit.principal, self._now
        if known is not None:
            row_id, version = known
            self._run(
                "UPDATE owned SET version = version + 1, doc = ?, modified_by = ?, modified_at = ? WHERE id = ?",
                (write.doc, by, now, row_id),
            )
        else:
            row_id, version = next_id(self._connection), 0
            self._run(_OWNED, (write.owner_id, write.kind, write.name, row_id, write.doc, by, now, by, now))
        place = (write.owner_id, write.name, None, LIVE, write.kind, write.name)
        return self._log(write, row_id, version + 1, write.owner_id, (None, None, write.doc, *place))

    def _delete(self, write: Delete) -> Result:
        known = self._owned(write)
        assert known is not None
        row_id, version = known
        ((doc,),) = self._returned(write, row_id, "DELETE FROM owned WHERE id = ? RETURNING doc", (row_id,))
        place = (write.owner_id, write.name, None, DROPPED, None, None)
        return self._log(write, row_id, version + 1, write.owner_id, (None, None, doc, *place))

    def _relate(self, write: Relate) -> Result | None:
        commit = self._commit
        written = relations.write(
            self._run, write, lambda: next_id(self._connection), commit.principal, self._now, skip=commit.skip_existing
        )
        if written is None:
            return None
        row_id, version = written
        took = (DROPPED, None, None) if write.removes else (LIVE, write.kind, str(row_id))
        place = (write.from_id, str(row_id), None, *took)
        return self._log(write, row_id, version, write.from_id, (None, None, write.doc, *place), write.to_id)

    def _owned(self, write: Put | Delete) -> tuple[int, int] | None:
        """Return (id, version) of the row to write; None: it is new, as expected."""
        sql = "SELECT id, version FROM owned WHERE owner_id = ? AND kind = ? AND name = ?"
        row: tuple[int, int] | None = self._run(sql, (write.owner_id, write.kind, write.name)).fetchone()
        if row is not None and write.version == 0:
            raise PreconditionFailed("name", row[0], row[1])
        if write.version > 0 and (row is None or row[1] != write.version):
            raise PreconditionFailed("self", row and row[0], row and row[1])
        if row is not None and write.id not in (0, row[0]):
            raise PreconditionFailed("self", row[0], row[1])
        return row

    def _log(
        self,
        write: Write,
        row_id: int,
        version: int,
        owner_id: int | None,
        after: tuple[Any, ...],
        other_id: int | None = None,
    ) -> Result:
        """Log a write. Ordinals have no gaps: a tombstone takes the first (see ``forbid``)."""
        seq = next_seq(self._connection)
        event, commit = write.event, self._commit
        digest = commit.caller.digest if commit.caller is not None and self._logged == 0 else None
        held = note_of(commit) if self._logged == 0 else note_below(commit)
        self._run(
            f"""INSERT INTO operation (writer, operation_id, ordinal, seq, entity_id, version, owner_id, kind, action,
            principal, time, path_before, path_after, changes, scope_version, in_use, doc, parent_id, name, fold, state,
            family, key, digest, fences, other_id, other_path)
            VALUES ({SCHEMA_FORMAT}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                *(str(commit.operation_id), self._logged, seq, row_id, version, owner_id, event.kind, event.action),
                *(commit.principal, self._now, event.path_before, event.path_after, event.changes, *after),
                *(digest, held, other_id, event.other_path),
            ),
        )
        self._logged += 1
        return Result(row_id, version, self._now)
