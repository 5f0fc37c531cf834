"""Decide whether a token is an access token of an issuer for an audience (RFC 7519, 8725, 9068). Pure.

The issuer's keys decide how a token may be signed; the token never does. A key that names an algorithm may be used with
that one only. Any other key may be used with the algorithms of its type, which are all asymmetric. Keys in a token
(``jwk``, ``jku``, ``x5c``, ``x5u``) are not read.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from metastore.plain.bodies import read_json
from metastore.serve.principals import Claimed, NotAuthenticated

__all__ = ["Header", "Key", "Wanted", "check_id_token", "claims_of", "groups_of", "header_of", "key_of"]

_LONGEST: Final = 16_384
"""How many characters a token may have. A token with the groups of a large firm has a few thousand."""
_LONGEST_HEADER: Final = 8_192
"""How many characters the header of a token may have."""
_FORM: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of a key, by its ``kty`` and ``crv``."""
_RSA_BITS: Final = range(2048, 8193)
"""RFC 7518, section 3.3; longer keys take too much time."""
_TOLERANCE: Final = 30
"""How far the issuer's clock may be from this one (seconds)."""
_SIGNATURES: Final = PyJWS()


class Header(NamedTuple):
    """The header of a token, read before its signature is checked: it is not trusted yet."""

    kid: str
    algorithm: str
    type: str


@dataclass(frozen=True)
class Key:
    """A public key of an issuer, and its algorithms. Two keys are equal if the issuer wrote the same JSON."""

    jwk: Mapping[str, Any]
    algorithms: tuple[str, ...] = field(compare=False)
    public: Any = field(compare=False, repr=False)


class Wanted(NamedTuple):
    """The requirements on a token.

    A ``groups_claim`` with a slash in front is a path (RFC 6901): ``/realm_access/roles``.
    """

    issuer: str
    audience: str
    user_claim: str
    groups_claim: str | None = None


def key_of(jwk: Any) -> Key | None:
    """Return a key of a JWK set; None if it is not a key for the signatures of tokens."""
    if not isinstance(jwk, dict) or not isinstance(jwk.get("kid"), str) or "d" in jwk:
        return None
    if jwk.get("use", "sig") != "sig" or "verify" not in str(jwk.get("key_ops", "verify")):
        return None
    curve = None if jwk.get("kty") == "RSA" else str(jwk.get("crv"))
    algorithms = _ALGORITHMS.get((str(jwk.get("kty")), curve), ())
    if "alg" in jwk:
        algorithms = tuple([one for one in algorithms if one == jwk["alg"]])
    if not algorithms:
        return None
    try:
        public = PyJWK(jwk, algorithms[0]).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if jwk["kty"] == "RSA" and public.key_size not in _RSA_BITS:
        return None
    return Key(jwk, algorithms, public)


def header_of(token: str) -> Header:
    """Return the header of a token. Raises NotAuthenticated."""
    if len(token) > _LONGEST or not _FORM.fullmatch(token):
        raise NotAuthenticated("the token is not an issuer's: it is not a signed JWT, or it is too long")
    text = token.partition(".")[0]
    try:
        header = read_json(_decoded(text)) if len(text) <= _LONGEST_HEADER else None
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise NotAuthenticated("the token's header cannot be read")
    kid, algorithm, kind = (header.get(name, "") for name in ("kid", "alg", "typ"))
    if not all(isinstance(one, str) for one in (kid, algorithm, kind)) or not kid:
        raise NotAuthenticated("the token's header does not name its key (kid) and its algorithm")
    if "crit" in header or "b64" in header:
        raise NotAuthenticated("the token's header has an extension that this server does not know")
    return Header(kid, algorithm, kind.lower().removeprefix("application/"))


def claims_of(token: str, header: Header, key: Key, wanted: Wanted, now: float) -> dict[str, Any]:
    """Return the claims of a valid access token; ``sub`` and the user's claim are texts. Raises NotAuthenticated."""
    claims = _valid(token, header, key, wanted, now)
    if not _is_access_token(header, claims):
        raise NotAuthenticated("the token is not an access token; an ID token proves nothing to an API")
    for name in ("sub", wanted.user_claim):
        if not isinstance(claims.get(name), str) or not claims[name]:
            raise NotAuthenticated(f"the token has no claim {name} that is a text")
    return claims


