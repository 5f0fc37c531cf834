"""`metastore serve` as a process: it stops in order."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

import metastore as ms
from tests.servers.process import free_port, wait_until


def test_what_was_accepted_is_answered_before_it_stops(sqlite_url: str, tmp_path: Path) -> None:
    port = free_port()
    warehouse = f"lake.ice=file://{tmp_path}/warehouse"
    command = [sys.executable, "-m", "metastore", "--url", sqlite_url, "serve", "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([*command, "--warehouse", warehouse], stderr=subprocess.PIPE, text=True)

    def answers() -> bool:
        try:
            return httpx.get(f"{address}/healthz").is_success
        except httpx.TransportError:
            return False

    def make(n: int) -> int | None:
        try:
            body = {"namespace": [f"n{n}"]}
            return httpx.post(f"{address}/iceberg/v1/lake.ice/namespaces", json=body, timeout=60).status_code
        except httpx.TransportError:
            return None  # it was not accepted

    try:
        assert wait_until(answers, 60.0)
        # its gc has run
        assert wait_until(lambda: "\nmetastore_gc_backlog_seconds " in httpx.get(f"{address}/metrics").text, 60.0)
        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(make, n) for n in range(64)]
            assert wait_until(lambda: sum(future.done() for future in futures) >= 8, 60.0)
            process.send_signal(signal.SIGTERM)
            statuses = [future.result() for future in futures]
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
    assert set(statuses) <= {200, None}
    assert statuses.count(200) >= 8
    assert process.returncode in (0, -signal.SIGTERM)
    assert log.count(" 200 ") >= statuses.count(200)  # the access log has each of them
    assert "Traceback" not in log
    with ms.open(sqlite_url) as store:
        assert store.leases.holder("metastore-gc") is None, "released, so that another server need not wait"
        assert len(list(store.schemas.names("lake.ice"))) == statuses.count(200)
