"""The data source ``metastore``: ``spark.read.format("metastore").option("table", "entities").load()``.

Options: ``url`` (else METASTORE_URL), ``table``, ``at`` (a position, or a time in ISO 8601), ``partitions``, ``kinds``
and ``columns`` (words, separated by commas). The URL ``env:NAME`` names an environment variable of driver and
executors, so that no password travels in a plan. A stream of ``changes`` has ``start`` (beginning, now, or a position)
and ``maxChanges``. docs/pipeline.md has all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from metastore.arguments import shown
from metastore.errors import HistoryGone, InvalidArgument
from metastore.feed.follow import kinds_of
from metastore.feed.position import now, position_in
from metastore.past.pins import add_pin
from metastore.spark.source.filters import Wanted, wanted
from metastore.spark.source.tables import BY_ID, BY_POSITION, ddl, ranges, rows_by_id, rows_by_position
from metastore.spark.source.write import Upsert
from metastore.store import Store, open_store

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, which reads all in one micro-batch then

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the class that an older Spark does not have."""


__all__ = ["open_here", "register_source"]

_PINNED: Final = 600.0
"""How long a snapshot is kept after it was planned, and again after each partition begins (seconds)."""
_ENDLESS: Final = 1 << 62
_MOST: Final = 100_000
"""How many changes a micro-batch has at most, unless an option says otherwise."""


