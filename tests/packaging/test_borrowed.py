"""What metastore overrides or uses of other packages without a promise of theirs: the list, and a test of each.

A release that renames such a thing breaks nothing that Python would notice: an override is not called any more, and a
deadline silently ends nothing.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import metastore
from metastore.backends.postgres import connection as postgres_connection
from metastore.backends.postgres.connect import Pool
from metastore.backends.postgres.connection import Connection, OutOfTime
from metastore.clock import SYSTEM
from metastore.deadlines import until
from metastore.kinds.kind import to_json

ROOT = Path(__file__).resolve().parents[2]

OVERRIDDEN = {
    ("metastore.backends.postgres.connection", "Connection", "_connect_gen"),
    ("metastore.backends.postgres.connection", "Connection", "execute"),  # tests/migration/test_put_back: pooled
    ("metastore.backends.postgres.connection", "Connection", "wait"),
    ("metastore.cli.app", "_Group", "invoke"),
    ("metastore.cli.output", "_Console", "on_broken_pipe"),  # tests/cli: a pipe that is closed
    ("metastore.pyiceberg.catalog", "MetastoreCatalog", "_create_staged_table"),  # tests/iceberg: a staged table
    ("metastore.pyiceberg.catalog", "MetastoreCatalog", "close"),
    ("metastore.pyiceberg.manifests", "_Decoder", "read_int"),  # these four: no length leads behind a file
    ("metastore.pyiceberg.manifests", "_Decoder", "read_ints"),
    ("metastore.pyiceberg.manifests", "_Decoder", "skip_int"),
    ("metastore.pyiceberg.manifests", "_File", "_read_block"),
    ("metastore.serve.limits", "_Parser", "feed_data"),  # tests/iceberg/test_limits: a request with an Upgrade
    ("metastore.serve.server", "Server", "handle_exit"),  # this and the next two: the tests of limits
    ("metastore.serve.server", "Server", "on_tick"),
    ("metastore.serve.server", "Server", "startup"),
}
"""Each class of ours that derives from another package's, and what it overrides there."""

USED = {"_active_spark_context", "_gateway", "_getframe", "_jsc", "_jvm", "_strip_protocol"}
"""Private attributes of others: Spark's are asked for in every test with Spark, fsspec's in tests/crawl,
sys's in tests/bridge."""


def our_classes() -> Iterator[type]:
    """Every class that metastore defines."""
    for found in pkgutil.walk_packages(metastore.__path__, "metastore."):
        if "__main__" in found.name or ".migrations." in found.name:  # both run when they are imported
            continue
        for value in vars(importlib.import_module(found.name)).values():
            if inspect.isclass(value) and value.__module__ == found.name:
                yield value


def is_ours_or_pythons(base: type) -> bool:
    package = base.__module__.partition(".")[0]
    return package in ("metastore", "builtins", *sys.stdlib_module_names)


def is_promised(name: str, foreign: list[type]) -> bool:
    """Whether a package asks for the override: an abstract method, pydantic's models, Spark's data sources."""
    abstract = any(getattr(vars(base).get(name), "__isabstractmethod__", False) for base in foreign)
    asking = ("pydantic.", "pyspark.sql.datasource")
    return abstract or any(base.__module__.startswith(asking) for base in foreign)


def test_what_is_overridden_is_known_here() -> None:
    found = set()
    for ours in our_classes():
        foreign = [base for base in ours.__mro__ if not is_ours_or_pythons(base)]
        for name in vars(ours):
            if name.startswith(("__", "_abc_")) or is_promised(name, foreign):
                continue
            if any(name in vars(base) for base in foreign):
                found.add((ours.__module__, ours.__name__, name))
    assert found == OVERRIDDEN


def test_what_is_used_is_known_here() -> None:
    """The linter (SLF001) makes each use of a private attribute carry a mark."""
    texts = [file.read_text() for top in ("metastore", "retry", "migrations") for file in (ROOT / top).rglob("*.py")]
    marked = [line for text in texts for line in text.splitlines() if "noqa: SLF001" in line]
    found = {name for line in marked for name in re.findall(r"\.(_[a-z]\w*)", line.partition("#")[0])}
    everything = "\n".join(texts)
    assert {name for name in found if not re.search(rf"self\.{name}\b.* =|def {name}\b", everything)} == USED


def test_spark_has_what_is_asked_of_it() -> None:
    pyspark = pytest.importorskip("pyspark")
    assert {"_active_spark_context", "_gateway", "_jvm"} <= vars(pyspark.SparkContext).keys()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where connections are accepted, and nothing is ever answered."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def test_psycopg_connects_through_our_generator(silent_port: int) -> None:
    """psycopg's own time-out has two seconds at least; libpq's 10 s would come later still."""
    began = time.monotonic()
    where = f"host=127.0.0.1 port={silent_port} connect_timeout=10"
    with pytest.raises(OutOfTime), until(SYSTEM.monotonic() + 0.2):
        Connection.connect(where)
    assert time.monotonic() - began < 5.0


@pytest.mark.postgres
def test_psycopg_waits_through_our_wait(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a connection, a cursor, a named cursor, a pipeline and COPY wait for can be ended."""
    waits: list[str] = []
    real = postgres_connection._ending

    def ending(gen: Any, left: float, connection: Any) -> Any:
        waits.append(getattr(gen, "__name__", "?"))
        return real(gen, left, connection)

    monkeypatch.setattr(postgres_connection, "_ending", ending)
    with Pool(metastore.urls.parse_url(postgres_url), 10.0).connection() as connection:

        def through(call: Any) -> int:
            before = len(waits)
            call()
            return len(waits) - before

        assert waits  # the connection itself
        assert through(lambda: connection.execute("SELECT 1")) >= 1
        assert through(lambda: connection.cursor().executemany("SELECT %s", [(1,), (2,)])) >= 1
        with connection.transaction():
            named = connection.cursor(name="some")
            assert through(lambda: named.execute("SELECT 1")) >= 1
            assert through(named.fetchall) >= 1
            assert through(named.close) >= 1

        def pipeline() -> None:
            with connection.pipeline():
                connection.execute("SELECT 1")

        assert through(pipeline) >= 1

        def copy() -> None:
            with connection.cursor().copy("COPY (SELECT 1) TO STDOUT") as rows:
                assert list(rows)

        assert through(copy) >= 1


def test_documents_are_the_json_that_pythons_own_encoder_writes() -> None:
    """``kinds/kind.py`` keeps what JSONEncoder makes at each call, by a name that has no documentation."""
    values: tuple[object, ...] = (
        None,
        "",
        'ä\x7f\ud800\u2028"\\/',
        2**70,
        -1,
        True,
        1e22,
        1e-7,
        0.1,
        [],
        {},
        [1, (2, {"a": None})],
    )
    for value in values:
        doc = {"a": value, 1: [value], None: {"b": value}}
        assert to_json(doc) == json.dumps(doc, separators=(",", ":"))
        assert to_json(value) == json.dumps(value, separators=(",", ":"))
    for number in (float("nan"), float("-inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            to_json({"a": [number]})
    for other in ({1}, b"", object()):
        with pytest.raises(TypeError, match="is not JSON serializable"):
            to_json({"a": [other]})
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(RecursionError):
        to_json(circle)
