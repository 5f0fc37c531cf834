"""Ways to make a server say nothing without hanging up."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from metastore.backends.postgres import connection
from tests.servers.postgres import PostgresServer

__all__ = ["Swallower", "hears_late_answers", "stopped"]


class Swallower:
    """A proxy for TCP that, when told, carries nothing more in chosen directions, and keeps every connection open."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._swallows: frozenset[str] = frozenset()
        self.match: tuple[bytes, frozenset[str]] | None = None
        self._last: tuple[bytes, bytes] | None = None
        self.cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self, *directions: str) -> None:
        """Carry nothing more in ``directions``: "there", "back"."""
        self._swallows = frozenset(directions)

    def swallow_at(self, words: bytes, *directions: str) -> None:
        """Do so as soon as a client sends ``words``."""
        self.match = words, frozenset(directions)

    def swallow_behind(self, words: bytes, *, beside: bytes = b"") -> None:
        """Carry nothing more, in both directions, as soon as a client has sent ``words``, which are carried still.

        ``beside``: this is sent together with them.
        """
        self.cut.clear()
        self._last = words, beside

    def url_for(self, url: str) -> str:
        """Return the same URL, but through the proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def recover(self) -> None:
        """Carry again, on new connections."""
        self._swallows, self.match, self._last = frozenset(), None, None
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.recover()
        for thread in self._threads:
            thread.join(10)
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._ends += (client, server)
                for carried in ((client, server, "there"), (server, client, "back")):
                    self._threads.append(threading.Thread(target=self._carry, args=carried, daemon=True))
                    self._threads[-1].start()

    def _carry(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.match is not None and direction == "there" and self.match[0] in data:
                    self._swallows, self.match = self.match[1], None
                if self._last is not None and direction == "there" and all(words in data for words in self._last):
                    sink.sendall(data[: data.index(self._last[0]) + len(self._last[0])])
                    self._swallows, self._last = frozenset({"there", "back"}), None
                    self.cut.set()
                if direction not in self._swallows:
                    sink.sendall(data)
        if direction not in self._swallows:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)


def hears_late_answers(patch: pytest.MonkeyPatch) -> None:
    """Give a server that lives, but does not run just then, the time to say what became of a stopped statement."""
    patch.setattr(connection, "_STOPPING", (5.0, 5.0))


@contextlib.contextmanager
def stopped(server: PostgresServer) -> Iterator[None]:
    """Stop every process of the server, and let them go on at the end."""
    main = psutil.Process(server.pid)
    main.suspend()  # first, so that no more are started
    family = [main, *main.children(recursive=True)]
    for process in family[1:]:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(family):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
