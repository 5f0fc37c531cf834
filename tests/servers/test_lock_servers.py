"""The lock servers beside which leases are measured: they start, answer, and end with us."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

import psutil
import pytest

from tests.servers.etcd_server import EtcdServer
from tests.servers.listening import Listening, Missing, program
from tests.servers.postgres import ended
from tests.servers.redis_server import RedisServer
from tests.servers.zookeeper_server import ZooKeeperServer

SERVERS: dict[str, tuple[Callable[[], Listening], bytes, bytes]] = {
    "redis": (partial(RedisServer, durable=False), b"CONFIG GET appendonly\r\n", b"\r\nno\r\n"),
    "redis durable": (partial(RedisServer, durable=True), b"CONFIG GET appendfsync\r\n", b"\r\nalways\r\n"),
    "etcd": (EtcdServer, b"GET /health HTTP/1.0\r\n\r\n", b'"health":"true"'),
    "zookeeper": (ZooKeeperServer, b"ruok", b"imok"),
}
"""What starts it, what to ask it, and what its answer holds."""


@pytest.mark.parametrize("name", SERVERS)
def test_starts_answers_and_leaves_nothing_behind(name: str) -> None:
    make, question, answer = SERVERS[name]
    try:
        server = make()
    except Missing as reason:
        pytest.skip(str(reason))
    with server:
        process = psutil.Process(server.pid)
        assert answers(server.port, question, answer)
        server.halt()
        server.start()
        assert answers(server.port, question, answer)
        again = psutil.Process(server.pid)
    assert ended(process)
    assert ended(again)
    assert not server.folder.exists()


def answers(port: int, question: bytes, answer: bytes) -> bool:
    """Ask, and read until the answer has come or the server has said all."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(question)
        read = b""
        while answer not in read and (chunk := connection.recv(4096)):
            read += chunk
    return answer in read


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(Missing, match="no-such-program is missing"):
        program("no-such-program", "such-a-package")
