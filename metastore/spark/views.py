"""Make the tables of a catalog temporary views of a Spark session (``register``).

The driver reads the catalog in pages. The URL stays on the driver, and out of the session's configuration. Views show
the catalog as it was when they were made: register again after it has changed. A view is named after the path below the
registered catalog or schema, with ``_`` between the names: ``lake.nyc.taxi.trips`` is ``taxi_trips`` of ``lake.nyc``.
If two would have one name (Spark ignores the case of letters), each is named by its path with dots, `` `a.b_c` ``; if
these are equal too, the id is added.

Views of the catalog that have a query in the dialect ``spark`` are made too, after the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.view.kind import View
from metastore.names import Path, format_path, parse_path
from metastore.spark.dataframe import dataframe, reason_of
from metastore.spark.readable import Readable, readables
from metastore.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Registered", "read", "register"]


@dataclass(frozen=True, slots=True)
class Registered:
    """A table or view of the catalog, and its temporary view in Spark.

    ``reason`` says why it cannot be read; then no temporary view has this name.
    """

    path: str
    view: str
    reason: str | None = None

    @property
    def readable(self) -> bool:
        """Whether the table has a temporary view."""
        return self.reason is None

    @property
    def sql(self) -> str:
        """The view's name as SQL writes it."""
        return _quoted(self.view)


def register(spark: SparkSession, url: str | None, scope: Path) -> list[Registered]:
    """Make a temporary view of each table below ``scope``, a catalog or a schema; return all of them by path.

    A table that cannot be read is in the list, with the reason. Raises InvalidArgument, EntityNotFound.
    """
    names = parse_path(scope)
    if len(names) < 2:
        raise InvalidArgument(f"{scope!r} is a metalake; give a catalog, such as {names[0]}.main, or a schema in one")
    with open_store(url) as store:
        schemas = list(_schemas(store, names))
        all_readable = list(readables(store, (table for schema in schemas for table in store.tables.list(schema))))
        queries = [view for schema in schemas for view in store.views.list(schema) if _query(view) is not None]
    views = _view_names([*(readable.table for readable in all_readable), *queries], len(names))
    done = [_register(spark, readable, views[readable.table.id]) for readable in all_readable]
    done += _register_queries(spark, queries, views)
    return sorted(done, key=lambda row: row.path)


def read(spark: SparkSession, url: str | None, path: Path) -> DataFrame:
    """Return one table as a data frame. Raises EntityNotFound, and InvalidArgument if it cannot be read."""
    with open_store(url) as store:
        (readable,) = readables(store, [store.tables.load(path)])
    return dataframe(spark, readable)


def _schemas(store: Store, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the schemas at and below ``above``, a catalog or a schema."""
    if len(above) > 2:
        yield above
    for schema in store.schemas.list(above):
        yield from _schemas(store, schema.names)


def _view_names(entities: Iterable[Entity], above: int) -> dict[int, str]:
    """Return the name of each view in Spark, by the entity's id; the first ``above`` names of a path are left out."""
    names = {entity.id: entity.names[above:] for entity in entities}
    short = {key: "_".join(below) for key, below in names.items()}
    short |= {key: format_path(names[key]) for key in _twice(short)}
    return short | {key: f"{short[key]}.{key}" for key in _twice(short)}


def _twice(names: dict[int, str]) -> list[int]:
    """Return the keys of names that Spark treats as equal."""
    count = Counter(name.casefold() for name in names.values())
    return [key for key, name in names.items() if count[name.casefold()] > 1]


def _register(spark: SparkSession, readable: Readable, view: str) -> Registered:
    path = readable.table.path
    try:
        dataframe(spark, readable).createOrReplaceTempView(_quoted(view))
    except InvalidArgument as error:
        spark.catalog.dropTempView(view)
        return Registered(path, view, str(error))
    return Registered(path, view)


def _register_queries(spark: SparkSession, views: Sequence[View], names: dict[int, str]) -> list[Registered]:
    """Make a temporary view of each query; a query that uses others comes after them."""
    done: list[Registered] = []
    left = list(views)
    while left:
        tried = [_register_query(spark, view, names[view.id]) for view in left]
        done += [row for row in tried if row.readable]
        failed = [row for row in tried if not row.readable]
        if len(failed) == len(left):
            return done + failed
        left = [view for view, row in zip(left, tried, strict=True) if not row.readable]
    return done


def _register_query(spark: SparkSession, view: View, name: str) -> Registered:
    try:
        # in this statement the text can only be a query
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {_quoted(name)} AS {_query(view)}")
    except (PySparkException, Py4JError) as error:
        spark.catalog.dropTempView(name)
        return Registered(view.path, name, reason_of(error))
    return Registered(view.path, name)


def _query(view: View) -> str | None:
    return next((query.text for query in view.representations if query.dialect == "spark"), None)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
