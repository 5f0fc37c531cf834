"""Azurite: a server that speaks Azure's blob protocol, exactly, in memory, in a process of its own.

It comes from npm and is installed once, into build/. Where node or npm are missing, or npm finds no registry,
:func:`azurite_program` says why there is none.
"""

from __future__ import annotations

import base64
import email.utils
import fcntl
import hashlib
import hmac
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.process import Background

__all__ = ["ACCOUNT", "KEY", "Azurite", "azurite_program"]

FOLDER = Path(__file__).resolve().parents[2] / "build" / "azurite"
PROGRAM = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # well known
API = "2021-08-06"


def azurite_program() -> Path | str:
    """Return the program, installed if need be; or why there is none."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "no node and npm, which azurite needs"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of the same test run
        if PROGRAM.is_file():
            return PROGRAM
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), f"azurite@{VERSION}"]
        try:
            done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=150, check=False)
        except subprocess.TimeoutExpired:
            return "npm did not install azurite within 150 s"
        return PROGRAM if PROGRAM.is_file() else f"npm cannot install azurite: {done.stderr.strip()[-200:]}"


class Azurite(Background):
    """The blob service. It takes the well-known account and key."""

    name = "azurite"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The endpoint, with the account."""
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def create_container(self, name: str) -> None:
        """Make a container, by a request signed with the shared key."""
        date = email.utils.formatdate(usegmt=True)
        headers = f"x-ms-date:{date}\nx-ms-version:{API}\n"
        text = "PUT" + "\n" * 12 + f"{headers}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        signed = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        request = urllib.request.Request(
            f"{self.url}/{name}?restype=container",
            method="PUT",
            data=b"",
            headers={"x-ms-date": date, "x-ms-version": API, "Authorization": signed, "Content-Type": ""},
        )
        with urllib.request.urlopen(request, timeout=10):
            pass

    def command(self) -> Sequence[str | Path]:
        node = shutil.which("node")
        assert node is not None
        options = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
        return [node, PROGRAM, "--blobHost", "127.0.0.1", "--blobPort", str(self.port), *options]

    def ready(self, pid: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _launch(self, command: Sequence[str | Path]) -> list[str]:
        """Run as ourselves: build/ may be where no other user can reach it."""
        launch = super()._launch(command)
        launch[-1 - len(command)] = "-"  # the user
        return launch
