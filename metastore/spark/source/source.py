"""The data source ``metastore``: ``spark.read.format("metastore").option("table", "entities").load()``.

Options: ``url`` (else METASTORE_URL), ``table``, ``at`` (a position, or a time in ISO 8601), ``partitions``, ``kinds``
and ``columns`` (words, separated by commas), ``under`` (a path), ``after`` and ``until`` (positions). The URL
``env:NAME`` names an environment variable of driver and executors, so that no plan contains a password. A stream of
``changes`` has ``start`` (beginning, now, or a position) and ``maxChanges``. docs/pipeline.md has all of them.

The source takes no filters from Spark. Spark keeps one planned read for each ``load()``. A filter that the source took
once would hold for every later query of the same frame or view, with wrong counts and no error. The options limit the
read, for the whole frame.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from metastore.arguments import shown
from metastore.errors import BackendRefused, HistoryGone, InvalidArgument
from metastore.feed.feed import check_kept, newest_up_to, number_in, position_of
from metastore.feed.follow import kinds_of
from metastore.feed.position import last, position_in
from metastore.names import format_path, parse_path
from metastore.operation.session import Session
from metastore.past.pins import add_pin
from metastore.port.backend import Backend
from metastore.port.feed import database_of
from metastore.spark.context import workers_like_us
from metastore.spark.source.tables import BY_ID, BY_POSITION, ddl, ranges, rows_by_id, rows_by_position
from metastore.spark.source.wanted import Wanted
from metastore.spark.source.write import Upsert
from metastore.store import Store, open_store

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark before 4.2, which then reads all changes in one micro-batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Replaces the class that an older Spark does not have."""


__all__ = ["open_here", "register_source"]

_PINNED: Final = 600.0
"""How long a snapshot is kept after it was planned, and again after each partition begins (seconds)."""
_ENDLESS: Final = 1 << 62
_MOST: Final = 100_000
"""How many changes a micro-batch has at most, unless an option says otherwise."""


def register_source(spark: SparkSession) -> None:
    """Register the format ``metastore``, with which ``spark`` reads and writes the catalog. See docs/pipeline.md."""
    spark.createDataFrame([], "id int")  # makes the session active: Spark looks there whether the name is free
    with workers_like_us(spark.sparkContext):
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
    under: str
    after: str | None
    until: str | None
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
        _path(options.get("under")),
        options.get("after"),
        options.get("until"),
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


def _path(text: str | None) -> str:
    """Return a path as the table shows it; "" for None. Raises InvalidArgument."""
    return "" if text is None else format_path(parse_path(text))


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
        return Upsert(options.table, options.open, overwrite=overwrite)


class _Part(InputPartition):
    """A range of ids, read as of a position; or a range of positions."""

    def __init__(self, at: int, low: int, high: int, pin: str | None, change: str | None) -> None:
        """``change`` (None: unknown): the newest change up to the position; a server that takes over must have it."""
        super().__init__((low, high))
        self.at, self.low, self.high, self.pin, self.change = at, low, high, pin, change


