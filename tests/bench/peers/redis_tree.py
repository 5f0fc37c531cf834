"""A tree of read-write locks in Redis: one script locks a whole path, one unlocks it."""

from __future__ import annotations

import random
import time
from typing import Any, Final
from uuid import uuid4

import redis

from tests.bench.peers.contender import waited
from tests.bench.peers.locked import Nodes

__all__ = ["LOCK", "UNLOCK", "RedisTree"]

TTL = 30_000
"""How long a lock lasts whose holder died, in milliseconds."""
INTENT = 100
"""How long new readers stand back for a writer that waits, in milliseconds."""
SHORTEST, LONGEST = 0.002, 0.01
"""Between two attempts, in seconds; a random part of it."""

LOCK: Final = """
local holder, alone = ARGV[1], ARGV[2] == 'w'
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
for i, node in ipairs(KEYS) do
  if redis.call('EXISTS', 'w:' .. node) == 1 then return 0 end
  if alone and i == #KEYS then
    redis.call('ZREMRANGEBYSCORE', 'r:' .. node, '-inf', now)
    if redis.call('ZCARD', 'r:' .. node) > 0 then
      redis.call('SET', 'i:' .. node, holder, 'PX', ARGV[4])
      return 0
    end
  else
    local waiting = redis.call('GET', 'i:' .. node)
    if waiting and waiting ~= holder then return 0 end
  end
end
for i, node in ipairs(KEYS) do
  if alone and i == #KEYS then
    redis.call('SET', 'w:' .. node, holder, 'PX', ARGV[3])
    redis.call('DEL', 'i:' .. node)
  else
    redis.call('ZADD', 'r:' .. node, now + ARGV[3], holder)
  end
end
return 1"""
UNLOCK: Final = """
for i, node in ipairs(KEYS) do
  if ARGV[2] == 'w' and i == #KEYS then
    if redis.call('GET', 'w:' .. node) == ARGV[1] then redis.call('DEL', 'w:' .. node) end
  else
    redis.call('ZREM', 'r:' .. node, ARGV[1])
  end
end
return 1"""


class RedisTree:
    """One connection, without the client's pool. Nobody waits for the answer to an unlock: the next call reads it."""

    def __init__(self, port: int) -> None:
        self._connection: Any = redis.Connection(host="127.0.0.1", port=port)
        self._connection.connect()
        self._holder = uuid4().hex
        self._lock, self._unlock = (self._loaded(script) for script in (LOCK, UNLOCK))
        self._held: tuple[Nodes, str] = ((), "r")
        self._unread = 0

    def acquire(self, nodes: Nodes, *, exclusive: bool) -> int:
        mode, vain = "w" if exclusive else "r", 0
        while not self._asked("EVALSHA", self._lock, len(nodes), *nodes, self._holder, mode, TTL, INTENT):
            time.sleep(random.uniform(0, min(LONGEST, SHORTEST * 2 ** min(vain, 10))))
            vain += 1
        self._held = nodes, mode
        return vain

    def release(self) -> None:
        nodes, mode = self._held
        self._connection.send_command("EVALSHA", self._unlock, len(nodes), *nodes, self._holder, mode)
        self._unread += 1

    def close(self) -> None:
        self._drain()
        self._connection.disconnect()

    def _asked(self, *words: object) -> Any:
        self._connection.send_command(*words)
        waited()
        self._drain()
        return self._connection.read_response()

    def _drain(self) -> None:
        while self._unread:
            self._connection.read_response()
            self._unread -= 1

    def _loaded(self, script: str) -> str:
        self._connection.send_command("SCRIPT LOAD", script)
        found = self._connection.read_response()
        return found.decode() if isinstance(found, bytes) else str(found)
