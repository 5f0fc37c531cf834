"""A way to a port of 127.0.0.1 that can be closed: connections are cut, and new ones refused."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

__all__ = ["Way"]


class Way:
    """It is open from the beginning, at a port of its own that stays."""

    def __init__(self, to: int) -> None:
        self.to = to
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="way", daemon=True).start()

    def open(self) -> None:
        with self._lock:
            self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # its thread wakes, and closes it

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Keep it closed while the block runs."""
        self.close()
        try:
            yield
        finally:
            self.open()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            with self._lock:
                if self._closed:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self.to))
                except OSError:
                    near.close()
                    continue
                self._sockets |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=pair, name="way", daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._sockets.discard(source)
        source.close()
