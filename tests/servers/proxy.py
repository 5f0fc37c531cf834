"""A proxy for the PostgreSQL protocol that counts round trips and cuts connections on demand.

::

    with PostgresProxy("127.0.0.1", server.port) as proxy:
        url = proxy.url_for(server.url("test"))
        ...
        assert proxy.round_trips == 1
        cut = proxy.cut_after_send(lambda message: b"INSERT" in message)

A round trip is a Sync, a simple Query or a function call: a message after which a client waits for an answer. The start
of a connection is none. A pipeline of any length with one Sync is one.

A predicate sees one whole frontend message at a time: its type byte, its length (4 bytes) and its body. A thread of
the proxy calls it. These methods disturb a connection:

* :meth:`PostgresProxy.cut_after_send` loses only the answer. The server has worked off everything up to the end of the
  message's round trip (its ReadyForQuery was seen), and answers to earlier round trips were delivered. Then the
  connection is reset.
* :meth:`PostgresProxy.cut_before_send` loses the message.
* :meth:`PostgresProxy.cut_while_sending` loses the second half of the message.
* :meth:`PostgresProxy.silence_between_sends` loses what a client sends after a part of a round trip, and tells neither
  side: the server goes on waiting for the rest, as after a power cut. The client's own end is not passed on.
* :meth:`PostgresProxy.silent_to` holds one direction up, as a network does that drops packets one way.
* :meth:`PostgresProxy.garble` puts something else in the place of one message of the server.

TLS is declined, so the proxy can read along.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

__all__ = ["Cut", "Match", "PostgresProxy", "Side"]

Match = Callable[[bytes], bool]
Side = Literal["client", "server"]

SSL_REQUEST, GSSENC_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
ENDS_ROUND_TRIP = (b"S", b"Q", b"F")  # Sync, Query, FunctionCall: each is answered by one ReadyForQuery
READY_FOR_QUERY = b"Z"
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER: the client sees a reset, as from a machine that is gone


class Cut:
    """An order to cut the connection whose message is the ``nth`` that matches; carried out once."""

    def __init__(self, match: Match, *, deliver: bool, nth: int, half: bool = False) -> None:
        self.match, self.deliver, self.half, self._left = match, deliver, half, nth
        self.fired = threading.Event()

    def wants(self, message: bytes) -> bool:
        """Tell whether this is the message; called under the proxy's lock, until it says yes."""
        if self._left and self.match(message):
            self._left -= 1
            return not self._left
        return False


class PostgresProxy:
    """Stand between clients and the server at (host, port); see the module docstring."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: list[_Connection] = []
        self._orders: list[Cut] = []
        self._silences: list[Cut] = []
        self._earlier = 0
        self._garbage: tuple[int, bytes] | None = None
        self.open_to: dict[Side, threading.Event] = {"client": threading.Event(), "server": threading.Event()}
        for way in self.open_to.values():
            way.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        for way in self.open_to.values():
            way.set()
        self.cut_all()

    def close(self) -> None:
        """Accept no more connections; those that are open go on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()

    def url_for(self, url: str) -> str:
        """Return the same URL, but through the proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}"))

    @property
    def round_trips(self) -> int:
        """The round trips that were sent to the server since the last :meth:`reset`, over all connections."""
        with self._lock:
            return sum(connection.round_trips for connection in self._connections) - self._earlier

    @property
    def round_trips_by_connection(self) -> list[int]:
        """The round trips of each connection since it was opened, in the order in which they were opened."""
        with self._lock:
            return [connection.round_trips for connection in self._connections]

    def reset(self) -> None:
        """Count from zero, and withdraw the cuts, and the garbage, that have not come."""
        with self._lock:
            self._earlier = sum(connection.round_trips for connection in self._connections)
            self._orders.clear()
            self._silences.clear()
            self._garbage = None

    def cut_after_send(self, match: Match, *, nth: int = 1) -> Cut:
        """Cut the connection after the server worked the matching message off, before its answer arrives."""
        return self._order(Cut(match, deliver=True, nth=nth))

    def cut_before_send(self, match: Match, *, nth: int = 1) -> Cut:
        """Cut the connection in place of sending the matching message, and what follows it, to the server."""
        return self._order(Cut(match, deliver=False, nth=nth))

    def cut_while_sending(self, match: Match, *, nth: int = 1) -> Cut:
        """Cut the connection when the server has got one half of the matching message."""
        return self._order(Cut(match, deliver=False, nth=nth, half=True))

    def silence_between_sends(self) -> Cut:
        """Pass on the next part of a round trip that comes without its end, and nothing more, while all stays open."""
        cut = Cut(lambda _: False, deliver=False, nth=1)
        with self._lock:
            self._silences.append(cut)
        return cut

    def cut_all(self) -> None:
        """Cut every connection now."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()

    @contextlib.contextmanager
    def silent_to(self, side: Side) -> Iterator[None]:
        """Let nothing arrive at one side meanwhile, on any connection; what was sent arrives when the block ends."""
        self.open_to[side].clear()
        try:
            yield
        finally:
            self.open_to[side].set()

    def garble(self, nth: int, garbage: bytes) -> None:
        """Send ``garbage`` in the place of the ``nth`` message from the server, counted from now."""
        with self._lock:
            self._garbage = nth, garbage

    def seen_by_client(self, message: bytes) -> bytes:
        """Return what a client gets in the place of a message of the server."""
        with self._lock:
            if self._garbage is None:
                return message
            left, garbage = self._garbage
            self._garbage = None if left == 1 else (left - 1, garbage)
            return garbage if left == 1 else message

    def _order(self, cut: Cut) -> Cut:
        with self._lock:
            self._orders.append(cut)
        return cut

    def order_for(self, message: bytes) -> Cut | None:
        """Take the order that this message fulfils off the list, if there is one."""
        with self._lock:
            for order in self._orders:
                if order.wants(message):
                    self._orders.remove(order)
                    return order
        return None

    def falls_silent(self) -> bool:
        """Take an order to fall silent off the list, if there is one."""
        with self._lock:
            if self._silences:
                self._silences.pop(0).fired.set()
                return True
        return False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:  # the server is down: so are we
                client.close()
                continue
            connection = _Connection(self, client, server)
            with self._lock:
                self._connections.append(connection)
            connection.start()


