"""Static credentials of an object, from its properties and those of its schema and catalog. Secrets are read on demand.

A property may refer to a secret (``secret:env:NAME``). The server reads only secrets that its operator allows. Any
client may write a property, but it must not reach every variable and file of the server that way.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from metastore.errors import InvalidArgument
from metastore.kinds.secret import Secret
from metastore.names import format_path
from metastore.secrets.names import hidden_in
from metastore.serve import audit
from metastore.serve.gravitino.errors import Refused
from metastore.serve.gravitino.objects import Target, target_of
from metastore.serve.web import Answer, BadRequest, Call

if TYPE_CHECKING:
    from metastore.store import Store

__all__ = ["endpoints"]

_PROVIDERS: Final = "credential-providers"
_STATIC: Final[Mapping[str, tuple[str, ...]]] = {
    "s3-secret-key": ("s3-access-key-id", "s3-secret-access-key"),
    "oss-secret-key": ("oss-access-key-id", "oss-secret-access-key"),
    "cos-secret-key": ("cos-access-key-id", "cos-secret-access-key"),
    "azure-account-key": ("azure-storage-account-name", "azure-storage-account-key"),
    "jdbc-user-password": ("jdbc-user", "jdbc-password"),
}
"""The types of credentials that do not expire, each with its properties."""
_FILE: Final = "file:"
_PATH: Final = "/metalakes/{metalake}/objects/{type}/{object}/credentials"
_KINDS: Final = ("catalog", "schema", "table", "fileset", "model")

Handler = Callable[["Store", Call], Answer]


def endpoints(reveals: Sequence[str]) -> list[tuple[str, str, str, Handler]]:
    """Return the endpoint. ``reveals``: prefixes of the references whose secrets clients may get."""

    def answer(store: Store, call: Call) -> Answer:
        target = target_of(call.names["metalake"], call.names["type"], call.names["object"])
        if target.kind not in _KINDS or target.column is not None:
            raise BadRequest(f"only these have credentials: {', '.join(_KINDS)}; not a {call.names['type'][:20]}")
        holders = _holders(store, target)
        credentials = [
            one for name in _wanted(holders) if (one := _credential(store, name, holders, reveals)) is not None
        ]
        if credentials:
            audit.vended(call.principal.name, call.operation, call.id, format_path(target.names))
        return Answer({"code": 0, "credentials": credentials})

    return [("GET", _PATH, "object", answer)]


def _holders(store: Store, target: Target) -> list[Any]:
    """Return the object and its ancestors up to the catalog. The first one that has a property decides."""
    kinds = {2: "catalog", 3: "schema", 4: target.kind}
    depths = range(len(target.names), 1, -1)
    return [store.manager(kinds[depth]).load(target.names[:depth]) for depth in depths]


def _wanted(holders: Sequence[Any]) -> list[str]:
    return next((_named(one) for one in holders if _PROVIDERS in one.properties), [])


def _named(holder: Any) -> list[str]:
    return [name.strip() for name in holder.properties.get(_PROVIDERS, "").split(",") if name.strip()]


def _credential(store: Store, name: str, holders: Sequence[Any], reveals: Sequence[str]) -> dict[str, Any] | None:
    """Return a credential; None: a credential of this type expires, so static values cannot make it."""
    if name not in _STATIC:
        return None
    info = {}
    for key in _STATIC[name]:
        at = next((number for number, one in enumerate(holders) if key in one.properties), None)
        if at is None:
            raise BadRequest(f"the credential {name} needs the property {key}, which no object on the path has")
        if key in hidden_in(holders[at].properties) and not any(name in _named(one) for one in holders[at:]):
            _require_right(store, holders[at], key)
        info[key] = _value(store, holders[at], key, reveals)
    return {"credentialType": name, "expireTimeInMs": 0, "credentialInfo": info}


def _require_right(store: Store, holder: Any, key: str) -> None:
    """Raise PermissionDenied unless the user may see the secrets of an object that does not offer them as credentials.

    Otherwise a user who creates something below that object could get its secrets there.
    """
    with suppress(InvalidArgument):  # reveal() checks the right first, so this error does not mean a missing right
        store.reveal(holder, key)


def _value(store: Store, holder: Any, key: str, reveals: Sequence[str]) -> str:
    value = holder.properties[key]
    if not isinstance(value, Secret):
        return str(value)
    if not _is_allowed(value, reveals):
        message = f"the secret of {key} is not shown; the server's operator allows it with --reveal"
        raise Refused(1008, 403, "ForbiddenException", message)
    return store.reveal(holder, key, expected=value)  # the value that was checked, not one that a client wrote since


def _is_allowed(reference: str, reveals: Sequence[str]) -> bool:
    """Whether the operator allows clients to get a secret. A path with ``..`` is refused: it may lead elsewhere."""
    place = reference.removeprefix(_FILE)
    straight = place == reference or posixpath.normpath(place) == place
    return straight and bool(reveals) and reference.startswith(tuple(reveals))
