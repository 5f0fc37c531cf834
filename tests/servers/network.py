"""A network namespace with one cable to us, which can be pulled. Needs root and iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from types import TracebackType
from typing import Self

__all__ = ["Network", "NoNetwork"]


class NoNetwork(Exception):
    """No namespace can be made here."""


class Network:
    """Made when it is entered, and removed at its end."""

    def __init__(self) -> None:
        pid = os.getpid()
        self.name = f"metastore-load{pid}"
        self._ours, self._theirs = f"ml{pid % 10**6}a", f"ml{pid % 10**6}b"
        self.here, self._there = f"10.208.{pid % 250}.1", f"10.208.{pid % 250}.2"

    def __enter__(self) -> Self:
        if shutil.which("ip") is None or os.geteuid() != 0:
            raise NoNetwork("it needs root and iproute2")
        try:
            _ip("netns", "add", self.name)
        except subprocess.CalledProcessError as error:
            raise NoNetwork(error.stderr.decode().strip()) from None
        try:
            _ip("link", "add", self._ours, "type", "veth", "peer", "name", self._theirs, "netns", self.name)
            _ip("addr", "add", f"{self.here}/30", "dev", self._ours)
            _ip("link", "set", self._ours, "up")
            _ip("-n", self.name, "addr", "add", f"{self._there}/30", "dev", self._theirs)
            _ip("-n", self.name, "link", "set", self._theirs, "up")
            _ip("-n", self.name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ip("netns", "del", self.name)

    def inside(self, command: list[str]) -> list[str]:
        """Return the command that runs ``command`` in there."""
        return ["ip", "netns", "exec", self.name, *command]

    def pull(self, seconds: float) -> str:
        """Pull the cable, and plug it in again after ``seconds``."""
        self.unplug()
        threading.Event().wait(seconds)
        self.plug()
        return "pulled"

    def unplug(self) -> None:
        _ip("link", "set", self._ours, "down")

    def plug(self) -> None:
        _ip("link", "set", self._ours, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
