"""A network namespace with one cable to us, which can be pulled, or drop one direction. Needs root and iproute2.

One direction is dropped by a wrong neighbour entry: the kernel sends each frame to a hardware address that nobody has,
and tells neither side. So it looks like a packet filter's silent drop, and needs no module of the kernel.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.servers.proxy import Side

__all__ = ["Network", "NoNetwork", "enter"]

_NEWNET: Final = 0x40000000
_NOBODY: Final = "02:00:00:00:00:01"
"""A hardware address that no device has."""


class NoNetwork(Exception):
    """No namespace can be made here."""


def enter(name: str) -> None:
    """Let this thread, and all that it starts, use the network with this name."""
    with Path(f"/run/netns/{name}").open() as place:
        if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"the network namespace {name} could not be entered")


class Network:
    """Made when it is entered, and removed at its end. ``number``: one process may have 60 of them."""

    def __init__(self, number: int = 0) -> None:
        pid = os.getpid()
        self.name = f"metastore-load{pid}-{number}"
        self._ours, self._theirs = f"ml{pid % 10**6}-{number}a", f"ml{pid % 10**6}-{number}b"
        first = f"10.208.{pid % 250}"
        self.here, self._there = f"{first}.{4 * number + 1}", f"{first}.{4 * number + 2}"

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
        # at once: with the namespace it would go later, and its name be taken until then
        subprocess.run(["ip", "link", "del", self._ours], check=False, capture_output=True)
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

    @contextmanager
    def silent_to(self, side: Side) -> Iterator[None]:
        """Drop what goes to one side meanwhile: to the client, which is in there, or to the server, which is here."""
        place, device = ([], self._ours) if side == "client" else (["-n", self.name], self._theirs)
        address = self._there if side == "client" else self.here
        _ip(*place, "neigh", "replace", address, "lladdr", _NOBODY, "dev", device, "nud", "permanent")
        try:
            yield
        finally:
            _ip(*place, "neigh", "del", address, "dev", device)

    def unplug(self) -> None:
        _ip("link", "set", self._ours, "down")

    def plug(self) -> None:
        _ip("link", "set", self._ours, "up")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
