"""Where leases can be kept, each as a world of its own: each process that opens it again is another holder.

The tests of the contract run in each of them (``world``). One more kind is one more fixture that returns a
:class:`World`, and its name in ``KINDS`` in test_contract.py.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

import metastore as ms
from metastore.backends.memory.backend import MemoryBackend
from metastore.backends.postgres.backend import PostgresBackend
from metastore.backends.sqlite.backend import SqliteBackend
from metastore.clock import SYSTEM, Clock
from metastore.leases.leases import Leases
from metastore.port.backend import Backend
from metastore.retry.policy import RetryPolicy
from metastore.store import Store
from metastore.urls import parse_url
from tests.concurrency.raw import rows
from tests.servers.azurite import ACCOUNT, Azurite, azurite_program
from tests.servers.azurite import KEY as AZURE_KEY
from tests.servers.s3 import KEY, SECRET, S3Server

__all__ = ["ObjectWorld", "Time", "World", "azurite", "bucket", "client", "locks_server", "postgres_world"]


@dataclass(frozen=True)
class Time(Clock):
    """A clock that goes when somebody sleeps, or is told to. All of its hands go together, but the wall's can be moved.

    Different holders may have different ones.
    """

    at: list[float] = field(default_factory=lambda: [1000.0])
    moved: list[float] = field(default_factory=lambda: [0.0])
    guard: Any = field(default_factory=threading.Lock)

    def monotonic(self) -> float:
        return self.at[0]

    def boottime(self) -> float:
        return self.at[0]

    def micros(self) -> int:
        return round((1_750_000_000 + self.at[0] + self.moved[0]) * 1_000_000)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.go(seconds)

    def go(self, seconds: float) -> None:
        """Let time pass."""
        with self.guard:
            self.at[0] += seconds

    def beside(self, seconds: float) -> Time:
        """Return a clock that goes with this one, whose wall clock is wrong."""
        return Time(self.at, [seconds], self.guard)


class World(Protocol):
    """One kind of book, empty."""

    tokens: bool
    """Leases have tokens (all but Hudi's)."""
    own: bool
    """It keeps a queue and a history (all but Hudi's)."""
    name: str
    """What the leases of the tests are called."""

    def leases(self) -> Leases:
        """Open it again, as another holder."""
        ...

    def go(self, seconds: float) -> None:
        """Let time pass, for all holders."""
        ...

    def real(self) -> Leases:
        """Open it with the machine's own clock, for tests with threads. Not mixed with the other ones in a test."""
        ...


class ObjectWorld:
    """A place for lock files."""

    def __init__(self, opened: Callable[[Clock], ms.ObjectStoreLeases], own: bool = True) -> None:
        self.opened, self.own, self.tokens = opened, own, own
        self.time = Time()
        self.name = "job" if own else "sales/orders"

    def leases(self, clock: Clock | None = None) -> ms.ObjectStoreLeases:
        return self.opened(clock or self.time)

    def go(self, seconds: float) -> None:
        self.time.go(seconds)

    def real(self) -> ms.ObjectStoreLeases:
        return self.opened(SYSTEM)


@pytest.fixture(scope="session")
def locks_server() -> Iterator[S3Server]:
    """Start an S3 server."""
    with S3Server() as server:
        yield server


def client(server: S3Server) -> Any:
    """Return a client of the S3 server that is not ours."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}),
    )


@pytest.fixture
def bucket(locks_server: S3Server) -> str:
    """Make a bucket of the test's own."""
    name = f"locks-{uuid.uuid4().hex[:12]}"
    client(locks_server).create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Start azurite; skip where it cannot be had."""
    program = azurite_program()
    if isinstance(program, str):
        pytest.skip(program)
    with Azurite() as server:
        yield server


def s3_options(url: str) -> dict[str, Any]:
    """Return what leads to an S3 server."""
    return {"endpoint": url, "access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}


def object_memory() -> ObjectWorld:
    """Lock files in this process."""
    url = f"memory://{uuid.uuid4().hex}"
    return ObjectWorld(lambda clock: ms.ObjectStoreLeases(url, clock=clock))


def object_local(folder: Path) -> ObjectWorld:
    """Lock files in a folder."""
    return ObjectWorld(lambda clock: ms.ObjectStoreLeases(folder / "locks", clock=clock))


def object_s3(server: S3Server, bucket: str, form: str = "metastore") -> ObjectWorld:
    """Lock files on S3."""
    url, options = f"s3://{bucket}/locks", s3_options(server.url)
    return ObjectWorld(
        lambda clock: ms.ObjectStoreLeases(url, clock=clock, format=form, **options), own=form == "metastore"
    )


def object_azure(server: Azurite) -> ObjectWorld:
    """Lock files on Azure."""
    container = f"locks{uuid.uuid4().hex[:12]}"
    server.create_container(container)
    url = f"az://{container}/locks"
    options: dict[str, Any] = {"account_name": ACCOUNT, "account_key": AZURE_KEY}
    return ObjectWorld(lambda clock: ms.ObjectStoreLeases(url, clock=clock, endpoint=server.url, **options))


class StoreWorld:
    """Leases in a store's own database, whose clock is given too."""

    tokens = own = True
    name = "job"

    def __init__(self, backend: Callable[[Clock], Backend]) -> None:
        self._backend = backend
        self.time = Time()
        self._ours, self._real = backend(self.time), backend(SYSTEM)

    def leases(self) -> Leases:
        return _store(self._ours, self.time).leases

    def go(self, seconds: float) -> None:
        self.time.go(seconds)

    def real(self) -> Leases:
        return _store(self._real, SYSTEM).leases


def _store(backend: Backend, clock: Clock) -> Store:
    return Store(parse_url("memory://"), backend, RetryPolicy(), None, clock)


def in_memory() -> StoreWorld:
    """The memory model."""
    return StoreWorld(MemoryBackend)


def in_sqlite(folder: Path) -> StoreWorld:
    """A file for each clock."""

    def backend(clock: Clock) -> Backend:
        found = SqliteBackend(str(folder / f"{type(clock).__name__}.db"), 30.0, clock)
        found.migrate()
        return found

    return StoreWorld(backend)


@dataclass(frozen=True)
class Ahead(Clock):
    """The machine's clock, and some more seconds."""

    more: list[float] = field(default_factory=lambda: [0.0])

    def monotonic(self) -> float:
        return super().monotonic() + self.more[0]

    def boottime(self) -> float:
        return super().boottime() + self.more[0]

    def micros(self) -> int:
        return super().micros() + round(self.more[0] * 1_000_000)


class PostgresWorld:
    """PostgreSQL, whose clock cannot be given: what happened there is moved into the past instead."""

    tokens = own = True
    name = "job"

    def __init__(self, url: str) -> None:
        self._url, self._clock = url, Ahead()
        self._backend = PostgresBackend(parse_url(url), 30.0)

    def leases(self) -> Leases:
        return _store(self._backend, self._clock).leases

    def go(self, seconds: float) -> None:
        self._clock.more[0] += seconds
        micros = round(seconds * 1_000_000)
        rows(self._url, f"UPDATE lease SET expires_at = expires_at - {micros} RETURNING 1")
        rows(self._url, f"UPDATE lease_waiter SET alive_until = alive_until - {micros} RETURNING 1")

    def real(self) -> Leases:
        return _store(self._backend, SYSTEM).leases


@pytest.fixture
def postgres_world(postgres_url: str) -> Iterator[PostgresWorld]:
    """Give a database of the test's own."""
    world = PostgresWorld(postgres_url)
    yield world
    world._backend.close()
