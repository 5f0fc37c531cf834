"""Show errors as the Iceberg REST specification writes them: ``{"error": {"message", "type", "code"}}``.

500, 502 and 504 mean to a client that a commit may have happened. So they are sent only where that is true.
"""

from __future__ import annotations

import errno
import logging
from typing import Final

from pydantic import ValidationError
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.exceptions import (
    ValidationError as InvalidMetadata,
)

from metastore.errors import (
    DropPending,
    EntityNotFound,
    InvalidArgument,
    MetastoreError,
    OperationIdReused,
    OutcomeUnknown,
    PermissionDenied,
    StoreClosed,
)
from metastore.serve.principals import IssuerAway, NotAuthenticated
from metastore.serve.web import Answer, BadRequest, Busy, Encoded, TooLarge, told

__all__ = ["NotSupported", "Overlap", "failed", "is_final", "unknown_route"]

_LOG = logging.getLogger("metastore.serve")


class NotSupported(Exception):
    """A part of the specification that this server does not have, and that clients can do themselves."""


class Overlap(ValueError):
    """A key is both removed and updated."""


_CODES: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchViewError, 404, "NoSuchViewException"),
    (NamespaceAlreadyExistsError, 409, "AlreadyExistsException"),
    (TableAlreadyExistsError, 409, "AlreadyExistsException"),
    (ViewAlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitFailedException, 409, "CommitFailedException"),
    (CommitStateUnknownException, 500, "CommitStateUnknownException"),
    (ForbiddenError, 403, "ForbiddenException"),
    (ServiceUnavailableError, 503, "ServiceUnavailableException"),
    (NotImplementedError, 406, "UnsupportedOperationException"),
    (NotSupported, 406, "UnsupportedOperationException"),
    (Overlap, 422, "UnprocessableEntityException"),
    (TooLarge, 413, "BadRequestException"),
    (Encoded, 415, "BadRequestException"),
    (Busy, 503, "ServiceUnavailableException"),
    (EntityNotFound, 404, "NotFoundException"),
    (PermissionDenied, 403, "ForbiddenException"),
    # 409 fits a failed commit, a create with a taken name, and a load of a table that is being dropped
    (DropPending, 409, "DropPendingException"),
    (OperationIdReused, 422, "UnprocessableEntityException"),
    (StoreClosed, 503, "ServiceUnavailableException"),
    (OutcomeUnknown, 500, "CommitStateUnknownException"),
    (InvalidArgument, 400, "BadRequestException"),
    (BadRequest, 400, "BadRequestException"),
    (ValueError, 400, "BadRequestException"),
    (InvalidMetadata, 400, "BadRequestException"),
    (FileNotFoundError, 404, "NotFoundException"),
    (NotADirectoryError, 400, "BadRequestException"),
    (IsADirectoryError, 400, "BadRequestException"),
    (FileExistsError, 400, "BadRequestException"),  # a file where a folder should be made
    (PermissionError, 403, "ForbiddenException"),
    (NotAuthenticated, 401, "NotAuthorizedException"),
    (IssuerAway, 503, "ServiceUnavailableException"),
    (OSError, 503, "ServiceUnavailableException"),
    (MetastoreError, 503, "ServiceUnavailableException"),
)
"""The first class that matches an error decides its answer."""


_PASSING: Final = (401, 403, 408, 429)
"""The answers for reasons outside of the request: a repeat may get another answer."""


def failed(error: Exception) -> Answer:
    """Return the answer for an error."""
    error = told(error)
    if isinstance(error, ValidationError):
        return _answer(400, "BadRequestException", _fields(error))
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # Python has no class for this error
        return _answer(400, "BadRequestException", _message(error))
    for cls, code, name in _CODES:
        if isinstance(error, cls):
            headers = {"Retry-After": "1"} if code == 503 else {}
            return _answer(code, name, _message(error), headers)
    _LOG.error("a request failed by a defect of the server", exc_info=error)
    return _answer(500, "InternalServerError", "the server failed; its log says how")


def is_final(answer: Answer, *, checked: bool) -> bool:
    """Whether a repeat of the request would get the same answer, unless others change its objects.

    ``checked``: each request has only the rights of its user. Then 404 may mean that a right is missing.
    """
    passing = answer.status in _PASSING or (checked and answer.status == 404)
    return 400 <= answer.status < 500 and not passing


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"a file of the table cannot be read or written: {error}"
    return str(error) or type(error).__name__


def unknown_route(method: str, path: str, other_method: bool) -> Answer:
    """Return the answer for a path or a method that the specification does not have."""
    if other_method:
        return _answer(405, "BadRequestException", f"{path} has no method {method}")
    return _answer(404, "NotFoundException", f"there is nothing at {path}")


def _fields(error: ValidationError) -> str:
    """Return the errors of a body, with the name of each field."""
    parts = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in error.errors(include_url=False)]
    return "; ".join(parts[:10])


def _answer(code: int, name: str, message: str, headers: dict[str, str] | None = None) -> Answer:
    return Answer({"error": {"message": message, "type": name, "code": code}}, code, headers or {})
