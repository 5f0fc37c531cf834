"""Short-lived keys of S3: sessions of its token service (AssumeRole). Needs the extra ``[sts]``.

The server asks for a session of a role, with a policy for the table's location and the user's rights on the table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache

from metastore.errors import InvalidArgument
from metastore.serve.iceberg.credentials import CannotVend
from metastore.serve.iceberg.kept_keys import Made
from metastore.serve.iceberg.policy import session_policy
from metastore.serve.iceberg.renewal import S3_ENDS
from metastore.serve.iceberg.short_lived import ShortLived, checked_life

__all__ = ["Sts"]

_ATTEMPT: Final = {"connect_timeout": 2, "read_timeout": 3, "retries": {"total_max_attempts": 2, "mode": "standard"}}
"""Two attempts take 10 s at most, which is as long as a request waits."""
_CODE: Final = re.compile(r"[\w.]{1,64}", re.ASCII)


class Sts(ShortLived[str]):
    """Make keys of S3 that reach the files of one table, for as long as ``duration``."""

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
        system. With the secrets among them the server reads metadata and calls the token service; no client gets them.
        Without them the server uses the secrets of its environment. Clients get the rest, such as ``s3.region``.
        ``endpoint``: the address of the token service, if it is not that of AWS in ``s3.region``. ``duration``: how
        long a key lives (seconds).

        Raises InvalidArgument.
        """
        try:
            from botocore.session import Session  # noqa: PLC0415  (an extra of its own)
        except ImportError:
            raise InvalidArgument("short-lived keys need more: pip install 'versioned-metastore[sts]'") from None
        if not role.startswith("arn:") or len(role) < 20:  # AWS accepts no shorter ARN
            raise InvalidArgument(f"a role is an ARN, such as arn:aws:iam::123456789012:role/lake, not {role[:80]!r}")
        self._duration = checked_life(duration)
        super().__init__("sts", properties)
        given = dict(properties or {})
        self._session = Session()
        self._region = (
            given.get("s3.region") or given.get("client.region") or self._session.get_config_variable("region")
        )
        if not self._region:
            raise InvalidArgument("the token service needs a region: --credential METALAKE.CATALOG:s3.region=…")
        self._role, self._endpoint = role, endpoint
        self._clients: LRUCache[tuple[str | None, ...], Any] = LRUCache(1)
        self._making = Lock()

    def _scope(self, location: str, rights: Collection[str]) -> str | None:
        return session_policy(location, rights, self._role)

    def _make(self, scope: str, principal: str) -> Made:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            made = self._client().assume_role(
                RoleArn=self._role,
                RoleSessionName=re.sub(r"[^\w+=,.@-]", "-", principal, flags=re.ASCII)[-64:].ljust(2, "-"),
                Policy=scope,
                DurationSeconds=self._duration,
            )["Credentials"]
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            # the error's message may contain secrets
            said = code if _CODE.fullmatch(code) else "an error without a code"
            raise CannotVend(f"the token service refused AssumeRole of {self._role}: {said}") from None
        except BotoCoreError as error:
            raise CannotVend(f"the token service cannot be reached: {type(error).__name__}") from None
        config = {
            "s3.access-key-id": made["AccessKeyId"],
            "s3.secret-access-key": made["SecretAccessKey"],
            "s3.session-token": made["SessionToken"],
            S3_ENDS: str(int(made["Expiration"].timestamp() * 1000)),
        }
        return Made(config, self._duration)

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
