"""The fingerprint of a call's arguments, which a repeat under the same operation id must match.

The fingerprint of a call with secrets needs a data key, so nobody can test guesses. After the first call, the catalog
may get another data key, other declarations or another name, or it may be gone. So such a fingerprint does not depend
on which properties are secret. It has three parts: the keyed digest of all arguments, the digest of the arguments
without the secrets, and the number of the data key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from metastore.errors import InvalidArgument, SecretDamaged
from metastore.kinds.catalog import CATALOG
from metastore.kinds.secret import SEALED
from metastore.operation.request import Request
from metastore.secrets.declared import KEY
from metastore.secrets.sealer import Sealed, Sealer


def digest(request: Request[Any]) -> str:
    """Return the fingerprint of a call's arguments. Raises InvalidArgument."""
    try:
        value = [request.verb, request.arguments()]
        text = _text(value)
        numbers = {sealed.number: sealed.sealer for sealed in _sealed(value)} if SEALED in text else {}
    except Exception as error:  # noqa: BLE001  (a class of the caller's may raise anything here)
        raise InvalidArgument(f"the arguments of the call cannot be written as JSON: {type(error).__name__}") from None
    if len(numbers) != 1:
        return _hash(text)
    ((number, sealer),) = numbers.items()
    return f"{sealer.keyed(_plain(value), number)}:{_mask(value)}:{number}"


def digest_of_one(request: Request[Any], number: object) -> str:
    """Return the fingerprint of a call without secrets; its number tells it from others with the same arguments."""
    return f"{digest(request)}::{number}"


def is_digest_of(first: str, request: Request[Any], own: str, sealer: Sealer | None) -> bool:
    """Whether ``first`` is the fingerprint of a call with the arguments of ``request``, whose fingerprint is ``own``.

    Secrets whose data key was destroyed count as equal, because they cannot be compared any more. Raises
    SecretKeyMissing, SecretKeyWrong.
    """
    (full, mask, number), (own_full, own_mask, _) = _parts(first), _parts(own)
    if full == own_full:
        return True
    value = [request.verb, request.arguments()]
    if not mask:  # when the first call was made, the property may not have been secret
        newest = 1 if sealer is None or not _makes_catalog(value) else sealer.newest()
        return any(full == _hash(_plain(_of_older(value, n))) for n in range(1, newest + 1))
    if sealer is None:
        return False
    older = _of_older(value, int(number))
    try:
        if full == sealer.keyed(_plain(value), int(number)):
            return True
        # an older program digested the secrets in encrypted form
        return full == _hash(_text(_mapped(older, lambda sealed: sealed.under(int(number)))))
    except SecretDamaged:
        return mask in (own_mask, _mask(older))


def _makes_catalog(value: Any) -> bool:
    verb, arguments = value
    return bool(verb == "create" and arguments[0] == CATALOG.name)


def _of_older(value: Any, number: int) -> Any:
    """Return the arguments as an older program digested them: those of a new catalog contained its data key."""
    if number == 1 or not _makes_catalog(value):
        return value
    verb, (*place, doc, if_exists) = value
    return [verb, [*place, {**doc, "properties": {KEY: str(number), **doc["properties"]}}, if_exists]]


def _parts(text: str) -> tuple[str, str, str]:
    full, _, rest = text.partition(":")
    mask, _, number = rest.partition(":")
    return full, mask, number


def _plain(value: Any) -> str:
    return _text(_mapped(value, lambda sealed: sealed.plain))


def _mask(value: Any) -> str:
    return _hash(_text(_mapped(value, lambda _: None)))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _sealed(value: Any) -> Iterator[Sealed]:
    """Yield the secrets in a JSON value."""
    if isinstance(value, Sealed):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _sealed(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _sealed(one)


def _mapped(value: Any, how: Callable[[Sealed], str | None]) -> Any:
    """Return a JSON value with each secret replaced."""
    if isinstance(value, Sealed):
        return how(value)
    if isinstance(value, dict):
        return {key: _mapped(one, how) for key, one in value.items()}
    return [_mapped(one, how) for one in value] if isinstance(value, list | tuple) else value
