"""The servers that are compared: this project's, and Iceberg's REST fixture over its JDBC catalog."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.bench.iceberg.loads import server
from tests.servers.process import free_port, wait_until

__all__ = ["CLIENTS", "MissingPeer", "fixture", "metastore"]

ROOT = Path(__file__).resolve().parents[4]
JARS = ROOT / "build" / "iceberg-peers" / "jars"
CLIENTS = 16
"""How many clients a server has at once; the fixture gets as many connections to its database."""


class MissingPeer(Exception):
    """A peer's jars are not here: `make iceberg-peers` fetches them."""


@contextmanager
def metastore(url: str, folder: Path) -> Iterator[str]:
    """Run ``metastore serve`` in a process of its own; give the address of its catalog."""
    with server(url, f"file://{folder}") as address:
        yield address


@contextmanager
def fixture(url: str, folder: Path) -> Iterator[str]:
    """Run Iceberg's REST fixture on a database; give the address of its catalog."""
    if not JARS.is_dir():
        raise MissingPeer("the jars of Iceberg's fixture are not here; run `make iceberg-peers`, which needs Maven")
    place = urlsplit(url)
    port = free_port()
    address = f"http://127.0.0.1:{port}/v1"
    settings = {
        "CATALOG_URI": f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}",
        "CATALOG_JDBC_USER": place.username or "postgres",
        "CATALOG_WAREHOUSE": str(folder),
        "CATALOG_CLIENTS": str(CLIENTS),
        "CATALOG_REST_PORT": str(port),
    }
    java = Path((ROOT / "build" / "java_home").read_text().strip(), "bin", "java")
    command = [str(java), "-cp", f"{JARS}/*", "org.apache.iceberg.rest.RESTCatalogServer"]
    process = subprocess.Popen(command, env={**os.environ, **settings, "TZ": "UTC"})

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/config").is_success
        except httpx.TransportError:
            return False

    try:
        if not wait_until(answers, 120.0):
            raise RuntimeError("Iceberg's REST fixture did not start")
        yield address
    finally:
        process.terminate()
        process.wait()