def check_id_token(token: str, header: Header, key: Key, wanted: Wanted, nonce: str, now: float) -> None:
    """Check the ID token of a sign-in (OpenID Connect Core, section 3.1.3.7). Raises NotAuthenticated.

    The audience of ``wanted`` is the client. The nonce is the one with which this browser's sign-in began: a code from
    another browser comes with another nonce.
    """
    claims = _valid(token, header, key, wanted, now)
    if claims.get("azp", wanted.audience) != wanted.audience:
        raise NotAuthenticated("the ID token was made for another client")
    if claims.get("nonce") != nonce:
        raise NotAuthenticated("the ID token belongs to another sign-in")


def groups_of(claims: Mapping[str, Any], wanted: Wanted) -> Claimed | None:
    """Return the groups that a valid token names; None: no claim for groups is set. Raises NotAuthenticated.

    A token without the claim names no groups. Entra ID leaves the claim out where a user has many groups, and names it
    in ``_claim_names`` or ``hasgroups`` instead: then the groups are unknown, and NotAuthenticated is raised.
    """
    claim = wanted.groups_claim
    if claim is None:
        return None
    names, top = _found(claims, claim), _path(claim)[0]
    left_out = claims.get("_claim_names")
    if top not in claims and ((isinstance(left_out, dict) and top in left_out) or claims.get("hasgroups")):
        raise NotAuthenticated(f"the token does not list the user's groups in {claim}: there are too many")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise NotAuthenticated(f"the token's claim {claim} is not a list of texts")
    return Claimed(wanted.issuer, frozenset(names))


def _found(claims: Mapping[str, Any], claim: str) -> Any:
    """Return the value of a claim: [] if it is missing; None if a value on its path is not an object."""
    found: Any = claims
    for name in _path(claim):
        if not isinstance(found, dict):
            return None
        if name not in found:
            return []
        found = found[name]
    return found


def _path(claim: str) -> list[str]:
    """Return the names that lead to a claim. A dot is part of a name, as in ``https://lake.example/groups``."""
    if not claim.startswith("/"):
        return [claim]
    return [name.replace("~1", "/").replace("~0", "~") for name in claim[1:].split("/")]


def _valid(token: str, header: Header, key: Key, wanted: Wanted, now: float) -> dict[str, Any]:
    """Return the claims of a token that the issuer signed for the audience, and that has not ended."""
    claims = _signed(token, header, key)
    if claims.get("iss") != wanted.issuer:
        raise NotAuthenticated("the token is of another issuer")
    audience = claims.get("aud")
    if wanted.audience not in (audience if isinstance(audience, list) else [audience]):
        raise NotAuthenticated("the token is for another audience")
    _check_times(claims, now)
    return claims


def _signed(token: str, header: Header, key: Key) -> dict[str, Any]:
    if header.algorithm not in key.algorithms:
        raise NotAuthenticated("the token is signed with an algorithm that does not belong to its key")
    try:
        claims = read_json(_SIGNATURES.decode(token, key.public, [header.algorithm]))
    except (PyJWTError, ValueError, TypeError):
        raise NotAuthenticated("the token's signature is not the issuer's, or the token is damaged") from None
    if not isinstance(claims, dict):
        raise NotAuthenticated("the token has no claims")
    return claims


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    for name in ("exp", "nbf", "iat"):
        if type(claims.get(name)) not in (int, float) and (name == "exp" or name in claims):
            raise NotAuthenticated(f"the token's claim {name} is not a time")
    if now >= claims["exp"] + _TOLERANCE:
        raise NotAuthenticated("the token is over; get a new one from the issuer")
    if max(claims.get("nbf", 0), claims.get("iat", 0)) > now + _TOLERANCE:
        raise NotAuthenticated("the token is not valid yet; compare the clocks of this machine and of the issuer")


def _is_access_token(header: Header, claims: Mapping[str, Any]) -> bool:
    """Whether the type is that of access tokens (RFC 9068), or the claims are theirs and not those of an ID token."""
    if header.type == "at+jwt":
        return True
    if header.type not in ("", "jwt") or not {"nonce", "at_hash", "c_hash"}.isdisjoint(claims):
        return False
    kind = claims.get("typ", claims.get("token_use"))  # Keycloak's claim, and Cognito's
    if kind is not None:
        return kind in ("Bearer", "access")
    return not {"scope", "scp", "client_id", "appid"}.isdisjoint(claims)


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
