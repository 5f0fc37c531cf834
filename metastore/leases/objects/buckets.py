"""The name of an object store's bucket: one bucket has one name, however its URL is spelt.

``s3a`` and ``s3n`` are S3, ``gcs`` is ``gs``. ``abfs``, ``abfss``, ``wasb``, ``wasbs`` and ``az`` are Azure: the first
two differ in TLS, the next two name another endpoint of the same account. Host names ignore case; bucket names do not.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

__all__ = ["bucket_of", "server_of"]

_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "az")}
_PORTS: Final = {"http": 80, "https": 443}


def bucket_of(scheme: str, authority: str) -> tuple[str, str, str]:
    """Return the scheme, the bucket or container, and the account ("" if the URL does not name one)."""
    scheme = _SAME.get(scheme.lower(), scheme.lower())
    if scheme != "az" or "@" not in authority:
        return scheme, authority, ""
    container, _, host = authority.rpartition("@")
    account, _, domain = host.lower().removesuffix(":443").partition(".")
    return scheme, container, f"{account}.{domain.removeprefix('dfs.').removeprefix('blob.')}" if domain else account


def server_of(url: str) -> str:
    """Return the canonical URL of an object store's server."""
    try:
        parts = urlsplit(url.rstrip("/"))
        port = parts.port
    except ValueError:  # the client that opens the URL reports the problem
        return url
    host = (parts.hostname or "") + ("" if port in (None, _PORTS.get(parts.scheme)) else f":{port}")
    return f"{parts.scheme}://{host}{parts.path}"
