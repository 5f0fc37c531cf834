"""Sign-in at an issuer of OpenID Connect: its access tokens say who makes a request. Needs the extra ``[oidc]``."""

from __future__ import annotations

from metastore.serve.oidc.issuer import Issuer

__all__ = ["Issuer"]
