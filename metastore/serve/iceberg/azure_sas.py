"""Short-lived keys of Azure: a user delegation SAS for a table's directory. Needs the extra ``[azure]``.

The server asks the account for a user delegation key, with its own identity at Entra ID, and signs a SAS with it. The
SAS names the directory, the permissions, and its end. It does no more than the identity's own roles allow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final

from cachetools import LRUCache

from metastore.clock import SYSTEM
from metastore.errors import InvalidArgument
from metastore.serve.iceberg.credentials import CannotVend
from metastore.serve.iceberg.directory import Directory, directory
from metastore.serve.iceberg.kept_keys import Made
from metastore.serve.iceberg.renewal import ADLS_ENDS
from metastore.serve.iceberg.short_lived import ShortLived, checked_life

__all__ = ["AzureSas"]

_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}(\.dfs(\.[a-z0-9-]+)+)?")
_IDENTITY: Final = ("adls.tenant-id", "adls.client-id", "adls.client-secret")
_ATTEMPT: Final[dict[str, Any]] = {"connection_timeout": 2, "read_timeout": 3, "retry_total": 0}
"""One attempt for the identity's token and one for the delegation key: 10 s together, as long as a request waits."""
_EARLY: Final = timedelta(minutes=5)
"""A SAS is valid from this long before it is made, because the clock of Azure may be behind."""
_CODE: Final = re.compile(r"[A-Za-z]{1,64}")
_SIGN_IN: Final = re.compile(r"\bAADSTS\d{1,10}\b")
"""The code of an error at Entra ID, which is in the message only."""


class AzureSas(ShortLived[Directory]):
    """Make keys of Azure that open the directory of one table, for as long as ``duration``."""

    def __init__(
        self,
        account: str,
        *,
        properties: Mapping[str, str] | None = None,
        endpoint: str | None = None,
        duration: float = 3600.0,
    ) -> None:
        """Check the arguments; ask for no key yet.

        ``account``: the storage account, or its host, such as ``lake.dfs.core.chinacloudapi.cn``. ``properties``: the
        properties of the warehouse's file system. With ``adls.tenant-id``, ``adls.client-id`` and
        ``adls.client-secret`` they name the server's own identity; without them the server uses that of its
        environment. Clients get neither these three nor any secret. ``endpoint``: the address of the account, if it is
        not that of its host. ``duration``: how long a key lives (seconds).

        Raises InvalidArgument.
        """
        try:
            import azure.identity  # noqa: PLC0415  (an extra of its own)
            import azure.storage.filedatalake  # noqa: F401, PLC0415
        except ImportError:
            raise InvalidArgument("keys of Azure need more: pip install 'versioned-metastore[azure]'") from None
        if _ACCOUNT.fullmatch(account) is None:
            raise InvalidArgument(f"an account of Azure is 3 to 24 small letters and digits, not {account[:80]!r}")
        self._life = timedelta(seconds=checked_life(duration))
        self._host = account if "." in account else f"{account}.dfs.core.windows.net"
        self._account = self._host.partition(".")[0]
        super().__init__("azure", {"adls.account-name": self._account, **(properties or {})})
        if len({name in (properties or {}) for name in _IDENTITY}) > 1:
            raise InvalidArgument(f"an identity is {', '.join(_IDENTITY)}: give all three, or none")
        self._endpoint = endpoint or f"https://{self._host}"
        self._clients: LRUCache[tuple[str | None, ...], Any] = LRUCache(1)
        self._making = Lock()

    def _shown(self) -> Mapping[str, str]:
        # a file system that gets an identity would use it in place of the key
        return {key: value for key, value in super()._shown().items() if key not in _IDENTITY}

    def _scope(self, location: str, rights: Collection[str]) -> Directory | None:
        return directory(location, rights, self._host)

    def _make(self, scope: Directory, principal: str) -> Made:
        from azure.core.exceptions import AzureError  # noqa: PLC0415
        from azure.storage.filedatalake import generate_directory_sas  # noqa: PLC0415

        now = datetime.fromtimestamp(SYSTEM.micros() // 1_000_000, UTC)
        begins, ends = now - _EARLY, now + self._life
        try:
            key = self._client().get_user_delegation_key(begins, ends)
        except AzureError as error:
            raise CannotVend(f"the account {self._account} gave no user delegation key: {_said(error)}") from None
        sas = generate_directory_sas(
            self._account,
            scope.container,
            scope.path,
            key,
            permission=scope.permissions,
            start=begins,
            expiry=ends,
            protocol="https",
        )
        return Made(self._config(sas, ends), self._life.total_seconds())

    def _config(self, sas: str, ends: datetime) -> dict[str, str]:
        """Return the properties of a key. Java's clients look for the host, others for the account or for neither."""
        until = str(int(ends.timestamp() * 1000))
        config = {"adls.sas-token": sas}
        for name in (self._account, self._host):
            config |= {f"adls.sas-token.{name}": sas, f"{ADLS_ENDS}.{name}": until}
        return config

    def _client(self) -> Any:
        """Return the client of the account, made once for each identity of the server."""
        from azure.storage.filedatalake import DataLakeServiceClient  # noqa: PLC0415

        own = self._own.properties()
        identity = tuple(own.get(name) for name in _IDENTITY)
        with self._making:
            if (client := self._clients.get(identity)) is None:
                client = DataLakeServiceClient(self._endpoint, _credential(*identity), **_ATTEMPT)
                self._clients[identity] = client
        return client


def _credential(tenant: str | None, client: str | None, secret: str | None) -> Any:
    """Return the server's identity: the given one, or that of its environment."""
    from azure.identity import ClientSecretCredential, DefaultAzureCredential  # noqa: PLC0415

    if tenant is None or client is None or secret is None:
        return DefaultAzureCredential(**_ATTEMPT)
    # trust the authority that the operator chose (AZURE_AUTHORITY_HOST): ask no other host whether it is valid
    return ClientSecretCredential(tenant, client, secret, disable_instance_discovery=True, **_ATTEMPT)


def _said(error: Exception) -> str:
    """Return the code of an error, or its class. The message may contain secrets."""
    if found := _SIGN_IN.search(str(error)):
        return found[0]
    code = getattr(error, "error_code", None)
    text = str(getattr(code, "value", code))
    return text if code is not None and _CODE.fullmatch(text) else type(error).__name__
