"""Write to Gravitino's database: it is empty, or has an earlier export without later changes.

An export is one transaction. A table of ours, which Gravitino ignores, holds a hash of the last export. The next export
replaces the content only if the hash is still right. The table's row also locks out a second export at the same time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection

from metastore.errors import InvalidArgument
from metastore.exports.gravitino.entities import TablesRow
from metastore.imports.gravitino.lines import Standing, write_file
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Source, engine_of, said

__all__ = ["Target", "open_target"]

_MARK: Final = "versioned_metastore_export"
_TABLES: Final = (
    *("metalake_meta", "catalog_meta", "schema_meta", "table_meta", "table_version_info", "table_column_version_info"),
    *("view_meta", "view_version_info", "fileset_meta", "fileset_version_info", "topic_meta"),
    *("model_meta", "model_version_info", "model_version_alias_rel", "function_meta", "function_version_info"),
    *("tag_meta", "tag_relation_meta", "policy_meta", "policy_version_info", "policy_relation_meta"),
    *("user_meta", "group_meta", "role_meta", "role_meta_securable_object", "user_role_rel", "group_role_rel"),
    *("owner_meta", "statistic_meta", "partition_statistic_meta", "job_template_meta", "job_run_meta"),
)
"""The tables that an export fills. All other tables of the database stay as they are."""
_CHUNK: Final = 500
_BYTES: Final = {mysql.TINYTEXT: (1 << 8) - 1, mysql.TEXT: (1 << 16) - 1, mysql.MEDIUMTEXT: (1 << 24) - 1}
_COMMENTS: Final = "comment"


class Target:
    """The existing tables, and the rows that wait to be written."""

    def __init__(self, connection: Connection, schema: str | None) -> None:
        self._connection, self._schema = connection, schema
        self._tables = _tables(connection, schema)
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._unique: set[tuple[object, ...]] = set()
        self.rows = 0

    def has(self, table: str) -> bool:
        """Whether this version of Gravitino has a table."""
        return table in self._tables

    def problem(self, row: TablesRow) -> str | None:
        """Return why the tables cannot hold a row; None if they can. A comment that is too long is cut."""
        table, values = row
        if table not in self._tables:
            return f"this version of Gravitino has no {table}"
        for column in self._tables[table].columns:
            value = values.get(column.name.lower())
            if isinstance(value, str) and not column.name.lower().endswith(_COMMENTS):
                if "\0" in value:
                    return f"{column.name} has a character that no database takes"
                if _too_long(column, value):
                    return f"{column.name} is too long for the column"
        return self._taken(table, values)

    def _taken(self, table: str, values: dict[str, Any]) -> str | None:
        """Return why another row conflicts with this one: the store allows some pairs that Gravitino does not."""
        there = {column.name.lower() for column in self._tables[table].columns}
        keys: list[tuple[object, ...]] = []
        if table == "tag_relation_meta" and "tag_value" not in there:
            keys = [(table, *[values[name] for name in ("tag_id", "metadata_object_id", "metadata_object_type")])]
        elif table == "job_run_meta":
            keys = [(table, values["metalake_id"], values["job_execution_id"])]
        elif "external_id" in there and values.get("external_id") is not None:
            keys = [(table, values["metalake_id"], values["external_id"])]
        if any(key in self._unique for key in keys):
            return "another one there has the same place or id"
        self._unique.update(keys)
        return None

    def put(self, row: TablesRow) -> None:
        """Write a row, without the columns that this version of Gravitino does not have."""
        table, values = row
        columns = self._tables[table].columns
        kept = {c.name: _held(c, values[c.name.lower()]) for c in columns if c.name.lower() in values}
        waiting = self._waiting.setdefault(table, [])
        waiting.append(kept)
        self.rows += 1
        if len(waiting) >= _CHUNK:
            self._write(table)

    def flush(self) -> None:
        """Write the rows that wait."""
        for table in list(self._waiting):
            self._write(table)

    def _write(self, table: str) -> None:
        rows = self._waiting.pop(table, [])
        if rows:
            self._connection.execute(self._tables[table].insert(), rows)

    def read_back(self, stream: BinaryIO) -> Report:
        """Write the lines of an import from these tables into ``stream``; return the findings of that import."""
        report = Report()
        write_file(Source(self._connection, self._schema), stream, report, Standing(), ids=False)
        return report

    def begin(self) -> bool:
        """Remove an earlier export; return whether there was one. Raises InvalidArgument for any other content."""
        mark, connection = _mark(self._schema), self._connection
        known = sa.inspect(connection).has_table(_MARK, self._schema)
        left = connection.execute(sa.select(mark.c.content).with_for_update()).scalar() if known else None
        filled = [name for name, table in self._tables.items() if connection.execute(_first(table)).first()]
        if left is None:
            if filled:
                raise InvalidArgument(
                    f"Gravitino's database is not empty ({', '.join(filled[:3])}), and this program did not fill it; "
                    "export into a database that has Gravitino's tables and nothing in them"
                )
            connection.execute(mark.insert().values(id=1, content=""))
        elif filled and left != self.content():
            raise InvalidArgument(
                "Gravitino's database was changed since it was exported; import the changes first, "
                "or export into an empty database"
            )
        for table in self._tables.values():
            connection.execute(table.delete())
        return left is not None

    def content(self) -> str:
        """Return the hash of an import from these tables."""
        with tempfile.TemporaryFile() as stream:
            return write_file(Source(self._connection, self._schema), stream, Report(), Standing(), ids=False).hash

    def finish(self) -> None:
        """Write the hash of this export."""
        self._connection.execute(_mark(self._schema).update().values(content=self.content()))


@contextmanager
def open_target(url: str) -> Iterator[Target]:
    """Open Gravitino's database for one transaction, which is committed at the end. Raises InvalidArgument."""
    if url.lower().endswith(".sql") or url.startswith("h2:"):
        raise InvalidArgument("an export needs a database that runs: PostgreSQL, MySQL or MariaDB; H2 is read only")
    engine, schema = engine_of(url)
    try:
        with engine.begin() as connection:
            if _empty(connection, schema):
                _mark(schema).create(connection, checkfirst=True)
        with engine.begin() as connection:
            target = Target(connection, schema)
            yield target
    except sa.exc.DBAPIError as error:
        raise InvalidArgument(f"Gravitino's database cannot be written: {said(error)}") from None
    finally:
        engine.dispose()