class _Reader(DataSourceReader):
    """Reads a table at one position. A pin keeps that position from gc until the pin expires."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.open() as store:
            session = store._session  # noqa: SLF001  (the same package)
            at = last(session) if options.at is None else position_in(session, _when(options.at))
            if options.table in BY_POSITION:
                (low, high), pin = _positions(session, options, at), None
            else:
                pin = _pinned(session, at)
                low, high = 1, session.backend.past.last_id() + 1
            change = newest_up_to(session.backend, at)
        return [_Part(at, begin, end, pin, change) for begin, end in ranges(low, high, options.parts)] or [
            _Part(at, low, low, pin, change)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return _read(self._options, partition)


def _pinned(session: Session, at: int) -> str | None:
    """Pin a position, so that gc keeps it.

    Return None if the role may only read; then a read that gc overtakes raises HistoryGone.
    """
    try:
        return add_pin(session, f"spark {session.clock.operation_id()}", at, _PINNED).name
    except BackendRefused:
        return None


def _positions(session: Session, options: _Options, at: int) -> tuple[int, int]:
    """Return the position after which changes are read, and the last one. Raises InvalidArgument, HistoryGone."""
    until = at if options.until is None else min(at, position_in(session, options.until))
    if options.after is None:
        return session.backend.feed_start()[1], until
    after = position_in(session, options.after)
    check_kept(session.backend, after)
    return after, until


def _read(options: _Options, part: _Part) -> Iterator[pa.RecordBatch]:
    with options.open() as store:
        session = store._session  # noqa: SLF001
        if part.pin is not None:
            session.backend.readers.extend(part.pin, _PINNED)
        run = session.backend.origin.run
        if part.change is not None:
            number_in(session.backend, part.change)
        if options.table in BY_ID:
            some = Wanted(part.low, part.high - 1, options.kinds, options.under)
            yield from rows_by_id(session, options.table, options.columns, part.at, some)
        else:
            some = Wanted(part.low, part.high, options.kinds)
            yield from rows_by_position(session, options.table, options.columns, some)
            if part.change is not None and session.backend.origin.run != run:
                number_in(session.backend, part.change)  # another server may have sent the last rows, and may lack some


def _when(text: str) -> str | datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _offset(session: Session, seq: int) -> dict[str, Any]:
    """Return a stream's offset at a number of the feed."""
    epoch, newest = session.backend.feed_start()[0], session.backend.past.newest(seq)
    mark = {} if newest is None else {"change": position_of(epoch, newest.seq or 0, newest.operation_id)}
    return {"epoch": epoch, "seq": seq, **mark}


def _number_of(backend: Backend, offset: dict[str, Any]) -> int:
    """Return the number of an offset's change. The stream continues after it. Raises HistoryGone, InvalidArgument.

    The numbers from there up to its own had no change. After a crash or fail-over, new changes may get these numbers.
    """
    seq = int(offset["seq"])
    if "change" not in offset:
        return seq
    collected = backend.feed_start()[1]  # changes up to there are never read again
    return max(number_in(backend, offset["change"]), min(seq, collected))


def _check_kept(backend: Backend, seq: int) -> None:
    try:
        check_kept(backend, seq)
    except HistoryGone as gone:
        raise HistoryGone(
            gone.since,
            "gc has removed changes that the stream has not read; begin with a new checkpoint, or keep them by a "
            "consumer (store.consumers)",
        ) from None


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads ``changes`` or ``versions`` as they come.

    An offset is a number of the feed, its epoch, and the position of the newest change up to it. With that position a
    stream notices that a backup was restored. An offset of an earlier release lacks it.
    """

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
            if start == "beginning":
                self._seen = session.backend.feed_start()[1]
            else:
                self._seen = last(session) if start == "now" else position_in(session, start)
            return _offset(session, self._seen)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note the newest number now: a query with that trigger reads up to it, in micro-batches.

        Spark calls this since 4.2.
        """
        with self._options.open() as store:
            self._until = last(store._session)  # noqa: SLF001

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how many changes a micro-batch has at most. Spark calls this since 4.2."""
        from pyspark.sql.streaming.datasource import ReadMaxRows  # noqa: PLC0415  (Spark before 4.2 does not have it)

        return ReadMaxRows(self._options.most)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the offset up to which to read; since 4.2 Spark passes the start and a limit."""
        most = self._options.most if limit is None else getattr(limit, "max_rows", getattr(limit, "maxRows", None))
        with self._options.open() as store:
            session = store._session  # noqa: SLF001
            begin = self._seen if start is None else _number_of(session.backend, start)
            end = min(last(session), self._until)
            if begin >= 0 and most is not None and (next_ := session.backend.past.times(begin, 1)):
                end = min(end, next_[0][0] + most - 1)  # some of these positions may have no change
            return start if start is not None and end <= begin else _offset(session, max(begin, end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with self._options.open() as store:
            backend = store._session.backend  # noqa: SLF001
            if database_of(start["epoch"]) != database_of(backend.feed_start()[0]):
                raise InvalidArgument("the stream's checkpoint is of another database; begin with a new checkpoint")
            low, high = _number_of(backend, start), _number_of(backend, end)
            self._seen = high
            if high > low:
                _check_kept(backend, low)
        change = end.get("change")
        return [_Part(high, begin, until, None, change) for begin, until in ranges(low, high, self._options.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the position."""

    def stop(self) -> None:
        """Do nothing: nothing is open between two batches."""
