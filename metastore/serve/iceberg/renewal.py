"""Tell a client where it gets its next key, by the property that Iceberg's clients read for its cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from metastore.serve.iceberg.credentials import Vended

if TYPE_CHECKING:
    from pyiceberg.typedef import Identifier

__all__ = ["ADLS_ENDS", "GCS_ENDS", "S3_ENDS", "renewed"]

# These properties say when a key ends, in milliseconds since 1970. Clients renew the key before that time.
S3_ENDS: Final = "s3.session-token-expires-at-ms"
ADLS_ENDS: Final = "adls.sas-token-expires-at-ms"
"""A property has this name, a dot, and the account or its host."""
GCS_ENDS: Final = "gcs.oauth2.token-expires-at"
_RENEWALS: Final = {
    S3_ENDS: "client.refresh-credentials-endpoint",
    ADLS_ENDS: "adls.refresh-credentials-endpoint",
    GCS_ENDS: "gcs.oauth2.refresh-credentials-endpoint",
}
"""For each property that says when a key ends: the property with the address of the next key."""


def renewed(made: Vended, prefix: str, names: Identifier) -> Vended:
    """Return the credentials. If they end, add the path below the catalog's address where the next ones are."""
    wanted = [
        name
        for ends, name in _RENEWALS.items()
        if any(key == ends or key.startswith(f"{ends}.") for key in made.config)
    ]
    if not wanted:
        return made
    namespace, table = "\x1f".join(names[:-1]), names[-1]
    parts = ("v1", prefix, "namespaces", namespace, "tables", table, "credentials")
    path = "/".join(quote(part, safe="") for part in parts)
    return replace(made, config={**dict.fromkeys(wanted, path), **made.config})