class _Connection:
    """One client, one connection to the server, one thread for each direction.

    ``_sent`` counts what the server answers with ReadyForQuery: the start (one), then each round
    trip; ``_answered`` counts these answers. So answer n belongs to round trip n, whatever is in flight.
    """

    def __init__(self, proxy: PostgresProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._sent = 0
        self._answered = 0
        self._working = 2  # threads; the last one closes the sockets, so that no thread uses a descriptor of others
        self._lock = threading.Lock()
        self._order: tuple[int, Cut] | None = None  # the answer to swallow
        self._ended = threading.Event()
        self._silent = False
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def round_trips(self) -> int:
        return max(0, self._sent - 1)

    def start(self) -> None:
        for work in (self._forward, self._return):
            threading.Thread(target=self._guard, args=(work,), name="proxy", daemon=True).start()

    def cut(self) -> None:
        """Reset both sides, even in the middle of a message."""
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._wake()

    def _wake(self) -> None:
        """End both directions: a thread that waits in recv() or sendall() goes on."""
        self._ended.set()
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _guard(self, work: Callable[[], None]) -> None:
        """Close both sides when either is gone."""
        try:
            with contextlib.suppress(OSError):
                work()
        finally:
            self._wake()
            with self._lock:
                self._working -= 1
                last = not self._working
            if last:
                self._client.close()
                self._server.close()

    def _forward(self) -> None:
        """Carry what the client says to the server, and look at every message."""
        reader = _Reader(self._client)
        if not self._forward_start(reader):
            return
        for message in reader.messages():
            ends = message[:1] in ENDS_ROUND_TRIP
            order = self._proxy.order_for(message)
            if order and not order.deliver:
                if order.half:
                    self._server.sendall(message[: len(message) // 2])
                order.fired.set()  # before the client can notice
                self.cut()
                return
            if order:
                self._order = (self._sent + 1, order)
            self._sent += ends
            self._proxy.open_to["server"].wait()
            self._server.sendall(message)
            if not ends and reader.is_drained and self._proxy.falls_silent():
                self._silent = True
                self._ended.wait()  # until the server gives up, or the test ends
                return

    def _forward_start(self, reader: _Reader) -> bool:
        """Decline encryption, carry the start over; False when the connection is only there to cancel."""
        while packet := reader.packet():
            code = struct.unpack_from("!i", packet, 4)[0]
            if code in (SSL_REQUEST, GSSENC_REQUEST):
                self._client.sendall(b"N")
                continue
            self._sent += code != CANCEL_REQUEST
            self._server.sendall(packet)
            if code == CANCEL_REQUEST:
                self._server.recv(1)  # the server closes it when the cancellation was sent
            return code != CANCEL_REQUEST
        return False

    def _return(self) -> None:
        """Carry what the server says to the client, except the answer that is to be lost."""
        for message in _Reader(self._server).messages():
            self._answered += message[:1] == READY_FOR_QUERY
            order = self._order
            # The answer under way is number _answered + 1; a ReadyForQuery, counted already, ends number _answered.
            current = self._answered + (message[:1] != READY_FOR_QUERY)
            self._proxy.open_to["client"].wait()
            if self._silent:
                continue
            if order is None or current < order[0]:
                self._client.sendall(self._proxy.seen_by_client(message))
            elif message[:1] == READY_FOR_QUERY:
                order[1].fired.set()
                self.cut()
                return


class _Reader:
    """Split a stream into protocol messages."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._held = bytearray()

    @property
    def is_drained(self) -> bool:
        """Whether no other whole message has arrived yet."""
        held = self._held
        return len(held) < 5 or len(held) < 1 + struct.unpack_from("!i", held, 1)[0]

    def packet(self) -> bytes:
        """Read one packet without a type byte (the start of a connection); empty at the end of the stream."""
        return self._take(0)

    def messages(self) -> Iterator[bytes]:
        """Read messages with a type byte until the stream ends."""
        while message := self._take(1):
            yield message

    def _take(self, header: int) -> bytes:
        if not self._fill(header + 4):
            return b""
        size = header + struct.unpack_from("!i", self._held, header)[0]
        if not self._fill(size):
            return b""
        message = bytes(self._held[:size])
        del self._held[:size]
        return message

    def _fill(self, size: int) -> bool:
        while len(self._held) < size:
            if not (more := self._end.recv(65536)):
                return False
            self._held += more
        return True
