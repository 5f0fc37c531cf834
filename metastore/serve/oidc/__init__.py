"""Sign-in at an issuer of OpenID Connect: its access tokens say who makes a request. Needs the extra ``[oidc]``."""

from __future__ import annotations

from metastore.serve.oidc.code import Client, secret_of
from metastore.serve.oidc.issuer import Issuer

__all__ = ["Client", "Issuer", "secret_of"]
