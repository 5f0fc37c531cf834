"""Servers as processes of their own, on one database: they can be killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.servers.process import free_port, wait_until

__all__ = ["Server"]

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A ``metastore serve`` that can be killed and started again on its port."""

    def __init__(self, url: str) -> None:
        self.url, self.port = url, free_port()
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "metastore", "--url", self.url, "serve", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)

    def wait(self) -> None:
        assert wait_until(self._answers, 120.0)
        assert self.process.poll() is None

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """End it in order."""
        self.process.terminate()
        self.process.wait()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
