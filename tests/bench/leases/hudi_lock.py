"""The algorithm of Hudi's storage-based lock provider (RFC-91), written again on obstore.

To acquire: read the lock file; if it is valid, somebody has it. Else write it, on condition that it is still absent, or
still the one that was read. To release: write it once more, marked as expired, on condition that it is still one's
own. A waiter asks again every second, which is Hudi's default, in no order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from tests.bench.leases.locker import TTL, Table, Unfenced

__all__ = ["HudiLock"]

WAIT = 1.0
"""hoodie.write.lock.wait_time_ms_between_retry, in seconds."""
DRIFT = 0.5
"""How far apart clocks may be: a file is over only after that, in seconds."""


class HudiLock(Unfenced):
    """One writer. It has no heartbeat: no window is as long as the lock's validity."""

    def __init__(self, bucket: str, options: Mapping[str, Any], table: Table, timeout: float) -> None:
        super().__init__(table, timeout)
        self._store = S3Store(bucket, **options)
        self._owner = str(uuid4())
        self._path, self._tag, self._until = "", "", 0

    def acquire(self, name: str) -> bool:
        self._path = f"{name}/.hoodie/.locks/table_lock.json"
        ends = time.monotonic() + self._timeout
        while not self._try():
            if time.monotonic() + WAIT > ends:
                return False
            time.sleep(WAIT)
        return True

    def _try(self) -> bool:
        mode: Any = "create"
        try:
            found = obstore.get(self._store, self._path)
        except FileNotFoundError:
            pass
        else:
            if _is_valid(json.loads(bytes(found.bytes()))):
                return False
            mode = {"e_tag": found.meta["e_tag"]}
        self._until = int(1000 * (time.time() + TTL))
        return self._put(mode, expired=False)

    def _put(self, mode: Any, *, expired: bool) -> bool:
        text = json.dumps({"expired": expired, "expiration": self._until, "owner": self._owner})
        try:
            self._tag = str(obstore.put(self._store, self._path, text.encode(), mode=mode)["e_tag"])
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def release(self) -> None:
        self._put({"e_tag": self._tag}, expired=True)

    def close(self) -> None:
        """Nothing is kept open that could be closed."""


def _is_valid(lock: Mapping[str, Any]) -> bool:
    return not lock["expired"] and 1000 * time.time() <= lock["expiration"] + 1000 * DRIFT
