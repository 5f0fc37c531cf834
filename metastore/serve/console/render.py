"""Templates, the files that pages load, and the headers of every answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from metastore.charts.svg import svg
from metastore.serve.console import words
from metastore.serve.console.asked import Asked, Shown, url

__all__ = ["HEADERS", "file_answer", "html", "page", "rendered"]

_HERE: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """Return the files that pages load: content, media type and a mark that changes with the content."""
    found = {}
    for file in (_HERE / "static").iterdir():
        if kind := _TYPES.get(file.suffix):
            content = file.read_bytes()
            found[file.name] = (content, kind, hashlib.sha256(content).hexdigest()[:12])
    return found


def file_answer(name: str, version: str | None) -> Response | None:
    """Return a file that pages load; None if it does not exist.

    If its mark is in the address, the browser may cache it.
    """
    known = _files().get(name)
    if known is None:
        return None
    content, kind, mark = known
    kept = "public, max-age=31536000, immutable" if version == mark else "no-cache"
    return Response(content, headers={**HEADERS, "Cache-Control": kept}, media_type=kind)


def _file(name: str) -> str:
    return url(name, v=_files()[name][2])


def _time(value: datetime) -> Markup:
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        value.isoformat(), words.exactly(value), words.ago(value)
    )


def _number(value: float) -> str:
    return f"{value:,}"


def _chart(chart: Any) -> Markup:
    return Markup(svg(chart))  # noqa: S704  (it escapes every text)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "safe_text": words.safe,
        "short": words.short,
        "time": _time,
        "exactly": words.exactly,
        "ago": words.ago,
        "number": _number,
        "done": words.done,
        "steps": words.steps_in_words,
        "words": words.change_in_words,
        "leads_to": words.leads_to,
    }
    made.globals |= {"url": url, "file": _file, "chart": _chart, "value_text": words.value_text}
    return made


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Return a template filled in."""
    return _environment().get_template(template).render(values)


def page(asked: Asked | None, shown: Shown) -> str:
    """Return a whole page."""
    values = {
        "asked": asked,
        "title": shown.title,
        "command": shown.command,
        "at": asked.at if asked else None,
        **shown.values,
    }
    return rendered(shown.template, values)


def html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """Return a page as an answer."""
    return HTMLResponse(text, status, {**HEADERS, **(headers or {})})
