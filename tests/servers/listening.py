"""Programs of the machine's packages that are ready as soon as their port answers."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.process import Background

__all__ = ["Listening", "Missing", "program"]


class Missing(Exception):
    """A program, or the package of its client, is not on this machine. The text says what, and how to get it."""


def program(name: str, package: str) -> Path:
    """Return the path of a program. Raises Missing."""
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(name, path=search)
    if found is None:
        raise Missing(f"{name} is missing (apt-get install {package})")
    return Path(found)


class Listening(Background):
    """A program that is used as a context manager; subclasses say what to run."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ready(self, pid: int) -> bool:
        """Tell whether somebody listens on the port."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
