"""Loads of one table: through the REST server, and through the library."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from tests.servers.process import free_port, wait_until

__all__ = ["latencies", "server"]


@contextmanager
def server(url: str, warehouse: str) -> Iterator[str]:
    """Run ``metastore serve`` in a process of its own, without its log; give its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "metastore", "--url", url, "serve", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--warehouse", f"lake.ice={warehouse}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/healthz").is_success
        except httpx.TransportError:
            return False

    try:
        if not wait_until(answers, 60.0):
            raise RuntimeError("the server did not start")
        yield f"{address}/iceberg/v1/lake.ice"
    finally:
        process.terminate()
        process.wait()


def latencies(clients: int, seconds: float, client: Callable[[], Callable[[], object]]) -> tuple[float, list[float]]:
    """Let ``clients`` threads call for some seconds; return the calls per second, and how long each call took."""

    calls = [client() for _ in range(clients)]

    def loop(call: Callable[[], object]) -> list[float]:
        took = []
        ends = time.monotonic() + seconds
        while (started := time.monotonic()) < ends:
            call()
            took.append(time.monotonic() - started)
        return took

    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        found = [took for one in pool.map(loop, calls) for took in one]
    return len(found) / (time.monotonic() - began), sorted(found)
