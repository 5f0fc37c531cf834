"""A rotation that is killed, or that meets writers, loses no secret."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import metastore as ms
from metastore.secrets.keyring import VARIABLE, new_key
from tests.long import long_unless

pytestmark = pytest.mark.one_in(3)

TABLES = 6
_PROGRAM = """
import os, signal, sys
import metastore as ms
from metastore.backends.{backend}.secret_keys import {cls} as keys
from metastore.managers.secrets import rotation

left = {after}

def killing(function):
    def call(*arguments):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)
    return call

keys.rewrap, keys.add = killing(keys.rewrap), killing(keys.add)
rotation.SecretStore._alter = killing(rotation.SecretStore._alter)
with ms.open(sys.argv[1]) as store:
    store.secrets.rotate(reencrypt=True)
"""


@pytest.fixture
def lake(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the URL of a database with secrets, and two keys in the environment, the new one first."""
    old = new_key()
    monkeypatch.setenv(VARIABLE, old)
    with ms.open(url) as store:
        store.metalakes.create("m")
        settings = {"metastore.secret-properties": "password"}
        store.catalogs.create("m.c", type="relational", properties={**settings, "password": "catalog"})
        schema = store.schemas.create("m.c.s")
        rows = [{"name": f"t{n}", "properties": {"password": f"secret {n}"}} for n in range(TABLES)]
        store.tables.create_many(schema, rows)
    monkeypatch.setenv(VARIABLE, f"{new_key()} {old}")
    return url


def _check(url: str, values: dict[str, str]) -> None:
    with ms.open(url) as store:
        assert store.reveal("m.c", "password") == "catalog"
        for path, value in values.items():
            assert store.reveal(path, "password") == value
        assert store.verify() == []


@pytest.mark.parametrize("after", long_unless((0, 1, 2, 5, 8), lambda after: after in (1, 5)))
def test_a_rotation_that_is_killed_goes_on(lake: str, after: int) -> None:
    backend, cls = ("sqlite", "SqliteSecretKeys") if "sqlite" in lake else ("postgres", "PostgresSecretKeys")
    program = _PROGRAM.format(backend=backend, cls=cls, after=after)
    done = subprocess.run([sys.executable, "-c", program, lake], check=False, env=dict(os.environ))
    assert done.returncode == -9
    values = {f"m.c.s.t{n}": f"secret {n}" for n in range(TABLES)}
    _check(lake, values)
    with ms.open(lake) as store:
        first = store.secrets.rotate(reencrypt=True)
        again = store.secrets.rotate(reencrypt=True)
        assert 1 in (*first.destroyed, *again.destroyed)
        rows = store._session.backend.secret_keys.rows()
        assert sum(row.wrapped is not None for row in rows) == 1
    _check(lake, values)


def test_writers_lose_nothing_to_a_rotation(lake: str) -> None:
    """Each writer is a store of its own, which remembers settings as another process does."""
    values: dict[str, str] = {}

    def write(worker: int) -> int:
        done = 0
        with ms.open(lake) as store:
            while not stop or not done:
                path = f"m.c.s.t{worker}"
                value = f"{worker} {done}"
                store.tables.alter(path, ms.SetProperty("password", value))
                values[path] = value
                done += 1
        return done

    stop: list[bool] = []
    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, n) for n in range(3)]
        try:
            with ms.open(lake) as store:
                destroyed = [store.secrets.rotate(reencrypt=True).destroyed for _ in range(4)]
        finally:
            stop.append(True)
        assert all(one.result() for one in writers)
    assert any(destroyed)
    assert len(values) == 3
    _check(lake, values)
