"""Read Gravitino's tables in one read-only snapshot, for any version of its schema.

A table or a column that an older version does not have reads as empty, or as its default. Names of tables and columns
are the same on PostgreSQL, MySQL and H2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from metastore.errors import InvalidArgument
from metastore.imports.gravitino.h2 import load_script

__all__ = ["Row", "Source", "engine_of", "open_source", "said"]

Row = Mapping[str, Any]
_CHUNK: Final = 2000
_DRIVERS: Final = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}


class Source:
    """Gravitino's database at one instant."""

    def __init__(self, connection: Connection, schema: str | None) -> None:
        self._connection = connection
        inspector = sa.inspect(connection)
        self._tables = {
            name.lower(): sa.table(
                name, *[sa.column(c["name"]) for c in inspector.get_columns(name, schema)], schema=schema
            )
            for name in inspector.get_table_names(schema)
            if name.lower().endswith(("_meta", "_info", "_rel", "_securable_object"))
        }
        if "metalake_meta" not in self._tables:
            raise InvalidArgument("this is not the database of a Gravitino server: it has no table metalake_meta")

    def rows(self, table: str, **wanted: object) -> Iterator[Row]:
        """Yield rows whose columns have these values (a list: one of them); without ``deleted_at``, only live rows.

        A column that this version does not have matches everything. Names of columns are in lower case.
        """
        there = self._tables.get(table)
        if there is None:
            return
        columns = {column.name.lower(): column for column in there.columns}
        if "deleted_at" in columns:
            wanted.setdefault("deleted_at", 0)
        query = sa.select(there)
        for name, value in wanted.items():
            if name in columns and value is not ...:
                column = columns[name]
                query = query.where(column.in_(value) if isinstance(value, list) else column == value)
        query = query.order_by(*[columns[name] for name in list(columns)[:1]])
        words = list(columns)
        for row in self._connection.execute(query.execution_options(yield_per=_CHUNK)):
            yield dict(zip(words, row, strict=True))

    def newest(
        self, table: str, key: str, ids: Sequence[int], version: str = "version", **wanted: object
    ) -> dict[int, list[Row]]:
        """Return the live rows of ``ids``, by id, in the order of their versions. ``wanted``: as for :meth:`rows`."""
        newest: dict[int, list[Row]] = {}
        for start in range(0, len(ids), _CHUNK):
            for row in self.rows(table, **{key: list(ids[start : start + _CHUNK]), **wanted}):
                newest.setdefault(row[key], []).append(row)
        for rows in newest.values():
            rows.sort(key=lambda row: (row[version] is not None, row[version]))  # a damaged row has no version
        return newest


@contextmanager
def open_source(url: str) -> Iterator[Source]:
    """Open Gravitino's database. ``url``: a URL of PostgreSQL or MySQL, or the path of a script that H2 wrote.

    It writes nothing, and reads one snapshot, even while the server goes on writing. Raises InvalidArgument for a
    database that cannot be opened; the message says why.
    """
    if url.lower().endswith(".sql") or url.startswith("h2:"):
        with load_script(url.removeprefix("h2:")) as connection:
            yield Source(connection, None)
        return
    engine, schema = engine_of(url)
    backend = engine.dialect.name
    try:
        with engine.connect() as connection:
            if backend != "sqlite":
                connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                if backend == "postgresql":
                    connection.execute(sa.text("SET TRANSACTION READ ONLY"))
                yield Source(connection, schema)
    except sa.exc.DBAPIError as error:
        raise InvalidArgument(f"Gravitino's database cannot be read: {said(error)}") from None
    finally:
        engine.dispose()


def engine_of(url: str) -> tuple[sa.Engine, str | None]:
    """Return an engine for Gravitino's database, and the schema in it that the URL names. Raises InvalidArgument."""
    try:
        parsed = sa.make_url(url)
        parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
        schema = parsed.query.get("currentSchema")
        engine = sa.create_engine(parsed.difference_update_query(["currentSchema"]), poolclass=sa.NullPool)
    except (sa.exc.ArgumentError, ValueError):  # the error's text may show the URL, and with it the password
        raise InvalidArgument(
            "the URL of Gravitino's database cannot be used; give one such as postgresql://user:password@host/database"
        ) from None
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"Gravitino's database on MySQL needs {error.name}: pip install 'versioned-metastore[serve,mysql]'"
            if error.name == "pymysql"
            else f"the URL of Gravitino's database needs a driver that is not installed: {error.name}"
        ) from None
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        raise InvalidArgument(
            f"the URL of Gravitino's database cannot be used: {type(error).__name__}: {error}"
        ) from None
    try:
        engine.connect().close()
    except sa.exc.DBAPIError as error:
        raise InvalidArgument(f"Gravitino's database cannot be reached: {said(error)}") from None
    except (ValueError, TypeError, AttributeError) as error:  # drivers do not check their options
        what = type(error).__name__
        raise InvalidArgument(
            f"Gravitino's database cannot be reached: its driver does not take the URL's options ({what})"
        ) from None
    return engine, schema if isinstance(schema, str) else None


def said(error: sa.exc.DBAPIError) -> str:
    """Return the first line of a database's error; later lines may show a row, and its secrets."""
    first, *_ = str(error.orig).splitlines() or [""]
    return f"{type(error.orig).__name__}: {first}"
