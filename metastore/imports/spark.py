"""Import every catalog that a Spark session sees, the Hive metastore included, through Spark's own catalog API.

The driver lists and describes the tables, because only it has a session. Each executor writes a share of them to the
store. Needs the extra [spark]. Repeat it as often as you like: a table that is up to date is not written. Changes that
people made here stay, including drops and renames. If a table has changed here and there since the last import, that is
reported as a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from pyspark.sql import Row, SparkSession

from metastore.clock import SYSTEM
from metastore.columns.column import Column
from metastore.errors import EntityAlreadyExists, InvalidArgument
from metastore.imports.counts import ImportCounts, Tell
from metastore.imports.places import OF_ONE, Place, Places, is_another
from metastore.imports.root import open_root
from metastore.kinds.change import Doc
from metastore.kinds.entity import Entity
from metastore.kinds.registry import kind_named
from metastore.kinds.view.document import SQL
from metastore.leases.lease import Lease
from metastore.names import Path, clean_name, format_path, parse_path
from metastore.spark.context import spark_context
from metastore.spark.types import columns_from_spark
from metastore.store import Store, open_store
from metastore.transaction.transaction import Transaction

__all__ = ["import_spark", "spark_session"]

_PRINCIPAL: Final = "import spark"
_SHARE: Final = 200
"""How many tables one task writes."""
_SECTIONS: Final = ("# Partition Information", "# Partitioning")
Names = tuple[str, ...]


class Described(NamedTuple):
    """A table or view as Spark describes it; it can be sent to an executor."""

    kind: str
    names: Names
    columns: tuple[Column, ...]
    comment: str | None
    properties: dict[str, str]
    partitioning: tuple[str, ...]
    location: str | None
    format: str | None
    text: str | None
    place: Place | None = None
    """Its place in the store; None if people have dropped it."""
    operation: UUID | None = None
    """The id of its creation: a task that Spark repeats does not make a table again that people dropped meanwhile."""


@contextmanager
def spark_session(master: str, options: Mapping[str, str]) -> Iterator[SparkSession]:
    """Give a session with these options of Spark, the Hive metastore's too, and stop it at the end."""
    builder = SparkSession.builder.master(master).appName("metastore import").config("spark.ui.enabled", "false")
    for key, value in options.items():
        builder = builder.config(key, value)
    if options.get("spark.sql.catalogImplementation") == "hive":
        builder = builder.enableHiveSupport()
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def import_spark(url: str, session: SparkSession, into: Path, *, progress: Tell | None = None) -> ImportCounts:
    """Import all catalogs of a session below the metalake ``into``, which is created if it is missing.

    The executors open ``url``, so it names a place that they reach. Raises InvalidArgument; EntityNotFound if people
    dropped the metalake; LeaseHeld if another import into it runs for too long.
    """
    lake = parse_path(into)
    if len(lake) != 1:
        raise InvalidArgument("Spark's catalogs are imported into a metalake, such as lake")
    outcome, tell = ImportCounts(), progress or (lambda _step, _share: None)
    described: list[Described] = []
    with open_store(url, principal=_PRINCIPAL) as store, open_root(store, lake, _PRINCIPAL) as root:
        places = Places(store, root, _PRINCIPAL)

        def place(kind: str, names: Names, **fields: Any) -> None:
            try:
                places.container(kind, (*lake, *map(clean_name, names)), **fields)
            except OF_ONE as error:
                outcome.failures.append(f"{kind} {'.'.join(names)}: {error}")

        for catalog in _words(session, "SHOW CATALOGS"):
            place("catalog", (catalog,), type="relational", provider="spark")
            for namespace in _namespaces(session, (catalog,), outcome.failures):
                place("schema", namespace, parents=True)
                outcome.namespaces += 1
                tables = _tables(session, namespace, outcome.failures)
                for number, name in enumerate(tables, 1):
                    one = _described(session, (*namespace, name))
                    if isinstance(one, Described):
                        described.append(one)
                    else:
                        outcome.failures.append(f"{'.'.join((*namespace, name))}: {one}")
                    tell(f"describing {'.'.join(namespace)}", number / len(tables))
        described = _placed(lake, places, described)
        if described:
            tell("importing", 0.0)
            _write(session, _writer(url, lake, root.lease.name, root.lease.token), described, outcome)
            for kind in ("table", "view"):
                places.remember(kind, {(*lake, *one.names): one.place for one in described if one.kind == kind})
            tell("importing", 1.0)
    return outcome


