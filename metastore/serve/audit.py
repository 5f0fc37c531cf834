"""The audit log: a line of JSON on the logger ``metastore.audit`` for each refused request, sign-in and credential.

A line has ``time`` (UTC), ``outcome`` (refused, signed_in, vended), ``user`` (null: unknown), ``request`` (method and
path) and ``request_id``. If they are known, it also has ``object`` and ``right``, or the ``reason`` why the user is
unknown. A sign-in is the first use of an issuer's token at this server; it has the ``external_id``. No line has a
query, a header, a token or a credential. If a user may not see an object, the answer is "not found": the request is not
refused, and has no line.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from starlette.datastructures import Headers
from starlette.types import Scope

from metastore.clock import SYSTEM
from metastore.errors import PermissionDenied
from metastore.serve.principals import NotAuthenticated, Principal

__all__ = ["ID_HEADER", "LOG", "id_of", "refused", "show", "signed_in", "vended"]

LOG: Final = logging.getLogger("metastore.audit")
ID_HEADER: Final = "x-request-id"
_KEY: Final = "metastore.request_id"
_LONGEST: Final = 2000
"""How much of a request's method and path a line has (characters): strangers send paths of 64 KiB."""
_ID: Final = re.compile(r"[\w.:+/=-]{1,128}", re.ASCII)


def id_of(scope: Scope) -> str:
    """Return the id of a request: the one that its client or a proxy sent, or a new one, which the request keeps."""
    if _KEY not in scope:
        given = Headers(scope=scope).get(ID_HEADER, "")
        scope[_KEY] = given if _ID.fullmatch(given) else str(SYSTEM.operation_id())
    id: str = scope[_KEY]
    return id


def refused(user: str | None, request: str, id: str, status: int, error: Exception | None) -> None:
    """Write a line: a request got 401 or 403. It names the missing right, if that is known."""
    denied = error if isinstance(error, PermissionDenied) else getattr(error, "__cause__", None)
    lacks = {"object": denied.path, "right": denied.privilege} if isinstance(denied, PermissionDenied) else {}
    if isinstance(error, NotAuthenticated):
        lacks = {"reason": str(error)}
    _note(outcome="refused", status=status, user=user, request=request[:_LONGEST], request_id=id, **lacks)


def signed_in(principal: Principal, request: str, id: str) -> None:
    """Write a line: an issuer's token is used here for the first time."""
    external_id = principal.external_id
    _note(outcome="signed_in", user=principal.name, external_id=external_id, request=request[:_LONGEST], request_id=id)


def vended(user: str, request: str, id: str, prefix: str, rights: Sequence[str] | None = None) -> None:
    """Write a line: a client gets credentials for the files below ``prefix``. ``rights``: the rights that allow it."""
    by = {} if rights is None else {"right": ", ".join(rights)}
    _note(outcome="vended", user=user, request=request[:_LONGEST], request_id=id, object=prefix, **by)


def show() -> None:
    """Write the lines to standard error, as they are, unless the logger is set up already."""
    LOG.setLevel(logging.INFO)
    if not LOG.handlers:
        LOG.addHandler(logging.StreamHandler())
        LOG.propagate = False  # otherwise the handler of the root logger writes each line again


def _note(**line: str | int | None) -> None:
    now = datetime.fromtimestamp(SYSTEM.micros() / 1_000_000, UTC)
    LOG.info("%s", json.dumps({"time": now.isoformat(), **line}))
