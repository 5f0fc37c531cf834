"""Serve a store over HTTP: Iceberg's REST protocol and Gravitino's REST API. Needs the extra ``[serve]``.

``application`` is an ASGI application; ``serve_application`` runs it. Any number of servers may serve one database on
PostgreSQL.
"""

from __future__ import annotations

try:
    from metastore.serve.application import application
    from metastore.serve.iceberg.azure_sas import AzureSas
    from metastore.serve.iceberg.credentials import CannotVend, Vended, Vendor
    from metastore.serve.iceberg.gcs_tokens import GcsTokens
    from metastore.serve.iceberg.sts import Sts
    from metastore.serve.limits import Limits
    from metastore.serve.principals import Principal, Principals, TokenFile, tokens_of
    from metastore.serve.server import serve_application
    from metastore.serve.tls import Tls
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"metastore.serve needs {error.name}: pip install 'versioned-metastore[serve]'", name=error.name
    ) from None

__all__ = [
    "AzureSas",
    "CannotVend",
    "GcsTokens",
    "Limits",
    "Principal",
    "Principals",
    "Sts",
    "Tls",
    "TokenFile",
    "Vended",
    "Vendor",
    "application",
    "serve_application",
    "tokens_of",
]