def register_source(spark: SparkSession) -> None:
    """Let ``spark`` read and write the catalog: the format ``metastore``. See docs/pipeline.md."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")  # else Spark refuses a source that knows filters
    spark.dataSource.register(_Source)


@dataclass(frozen=True)
class _Options:
    """The options of a read, checked on the driver; the executors get them as they are."""

    url: str | None
    table: str
    at: str | None
    parts: int
    kinds: frozenset[str] | None
    columns: tuple[str, ...] | None
    start: str
    most: int

    def open(self) -> Store:
        """Open the store: on the driver, or on an executor."""
        return open_here(self.url, "spark")


def open_here(url: str | None, principal: str | None) -> Store:
    """Open a store on this machine; ``env:NAME`` names an environment variable with the URL. Raises InvalidArgument."""
    place = os.environ.get(url[4:]) if url is not None and url.startswith("env:") else url
    if url is not None and place is None:
        raise InvalidArgument(f"the environment variable {url[4:]} is not set on this machine")
    return open_store(place, principal=principal)


def _options(given: Any) -> _Options:
    options = {str(key).lower(): str(value) for key, value in dict(given).items()}
    table = options.get("table", "entities")
    kinds, columns = (_words(options.get(name)) for name in ("kinds", "columns"))
    return _Options(
        options.get("url"),
        table,
        options.get("at"),
        _number(options, "partitions", 2),
        None if kinds is None else kinds_of(kinds),
        columns,
        options.get("start", "beginning"),
        _number(options, "maxChanges", _MOST),
    )


def _number(options: dict[str, str], name: str, default: int) -> int:
    """Return the positive number that an option gives. Raises InvalidArgument."""
    text = options.get(name.lower(), str(default)).strip()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument(f"the option {name} is a positive integer, not {shown(text)}")
    return int(text)


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(","))


class _Source(DataSource):
    """One use of the format."""

    @classmethod
    def name(cls) -> str:
        return "metastore"

    def schema(self) -> str:
        options = _options(self.options)
        return ddl(options.table, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        return _StreamReader(_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = _options(self.options)
        return Upsert(options.table, options.open)


class _Part(InputPartition):
    """A range of ids, as of a position; or of positions."""

    def __init__(self, at: int, low: int, high: int, pin: str | None) -> None:
        super().__init__((low, high))
        self.at, self.low, self.high, self.pin = at, low, high, pin


class _Reader(DataSourceReader):
    """Reads a table at one position. A pin keeps that from gc until it expires."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._wanted = Wanted(options.kinds)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Note what need not be read. Spark applies all filters again."""
        self._wanted = wanted(filters, self._wanted)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.open() as store:
            session = store._session  # noqa: SLF001  (the same package)
            at = now(session) if options.at is None else position_in(session, _when(options.at))
            if options.table in BY_POSITION:
                low, high, pin = max(session.backend.feed_start()[1], self._wanted.low - 1), at, None
                high = min(high, self._wanted.high)
            else:
                pin = add_pin(session, f"spark {session.clock.operation_id()}", at, _PINNED).name
                low, high = max(1, self._wanted.low), min(self._wanted.high, session.backend.past.last_id()) + 1
        return [_Part(at, begin, end, pin) for begin, end in ranges(low, high, options.parts)] or [
            _Part(at, low, low, pin)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return _read(self._options, partition, self._wanted)


def _read(options: _Options, part: _Part, known: Wanted) -> Iterator[pa.RecordBatch]:
    with options.open() as store:
        session = store._session  # noqa: SLF001
        if part.pin is not None:
            session.backend.readers.extend(part.pin, _PINNED)
        if options.table in BY_ID:
            some = replace(known, low=part.low, high=part.high - 1)
            yield from rows_by_id(session, options.table, options.columns, part.at, some)
        else:
            some = replace(known, low=part.low, high=part.high)
            yield from rows_by_position(session, options.table, options.columns, some)


def _when(text: str) -> str | datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads ``changes`` or ``versions`` as they come. An offset is a number of the feed, with its epoch."""

    def __init__(self, options: _Options) -> None:
        if options.table not in BY_POSITION:
            raise InvalidArgument(f"a stream reads {' or '.join(BY_POSITION)}, not {options.table}")
        self._options = options
        self._seen = -1
        """The number up to which it has read: Spark before 4.2 does not pass it."""
        self._until = _ENDLESS
        """The number at which a query with the trigger ``availableNow`` ends."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        start = self._options.start
        with self._options.open() as store:
            session = store._session  # noqa: SLF001
            epoch, collected = session.backend.feed_start()
            if start == "beginning":
                self._seen = collected
            else:
                self._seen = now(session) if start == "now" else position_in(session, start)
            return {"epoch": epoch, "seq": self._seen}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now: a query with that trigger reads up to it, in micro-batches. Spark asks since 4.2."""
        with self._options.open() as store:
            self._until = now(store._session)  # noqa: SLF001

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how many changes a micro-batch has at most. Spark asks since 4.2."""
        from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: PLC0415  (older ones do not have it)

        return ReadMaxRows(self._options.most)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return how far to read: Spark since 4.2 says from where, and whether to read all there is."""
        begin = self._seen if start is None else int(start["seq"])
        most = self._options.most if limit is None else getattr(limit, "max_rows", getattr(limit, "maxRows", None))
        with self._options.open() as store:
            session = store._session  # noqa: SLF001
            epoch, last = session.backend.feed_start()[0], min(now(session), self._until)
            if begin >= 0 and most is not None and (next_ := session.backend.past.times(begin, 1)):
                last = min(last, next_[0][0] + most - 1)  # of as many positions some may have no change
        return {"epoch": epoch, "seq": max(begin, last)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        low, high = int(start["seq"]), int(end["seq"])
        self._seen = high
        with self._options.open() as store:
            epoch, collected = store._session.backend.feed_start()  # noqa: SLF001
        if start["epoch"] != epoch:
            raise InvalidArgument("the stream's checkpoint is of another database; begin with a new checkpoint")
        if low < collected and high > low:
            raise HistoryGone(
                f"{epoch}-{collected:016x}",
                "gc has removed changes that the stream has not read; begin with a new checkpoint, or keep them by a "
                "consumer (store.consumers)",
            )
        return [_Part(high, begin, until, None) for begin, until in ranges(low, high, self._options.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return _read(self._options, partition, Wanted(self._options.kinds))

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the position."""

    def stop(self) -> None:
        """Do nothing: nothing is open between two batches."""
