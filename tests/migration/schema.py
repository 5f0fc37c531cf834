"""Is a database's schema the declared one? What Alembic's comparison sees, and what it does not.

Alembic overlooks the predicates of indexes, collations, triggers and sequences. So the catalog of
the database is compared, line by line, with that of a twin made straight from the declaration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from metastore.backends.sql.tables import metadata
from metastore.backends.sqlite.connect import DRIVER

__all__ = ["catalog", "connected", "differences", "make_declared", "run"]

_POSTGRES = (
    """SELECT format('column %s.%s %s collation %s not null %s default %s', c.relname, a.attname,
        format_type(a.atttypid, a.atttypmod), coalesce(l.collname, '-'), a.attnotnull,
        coalesce(pg_get_expr(d.adbin, d.adrelid), '-'))
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_collation l ON l.oid = a.attcollation
      LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
      WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'alembic_version'""",
    """SELECT 'index ' || indexdef FROM pg_indexes
      WHERE schemaname = 'public' AND tablename <> 'alembic_version'""",
    """SELECT format('constraint %s on %s: %s', conname, conrelid::regclass, pg_get_constraintdef(oid))
      FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0 AND contype <> 'n'
      AND conrelid::regclass::text <> 'alembic_version'""",
)
_SQLITE = (
    """SELECT 'column ' || t.name || '.' || c.name || ' ' || c.type || ' not null ' || c."notnull" || ' default '
        || coalesce(c.dflt_value, '-') || ' key ' || c.pk
      FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name <> 'alembic_version'""",
    """SELECT 'index on ' || t.name || ' unique ' || i."unique" || ' origin ' || i.origin || ' partial ' || i.partial
        || ' of ' || (SELECT group_concat(x.name || ' ' || x.coll || ' ' || x."desc")
          FROM pragma_index_xinfo(i.name) x WHERE x.key)
        || coalesce(' where ' || (SELECT substr(m.sql, instr(upper(m.sql), 'WHERE') + 6)
          FROM sqlite_master m WHERE m.name = i.name AND i.partial), '')
        || CASE i.origin WHEN 'c' THEN ' named ' || i.name ELSE '' END
      FROM sqlite_master t, pragma_index_list(t.name) i WHERE t.type = 'table' AND t.name <> 'alembic_version'""",
)
_OTHERS = {
    "postgresql": (
        """SELECT format('sequence %s cache %s by %s cycle %s', sequencename, cache_size, increment_by, cycle)
          FROM pg_sequences WHERE schemaname = 'public'""",
        """SELECT format('trigger %s on %s enabled %s', tgname, tgrelid::regclass, tgenabled)
          FROM pg_trigger WHERE NOT tgisinternal""",
    ),
    "sqlite": ("SELECT 'trigger ' || name || ' on ' || tbl_name FROM sqlite_master WHERE type = 'trigger'",),
}
_DECLARED_OTHERS = {
    "postgresql": {
        "sequence entity_id_seq cache 1 by 1 cycle f",
        "sequence change_seq cache 1 by 1 cycle f",
        "sequence cache_generation cache 1 by 1 cycle f",
        "trigger operation_announced on operation enabled O",
        "trigger guard_scope_bump on guard enabled O",
        "trigger operation_writer on operation enabled O",
        "trigger info_writer on info enabled O",
        "trigger info_writer_cleared on info enabled O",
    },
    "sqlite": {
        "trigger guard_scope_bump on guard",
        "trigger operation_writer on operation",
        "trigger operation_writer_resolved on operation",
        "trigger info_writer on info",
        "trigger info_writer_cleared on info",
    },
}


def _engine(url: str) -> Engine:
    """Make a plain engine, with the SQLite of our stores: two in one process undo each other's locks."""
    return create_engine(url, module=DRIVER) if url.startswith("sqlite") else create_engine(url)


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Open a connection, in a transaction that is committed at the end."""
    engine = _engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def run(url: str, *statements: str) -> None:
    """Run SQL in one transaction."""
    with connected(url) as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def make_declared(url: str) -> None:
    """Make the tables of the declaration in an empty database."""
    with connected(url) as connection:
        metadata.create_all(connection)


def catalog(url: str) -> set[str]:
    """Return what the database's own catalog says of its tables, one line for each thing."""
    with connected(url) as connection:
        queries = _POSTGRES if connection.dialect.name == "postgresql" else _SQLITE
        return {line for query in queries for line in connection.scalars(text(query))}


def differences(url: str, declared: str) -> list[str]:
    """Return every difference between a database and ``declared``, which :func:`make_declared` made."""
    found, wanted = catalog(url), catalog(declared)
    lines = [f"missing: {line}" for line in wanted - found] + [f"surplus: {line}" for line in found - wanted]
    with connected(url) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        lines += [
            f"alembic: {d}" for d in compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        ]
        others = {line for query in _OTHERS[connection.dialect.name] for line in connection.scalars(text(query))}
        expected = _DECLARED_OTHERS[connection.dialect.name]
    lines += [f"missing: {line}" for line in expected - others] + [f"surplus: {line}" for line in others - expected]
    return sorted(lines + ([] if _refuses(url) else ["the trigger refuses nothing"]))


def _refuses(url: str) -> bool:
    """Tell whether a silent change of the root's name is refused; what is tried is rolled back."""
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("UPDATE guard SET name = 'silent' WHERE id = 0")
    except DBAPIError:
        return True
    finally:
        engine.dispose()
    return False
