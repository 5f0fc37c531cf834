"""Databases, stores and Spark for every test.

``url`` runs a test on SQLite and on PostgreSQL; ``sqlite_url`` and ``postgres_url`` ask for one of
them; each is a fresh, migrated database. ``store`` is an open store on ``url``. What uses
PostgreSQL or Spark is marked ``postgres`` or ``spark`` by itself: ``-m "not spark"`` leaves it out.

What a test of all backends does above the port is the same code on each: such a test is marked
``each_run_on("sqlite")``. ``make test`` runs it on this backend, ``make test-long`` on the others. To be quick, ``make
test`` leaves out cases that differ in little: two of three by ``one_in(3)``, those that repeat values of others by
``each_value``, all by ``only_whole``. ``--whole`` runs these too, as CI does. ``--share 3/10`` takes a share of the
long tests (tests/long.py).
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from tests.long import BACKENDS, in_share, leave_out, named_in, share, thin_out
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Databases, ExternalPostgres, PostgresServer, external_url
from tests.servers.process import MEMORY, has_room
from tests.setup.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from metastore import Store
    from tests.concurrency.workers import Team

ROOT = Path(__file__).resolve().parent.parent
# A machine that others use too is slow at times: what a property says holds on it all the same
settings.register_profile(
    "busy",
    deadline=None,
    max_examples=25,
    derandomize="CI" in os.environ,  # CI judges a change by the same inputs each time; others look further
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.register_profile("long", settings.get_profile("busy"), max_examples=250)  # make test-long
settings.load_profile("busy")

# A JVM of a test lives for seconds: the second compiler and a parallel collector cost more than they bring, and to
# verify the classes of a released Spark again takes a tenth of its start.
# The variables are those of Spark's own scripts, so that what a test starts in a process of its own has them too.
SHORT_LIVED_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED_JVM)

MARKED_BY_FIXTURE = {"postgres": ("postgres_server", "postgres_databases"), "spark": ("spark",)}
ONE_IS_ENOUGH = ("locks_server", "password_server")  # servers that take seconds to start


def pytest_configure() -> None:
    """Let tests keep their files in memory where there is room: thousands of commits wait for a disk otherwise."""
    if has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run also the cases that `make test` leaves out to be quick")
    parser.addoption("--share", metavar="N/OF", type=share, help="the share of the tests that are chosen, such as 3/10")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups, and pytest the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by the servers they use, those that are long, and those that share a worker.

    One JVM is enough for all tests of Spark. What a module makes for its tests is made once, not by each worker.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for marker, names in MARKED_BY_FIXTURE.items():
            if any(name in fixtures for name in names):
                item.add_marker(marker)
        if _on_another_backend(item) or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.long)
    if not config.getoption("--whole"):
        thin_out(items)
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("xdist_group") is None and (group := _group(item)):
            item.add_marker(pytest.mark.xdist_group(group))
    if chosen := config.getoption("--share"):
        leave_out(config, items, lambda item: not in_share(item, *chosen))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector see what tests make, and not the tests themselves: they stay to the end.

    To go through them again and again takes as long as to collect them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _on_another_backend(item: pytest.Item) -> bool:
    """Tell whether each run does this test on one backend, and the item is on another one."""
    marker = item.get_closest_marker("each_run_on")
    on = named_in(item, BACKENDS)
    return marker is not None and bool(on) and on.isdisjoint(marker.args)


def _group(item: pytest.Item) -> str | None:
    """Return what the tests have in common that use the same server, or what is made once for a module or a package."""
    made: dict[str, Sequence[pytest.FixtureDef[object]]] = getattr(item, "_fixtureinfo").name2fixturedefs  # noqa: B009
    for name, definitions in made.items():
        if name in ONE_IS_ENOUGH:
            return name
        if definitions[-1].scope == "package":
            return str(Path(item.location[0]).parent)
        if definitions[-1].scope == "module":
            return item.location[0]
    return None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL of our own, one per worker; for tests that restart, kill or configure use a new one."""
    with PostgresServer(in_memory=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_databases(request: pytest.FixtureRequest) -> Databases:
    """Give the server that databases are made on: METASTORE_TEST_POSTGRES, else ``postgres_server``."""
    if url := external_url():
        return ExternalPostgres(url)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server


@pytest.fixture(scope="session")
def postgres_address(postgres_databases: Databases) -> tuple[str, int]:
    """Give the host and the port of the server of ``postgres_url``, for a proxy before it."""
    parts = urlsplit(postgres_databases.url())
    return parts.hostname or "127.0.0.1", parts.port or 5432


@pytest.fixture(scope="session")
def postgres_template(postgres_databases: Databases) -> Iterator[str]:
    """Make an empty, migrated database to copy."""
    import metastore

    url = postgres_databases.create_database()
    metastore.migrate(url)
    yield url
    postgres_databases.drop_database(url)


@pytest.fixture
def postgres_url(postgres_databases: Databases, postgres_template: str) -> Iterator[str]:
    """Give the URL of a fresh, migrated database on PostgreSQL."""
    url = postgres_databases.create_database(template=postgres_template.rpartition("/")[2])
    yield url
    postgres_databases.drop_database(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an empty, migrated file to copy: to migrate takes longer than most tests."""
    import metastore

    path = tmp_path_factory.mktemp("template") / "metastore.db"
    metastore.open(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Give the URL of a fresh, migrated file."""
    return f"sqlite:///{shutil.copy(sqlite_template, tmp_path / 'metastore.db')}"


@pytest.fixture
def absent_sqlite_url(tmp_path: Path) -> str:
    """Give the URL of a file that does not exist yet: the embedded default migrates itself."""
    return f"sqlite:///{tmp_path / 'metastore.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    """Give the URL of a fresh database, on each kind of server in turn."""
    chosen: str = request.getfixturevalue(f"{request.param}_url")
    return chosen


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """Open a store on ``url``, as the principal "tester"."""
    import metastore

    with metastore.open(url, principal="tester") as opened:
        yield opened


@pytest.fixture(scope="session")
def team() -> Iterator[Team]:
    """Give the processes that do jobs. It is here, because each folder that imports a fixture has one of its own."""
    from tests.concurrency.workers import Team

    found = Team()
    yield found
    found.close()


@pytest.fixture(scope="session")
def pgbouncer(postgres_databases: Databases) -> Iterator[PgBouncer]:
    """Start pgbouncer in transaction mode in front of the server of ``postgres_url``; skip where it is missing."""
    with PgBouncer(postgres_databases) as bouncer:
        yield bouncer


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Give the folder of real files beside the repository; skip where there is none."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no folder ../shared/data beside the repository")
    return folder


@pytest.fixture(scope="session")
def java() -> Path:
    """Give a Java that Spark runs on; skip where there is none, but in CI."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    found = find_java()
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("Spark needs Java 17 or later: make java")
    return found


@pytest.fixture(scope="session")
def spark(java: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start Spark on two threads of this machine, with nothing listening elsewhere and no web page.

    A task that fails runs once more, as on a cluster.
    """
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_HOME", str(java))
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = spark_session(tmp_path_factory.mktemp("spark"))
        stack.callback(session.stop)
        yield session


def spark_session(folder: Path) -> SparkSession:
    """Build the session of the ``spark`` fixture; what Spark writes on its own goes to ``folder``."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the RDD API looks nowhere else
    options: dict[str, Any] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder / "local",
        "spark.python.daemon.module": "tests.servers.spark_workers",
        "spark.pyspark.python": sys.executable,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2, 2]").appName("metastore-tests")
    for key, value in options.items():
        builder = builder.config(key, str(value))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