def _write(session: SparkSession, write: Any, described: list[Described], outcome: ImportCounts) -> None:
    shares = max(1, -(-len(described) // _SHARE))
    # this returns the session's own context, whose workers find the same modules as this process
    with spark_context(session.sparkContext.master) as context:
        written = context.parallelize(described, shares).mapPartitions(write).collect()
    outcome.written = sum(one is True for one in written)
    outcome.left = sum(one is False for one in written)
    outcome.failures += [one for one in written if isinstance(one, str)]


def _placed(lake: Names, places: Places, described: list[Described]) -> list[Described]:
    for kind in ("table", "view"):
        where = places.of(kind, [(*lake, *one.names) for one in described if one.kind == kind])
        described = [
            one._replace(place=where[*lake, *one.names], operation=SYSTEM.operation_id()) if one.kind == kind else one
            for one in described
        ]
    return described


def _words(session: SparkSession, statement: str) -> list[str]:
    return [row[0] for row in session.sql(statement).collect()]


def _quoted(names: Names) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def _shown(session: SparkSession, what: str, names: Names, failures: list[str]) -> list[Row]:
    """Return the rows that Spark lists in ``names``; add a failure if it was just dropped, or cannot be listed."""
    try:
        return list(session.sql(f"SHOW {what} IN {_quoted(names)}").collect())
    except Exception as error:  # noqa: BLE001  (one namespace stops nothing)
        failures.append(f"{'.'.join(names)}: {_said(error)}")
        return []


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"


def _namespaces(session: SparkSession, above: Names, failures: list[str]) -> Iterator[Names]:
    """Yield the namespaces below ``above`` that Spark lists, nested ones too."""
    for (text,) in _shown(session, "NAMESPACES", above, failures):
        names = (above[0], *parse_path(text))
        if len(names) > len(above):
            yield names
            # Spark's own catalog has one level of namespaces
            if session.conf.get(f"spark.sql.catalog.{above[0]}", None) is not None:
                yield from _namespaces(session, names, failures)


def _tables(session: SparkSession, namespace: Names, failures: list[str]) -> list[str]:
    """Return the names of tables and views; a session's temporary views are in no catalog."""
    rows = [row.asDict() for row in _shown(session, "TABLES", namespace, failures)]
    names = {row["tableName"] for row in rows if not row["isTemporary"]}
    return sorted(names)


def _described(session: SparkSession, names: Names) -> Described | str:
    """Return Spark's description of a table; a text instead says why it cannot be read."""
    try:
        rows = [tuple(row) for row in session.sql(f"DESCRIBE TABLE EXTENDED {_quoted(names)}").collect()]
        columns = columns_from_spark(session.table(_quoted(names)).schema)
        said = {key: value for key, value, *_ in rows[_details(rows) :] if key and not key.startswith("#")}
        kind = "view" if said.get("Type") == "VIEW" else "table"
        return Described(
            kind,
            tuple(clean_name(name) for name in names),
            tuple(columns),
            said.get("Comment") or None,
            _properties(session, names, said.get("Table Properties") or ""),
            tuple(_partitioning(rows)) if kind == "table" else (),
            said.get("Location") if kind == "table" else None,
            said.get("Provider") if kind == "table" else None,
            said.get("View Text"),
        )
    except Exception as error:  # noqa: BLE001  (whatever a source raises: one table stops nothing)
        return _said(error)


def _details(rows: list[tuple[Any, ...]]) -> int:
    """Return the index at which the details begin: after the columns and the partitioning."""
    heads = [at for at, row in enumerate(rows) if str(row[0]).startswith("# Detailed")]
    return heads[0] + 1 if heads else len(rows)


def _properties(session: SparkSession, names: Names, text: str) -> dict[str, str]:
    """Return the properties that ``[a=b,c=d]`` shows.

    A value may have commas, so the statement SHOW TBLPROPERTIES reads them.
    """
    if not text.strip("[]"):
        return {}
    rows = session.sql(f"SHOW TBLPROPERTIES {_quoted(names)}").collect()
    return {row[0]: row[1] for row in rows if row[0] and f"{row[0]}=" in text}


def _partitioning(rows: list[tuple[Any, ...]]) -> Iterator[str]:
    """Yield the columns, or the transforms, by which a table is partitioned."""
    inside = False
    for name, kind, *_ in rows:
        if name in _SECTIONS:
            inside = True
        elif inside and (not name or name.startswith("# Detailed")):
            return
        elif inside and not name.startswith("#"):
            yield kind if name.startswith("Part ") else f"`{name}`" if not name.isidentifier() else name


def _writer(url: str, lake: Names, name: str, token: int | None) -> Any:
    """Return the function that an executor runs. For each table of its share it yields whether it wrote it, or why not.

    ``name`` and ``token``: the driver's lease, without which it writes nothing.
    """

    def write(share: Iterable[Described]) -> Iterator[bool | str]:
        with open_store(url, principal=_PRINCIPAL) as store:
            lease = store.leases.join(name, cast(int, token))
            for one in share:
                try:
                    yield one.place is not None and (
                        _made(store, one, one.place, lease) or _written(store, lake, one, one.place, lease)
                    )
                except OF_ONE as error:
                    yield f"{one.kind} {format_path(one.names)}: {error}"

    return write


def _made(store: Store, one: Described, place: Place, lease: Lease) -> bool:
    """Make a table or view; False if it was known before, or its name is taken."""
    if place.known or place.taken_by is not None:
        return False
    manager: Any = store.manager(one.kind)
    with suppress(EntityAlreadyExists):
        manager.create(place.path, operation_id=one.operation, lease=lease, **_fields(one))
        return True
    return False


def _written(store: Store, lake: Names, one: Described, place: Place, lease: Lease) -> bool:
    """Update a table or view; False if it stays as it is. Raises EntityAlreadyExists if it was made or changed here."""
    path, kind, fields = place.path, kind_named(one.kind), _fields(one)
    place.require_free()
    own = {name: value for name, value in fields.items() if name not in ("comment", "properties")}

    def wanted(before: Doc) -> Doc:
        return kind.replaced(before, one.comment, one.properties, own)

    def write(tx: Transaction) -> bool:
        manager: Any = tx.manager(one.kind)
        (here,) = manager.load_many([path])
        if here is None:
            if not place.known:  # the entity with this name is of another kind
                raise EntityAlreadyExists(format_path(path))
            return False  # people dropped or moved the entity just now
        now = dict(here.doc)
        if wanted(now) == now:
            return False
        imported = _imported(store, here)
        if imported is None or is_another(store, one.kind, place, (*lake, *one.names)):
            raise EntityAlreadyExists(
                format_path(path), "it was not created by an import of the same name; it stays unchanged"
            )
        if imported != now:
            if wanted(imported) == imported:
                return False
            raise EntityAlreadyExists(
                format_path(path), "it was changed both here and in Spark; it stays unchanged here"
            )
        return bool(manager.create(path, if_exists="replace", **fields).doc != here.doc)

    return bool(store.run(write, lease=lease))  # the commit validates what ``write`` read


def _imported(store: Store, here: Entity) -> Doc | None:
    """Return the document that the last import gave to an entity; None if no import did."""
    manager: Any = store.manager(here.kind)
    versions = [one.entity for one in manager.history(here) if one.entity and one.principal == _PRINCIPAL]
    return dict(versions[-1].doc) if versions else None


def _fields(one: Described) -> dict[str, Any]:
    given = {"columns": one.columns, "comment": one.comment, "properties": one.properties}
    if one.kind == "view":
        return given | {"representations": [SQL("spark", one.text or "")] if one.text else []}
    return given | {"partitioning": one.partitioning, "location": one.location, "format": one.format}
