"""Errors as Gravitino's clients read them: ``{"code", "type", "message", "stack"}``.

A client chooses its exception by the code, and within a code by the Java class's name in ``type``.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from pydantic import ValidationError

from metastore.errors import (
    EntityAlreadyExists,
    EntityNotFound,
    InvalidArgument,
    MetastoreError,
    NotEmpty,
    NotInUse,
    PermissionDenied,
    RetriesExhausted,
    VersionConflict,
)
from metastore.names import parse_path
from metastore.serve.principals import IssuerAway, NotAuthenticated
from metastore.serve.web import Answer, BadRequest, Busy, Encoded, TooLarge, told

__all__ = ["FLAT", "InUse", "NotSupported", "Refused", "failed", "unknown_route"]

_LOG = logging.getLogger("metastore.serve")
_LEVELS: Final = ("metalake", "catalog", "schema")
FLAT: Final = ("tag", "policy", "user", "group", "role", "job_template", "job")
"""The kinds that are directly in a metalake, beside its catalogs."""
_JAVA: Final = {"version": "ModelVersion", "object": "MetadataObject", "job_template": "JobTemplate"}
_STORE: Final[tuple[tuple[type[MetastoreError], int, int, str], ...]] = (
    (EntityNotFound, 1003, 404, "NoSuch{missing}"),
    (EntityAlreadyExists, 1004, 409, "{kind}AlreadyExists"),
    (NotEmpty, 1005, 409, "NonEmpty{kind}"),
    (NotInUse, 1009, 409, "{level}NotInUse"),
    (PermissionDenied, 1008, 403, "Forbidden"),
    (VersionConflict, 1012, 409, "OptimisticLockConflict"),
    (RetriesExhausted, 1012, 409, "OptimisticLockConflict"),
    (InvalidArgument, 1001, 400, "IllegalArgument"),
)
_BELOW: Final = {"table": "column", "model": "version"}


class Refused(Exception):
    """A request that this server refuses: the code, HTTP status and Java class that a client reads."""

    def __init__(self, code: int, status: int, name: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status, self.name = code, status, name


class NotSupported(Refused):
    """A part of the API that this server does not have."""

    def __init__(self, message: str) -> None:
        super().__init__(1006, 405, "UnsupportedOperationException", message)


class InUse(Refused):
    """A metalake or catalog is dropped while it is enabled."""

    def __init__(self, kind: str, path: str) -> None:
        message = f"the {kind} {path} is in use; disable it first, or drop it with force=true"
        super().__init__(1010, 409, f"{_java(kind)}InUseException", message)


def failed(error: Exception, kind: str = "object") -> Answer:
    """Return the answer for an error of a request for a ``kind``."""
    error = told(error)
    if isinstance(error, Busy | IssuerAway):
        error = Refused(1002, 503, "RuntimeException", str(error))
    if isinstance(error, Refused):
        return _answer(error.code, error.status, error.name, str(error))
    if isinstance(error, NotAuthenticated):
        return _answer(1011, 401, "UnauthorizedException", str(error))
    if isinstance(error, ValidationError):
        return _answer(1001, 400, "IllegalArgumentException", _fields(error))
    if isinstance(error, MetastoreError):
        return _of_store(error, kind)
    if isinstance(error, (BadRequest, ValueError)):
        status = 413 if isinstance(error, TooLarge) else 415 if isinstance(error, Encoded) else 400
        return _answer(1001, status, "IllegalArgumentException", str(error))
    _LOG.error("a request failed by a defect of the server", exc_info=error)
    return _answer(1002, 500, "RuntimeException", "the server failed; its log says how")


def unknown_route(method: str, path: str, other_method: bool) -> Answer:
    """Return the answer for a path or a method that the API does not have here."""
    if other_method:
        return _answer(1006, 405, "UnsupportedOperationException", f"{path} has no method {method}")
    return _answer(1003, 404, "NotFoundException", f"there is nothing at {path}")


def _of_store(error: MetastoreError, kind: str) -> Answer:
    is_lake = isinstance(error, NotInUse) and error.kind == "metalake"
    words = {"kind": _java(kind), "level": "Metalake" if is_lake else "Catalog"}
    if isinstance(error, EntityNotFound):
        words["missing"] = _missing(error.missing or error.path, kind)
    for cls, code, status, name in _STORE:
        if isinstance(error, cls) and error.http_status < 500:
            return _answer(code, status, f"{name.format_map(words)}Exception", str(error))
    return _answer(1002, error.http_status, "RuntimeException", str(error))


def _missing(path: str, kind: str) -> str:
    """Return the Java word for the missing entity at ``path``: the ``kind``, or one that should be above it."""
    depth = len(parse_path(path))
    if depth == 1:
        return "Metalake"
    if kind in FLAT:
        return _java(kind if depth == 2 else "object")
    if kind == "object":
        return _java(kind)
    own = _LEVELS.index(kind) + 1 if kind in _LEVELS else 4
    if depth < own:
        return _java(_LEVELS[depth - 1])
    return _java(kind if depth == own else _BELOW.get(kind, kind))


def _java(kind: str) -> str:
    return _JAVA.get(kind, kind.capitalize())


def _fields(error: ValidationError) -> str:
    """Return the errors of a body, with the name of each field."""
    parts = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in error.errors(include_url=False)]
    return "; ".join(parts[:10])


def _answer(code: int, status: int, name: str, message: str) -> Answer:
    body: dict[str, Any] = {"code": code, "type": name, "message": message, "stack": []}
    return Answer(body, status, {"Retry-After": "1"} if status == 503 else {})
