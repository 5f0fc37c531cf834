"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

import re
from typing import Final

from starlette.responses import JSONResponse

from metastore.errors import MetastoreError

__all__ = ["problem"]

_TYPE: Final = "application/problem+json"


def problem(error: MetastoreError) -> JSONResponse:
    """Return an error as the answer to a request: its status, its code, and when to try again.

    Give it to ``app.add_exception_handler`` for routes of your own: ``lambda request, error: problem(error)``.
    """
    said = error.to_dict()
    body = {
        "type": f"urn:metastore:{error.code}",
        "title": re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__),
        "status": error.http_status,
        "detail": said["message"],
        "code": error.code,
        "retry_after": error.retry_after,
        "details": said["details"],
    }
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    return JSONResponse(body, error.http_status, headers, _TYPE)
