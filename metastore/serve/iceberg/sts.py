"""Short-lived keys for the files of one table: sessions of S3's token service (AssumeRole). Needs the extra ``[sts]``.

The server asks for a session of a role, with a policy for the table's location and the user's rights on the table. It
keeps a key for half of its life, for each location, user and set of rights: so a key lives at least for the other half
when a client gets it. Each request checks the rights before it asks for a key, so a user who has lost them gets none,
not even a kept one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument
from metastore.serve.iceberg.credentials import EXPIRES, CannotVend, Static, Vended
from metastore.serve.iceberg.policy import RIGHTS, session_policy

__all__ = ["Sts"]

_SHORTEST, _LONGEST = 900, 43_200
"""How long a session of AssumeRole may last (seconds)."""
_PATIENCE: Final = 10.0
"""How long a request waits for the token service (seconds), whatever it does. Its two attempts take 10 s at most."""
_ATTEMPT: Final = {"connect_timeout": 2, "read_timeout": 3, "retries": {"total_max_attempts": 2, "mode": "standard"}}
_THREADS: Final = 8
_MOST: Final = 256
"""How many calls may be under way or wait for a thread. A further one is refused at once."""
_KEPT: Final = 10_000
_LOG: Final = logging.getLogger("metastore.serve")
_Key = tuple[str, str, tuple[str, ...]]
"""A location, a principal, and its rights."""
_CODE: Final = re.compile(r"[\w.]{1,64}", re.ASCII)


@dataclass
class _Asked:
    """A call to the token service."""

    ends: float
    """The time up to which its key is given out."""
    wanted: float = 0.0
    """The time up to which a request waits for it: after that it is not begun."""
    session: Future[dict[str, str]] = field(default_factory=Future)


class Sts:
    """Make keys that reach the files of one table, for as long as ``duration``."""

    def __init__(
        self,
        role: str,
        *,
        properties: Mapping[str, str] | None = None,
        endpoint: str | None = None,
        duration: float = 3600.0,
    ) -> None:
        """Check the arguments; ask for no key yet.

        ``role``: the ARN of the role whose sessions clients get. ``properties``: the properties of the warehouse's file
        system. The server keeps the secrets among them to itself: with them it reads metadata, and calls the token
        service. Without them it uses those of its environment. Clients get the rest, such as ``s3.region``.
        ``endpoint``: the address of the token service, if it is not that of AWS in ``s3.region``. ``duration``: how
        long a key lives (seconds).

        Raises InvalidArgument.
        """
        try:
            from botocore.session import Session  # noqa: PLC0415  (an extra of its own)
        except ImportError:
            raise InvalidArgument("short-lived keys need more: pip install 'versioned-metastore[sts]'") from None
        if not role.startswith("arn:") or len(role) < 20:  # AWS's own bound
            raise InvalidArgument(f"a role is an ARN, such as arn:aws:iam::123456789012:role/lake, not {role[:80]!r}")
        if not _SHORTEST <= duration <= _LONGEST:
            raise InvalidArgument(f"a key lives for 15 minutes to 12 hours, not for {duration:g} s")
        given = dict(properties or {})
        self._own = Static("", given)
        self._shown = self._own.shown()
        self._session = Session()
        self._region = (
            given.get("s3.region") or given.get("client.region") or self._session.get_config_variable("region")
        )
        if not self._region:
            raise InvalidArgument("the token service needs a region: --credential METALAKE.CATALOG:s3.region=…")
        self._role, self._endpoint, self._duration = role, endpoint, int(duration)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="metastore-sts")
        self._kept: LRUCache[_Key, _Asked] = LRUCache(_KEPT)
        self._open = 0
        """How many calls are under way or wait for a thread."""
        self._clients: LRUCache[tuple[str | None, ...], Any] = LRUCache(1)
        self._lock, self._making = Lock(), Lock()

    def properties(self) -> dict[str, str]:
        """Return the properties with which the server itself reaches files. Raises InvalidArgument."""
        return self._own.properties()

    def vend(self, location: str, principal: str, rights: Collection[str] = RIGHTS) -> Vended | None:
        """Return a key for the files below a table's location; None: no policy can name these files.

        Threads that ask for the same key at once share one call to the token service. A call for which no request waits
        is not begun, so that it does not delay others. Raises CannotVend.
        """
        policy = session_policy(location, rights, self._role)
        if policy is None:
            _LOG.warning("no policy names the files of %.200r alone: %s gets no key", location, principal)
            return None
        key, now = (location, principal, tuple(sorted(rights))), SYSTEM.monotonic()
        with self._lock:
            asked = self._kept.get(key)
            if asked is None or now >= asked.ends:
                asked = self._ask(key, policy)
            asked.wanted = now + _PATIENCE
        try:
            config = asked.session.result(_PATIENCE)
        except TimeoutError:  # a later request joins the same call
            raise _no_answer() from None
        return Vended(location.rstrip("/") + "/", {**self._shown, **config})

    def _ask(self, key: _Key, policy: str) -> _Asked:
        """Send a call to a thread; the lock is held."""
        if self._open >= _MOST:
            raise CannotVend(f"{self._open} requests wait for the token service")
        asked = _Asked(SYSTEM.monotonic() + self._duration / 2)
        asked.session = self._threads.submit(self._call, key, asked, policy)
        self._kept[key], self._open = asked, self._open + 1
        return asked

    def _call(self, key: _Key, asked: _Asked, policy: str) -> dict[str, str]:
        """Ask for a key if a request still waits for it; forget the call if it brings no key."""
        try:
            with self._lock:
                if SYSTEM.monotonic() >= asked.wanted:
                    self._forget(key, asked)  # under the same lock: no request can join it later
                    raise _no_answer()  # a request may still wait for a moment
            return self._assume(policy, key[1])
        except BaseException:
            with self._lock:
                self._forget(key, asked)
            raise
        finally:
            with self._lock:
                self._open -= 1

    def _forget(self, key: _Key, asked: _Asked) -> None:
        if self._kept.get(key) is asked:
            del self._kept[key]

    def _assume(self, policy: str, principal: str) -> dict[str, str]:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            made = self._client().assume_role(
                RoleArn=self._role,
                RoleSessionName=re.sub(r"[^\w+=,.@-]", "-", principal, flags=re.ASCII)[-64:].ljust(2, "-"),
                Policy=policy,
                DurationSeconds=self._duration,
            )["Credentials"]
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            # the error's message may contain secrets
            said = code if _CODE.fullmatch(code) else "an error without a code"
            raise CannotVend(f"the token service refused AssumeRole of {self._role}: {said}") from None
        except BotoCoreError as error:
            raise CannotVend(f"the token service cannot be asked: {type(error).__name__}") from None
        return {
            "s3.access-key-id": made["AccessKeyId"],
            "s3.secret-access-key": made["SecretAccessKey"],
            "s3.session-token": made["SessionToken"],
            EXPIRES: str(int(made["Expiration"].timestamp() * 1000)),
        }

    def _client(self) -> Any:
        """Return the client of the token service, made once for each set of the server's own keys."""
        from botocore.config import Config  # noqa: PLC0415

        own = self._own.properties()
        names = ("access-key-id", "secret-access-key", "session-token")
        keys = tuple(own.get(f"s3.{name}") or own.get(f"client.{name}") for name in names)
        with self._making:
            if (client := self._clients.get(keys)) is None:
                client = self._clients[keys] = self._session.create_client(
                    "sts",
                    region_name=self._region,
                    endpoint_url=self._endpoint,
                    aws_access_key_id=keys[0],
                    aws_secret_access_key=keys[1],
                    aws_session_token=keys[2],
                    config=Config(**_ATTEMPT),
                )
        return client


def _no_answer() -> CannotVend:
    return CannotVend(f"the token service did not answer within {_PATIENCE:g} s")