def _empty(connection: Connection, schema: str | None) -> bool:
    """Return whether the tables are empty. Our own table is created only in an empty database."""
    return not any(connection.execute(_first(table)).first() for table in _tables(connection, schema).values())


def _first(table: sa.Table) -> sa.Select[Any]:
    return sa.select(sa.literal(1)).select_from(table).limit(1)


def _tables(connection: Connection, schema: str | None) -> dict[str, sa.Table]:
    names = {name.lower(): name for name in sa.inspect(connection).get_table_names(schema)}
    if "metalake_meta" not in names:
        raise InvalidArgument(
            "this database has no table metalake_meta; create Gravitino's tables first, by its script for this database"
        )
    metadata = sa.MetaData()
    there = [name for name in _TABLES if name in names]
    return {name: sa.Table(names[name], metadata, autoload_with=connection, schema=schema) for name in there}


def _mark(schema: str | None) -> sa.Table:
    columns = sa.Column("id", sa.Integer, primary_key=True, autoincrement=False), sa.Column("content", sa.String(64))
    return sa.Table(_MARK, sa.MetaData(), *columns, schema=schema)


def _too_long(column: sa.Column[Any], value: str) -> bool:
    return _room(column, value) < len(value)


def _room(column: sa.Column[Any], value: str) -> int:
    """Return how many characters of a text a column holds."""
    most: int | None = getattr(column.type, "length", None)
    if most is not None:
        return most
    limit = next((size for kind, size in _BYTES.items() if type(column.type) is kind), None)
    return len(value) if limit is None else len(value.encode()[:limit].decode(errors="ignore"))


def _held(column: sa.Column[Any], value: Any) -> Any:
    """Return a value as a column can hold it: a long comment is cut."""
    if not isinstance(value, str):
        return value
    text = value.replace("\0", "")
    return text[: _room(column, text)]
