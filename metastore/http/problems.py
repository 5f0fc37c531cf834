"""Show errors as problem details (RFC 9457)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import JSONResponse

from metastore.errors import MetastoreError, for_clients

__all__ = ["problem", "unknown_method"]

_LOG = logging.getLogger("metastore.http")
_TYPE: Final = "application/problem+json"


def problem(error: MetastoreError) -> JSONResponse:
    """Return an error as the answer to a request: its status, its code, and when to try again.

    An error of the database names its host, user or file, so only the log shows its message.

    Give it to ``app.add_exception_handler`` for routes of your own: ``lambda request, error: problem(error)``.
    """
    said = error.to_dict()
    more = {"retry_after": error.retry_after, "details": said["details"]}
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__)
    if error.names_place:
        _LOG.warning("the database is away: %s", error)
    return _problem(error.http_status, error.code, title, for_clients(error), more, headers)


def unknown_method(method: str, path: str, allowed: str) -> JSONResponse:
    """Return the answer to a method that a path does not have. ``allowed``: those that it has, with commas."""
    detail = f"{path} has no method {method}; it has {allowed}"
    more: Mapping[str, Any] = {"retry_after": None, "details": {}}
    return _problem(405, "method_not_allowed", "Method Not Allowed", detail, more, {"Allow": allowed})


def _problem(
    status: int, code: str, title: str, detail: str, more: Mapping[str, Any], headers: Mapping[str, str]
) -> JSONResponse:
    body = {"type": f"urn:metastore:{code}", "title": title, "status": status, "detail": detail, "code": code, **more}
    return JSONResponse(body, status, headers, _TYPE)
