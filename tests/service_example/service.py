"""One process of the example service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tests.servers.process import free_port, wait_until

__all__ = ["EXAMPLE", "Service"]

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "catalog_service"


class Service:
    """The example on a port of its own; it can be killed, stopped and started again on the same port."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        command = [sys.executable, "-m", "uvicorn", "app:app", "--app-dir", str(EXAMPLE), "--log-level", "warning"]
        command += ["--port", str(self._port), "--timeout-graceful-shutdown", "20"]
        self._process = subprocess.Popen(command, env=os.environ | {"METASTORE_URL": self._url})
        assert wait_until(self._serves, 60.0), "the example service does not serve"

    def _serves(self) -> bool:
        try:
            return httpx.get(f"{self.address}/healthz", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """End the process at once, with whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """Ask the process to end, as a deployment does; return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=60)
