"""URLs are read and written as SQLAlchemy does, which is what users and Alembic know."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from metastore.errors import InvalidArgument
from metastore.urls import parse_url, redacted

_PIECE = st.text(st.sampled_from("ab1:/?@=&[]%+ 2#,._é\n\x00"), max_size=6)
_ESCAPED = st.sampled_from(["", "a", "%40", "%2F", "%3F", "b%", "%zz", "ü", "+", " "])
_PART = st.lists(_ESCAPED | _PIECE, max_size=3).map("".join)
_DRIVER = st.sampled_from(["postgresql", "postgresql+psycopg", "postgres", "sqlite", "sqlite+pysqlite", "memory"])
_HOST = st.sampled_from(["", "h", "a.b", "[::1]", "[::1", "[]", "[a]b", "h1,h2", "host_1"]) | _PIECE
_PORT = st.sampled_from(["", ":", ":5432", ":1_0", ": 7", ":-1", ":0", ":99999", ":x"])
_QUERY = st.sampled_from(["", "?", "?a=1&b=2", "?b=1&a=x+y&b=%2F", "?host=&port=1", "?a=1&a=2&a=3", "?a", "?a=b?c=d"])


@st.composite
def urls(draw: st.DrawFn) -> str:
    """Return a URL of drawn parts, or some text behind a driver."""
    driver = draw(_DRIVER | st.sampled_from(["", "mysql", "a-b", "postgresql "]))
    if draw(st.booleans()):
        return f"{driver}://{draw(_PART)}"
    user = draw(st.just("") | st.builds("{}@".format, _PART) | st.builds("{}:{}@".format, _PART, _PART))
    database = draw(st.just("") | st.builds("/{}".format, _PART))
    return f"{driver}://{user}{draw(_HOST)}{draw(_PORT)}{database}{draw(_QUERY)}"


def theirs(text: str) -> URL | None:
    try:
        return make_url(text)
    except (ArgumentError, ValueError):
        return None


def parts(url: Any) -> tuple[Any, ...]:
    return url.username, url.password, url.host, url.port, url.database, dict(url.query)


@given(urls() | st.text(max_size=20))
@example("postgresql://u:p%40@[::1]:5/d b/é?x=1 2&x=3&y=&z=/+a")
@example("postgresql://:p@/d")
@example("memory://a@b@h:1/d")
@example("memory://a:b/c@d@h")
@example("sqlite:////a b+c%25.db?")
def test_urls_are_read_as_sqlalchemy_does(text: str) -> None:
    """What it refuses is refused; the same parts and the same text come out of the rest, but what it cuts short."""
    expected = theirs(text)
    try:
        found = parse_url(text)
    except InvalidArgument as error:
        unread = "cannot be parsed" in str(error)
        assert not unread or expected is None or "[" in text or "]" in text or "\n" in text
        return
    assert expected is not None
    assert parts(found) == parts(expected)
    for hide in (False, True):
        assert found.render_as_string(hide) == expected.set(drivername=found.drivername).render_as_string(hide)


def test_a_url_shows_no_secret() -> None:
    url = parse_url("postgresql://u:s3cret@h/d?sslpassword=s3cret&application_name=a")
    assert repr(url) == str(url) == redacted(url) == "postgresql+psycopg://u:***@h/d?application_name=a"
    assert "s3cret" not in f"{[url]}"
    assert pickle.loads(pickle.dumps(url)) == url


@pytest.mark.parametrize("text", ["[::1]x/d", "[::1]x:1/d", "[]/d", "h/d?application_name=a\nb"])
def test_what_sqlalchemy_cuts_short_is_refused(text: str) -> None:
    assert theirs(f"postgresql://{text}") is not None
    with pytest.raises(InvalidArgument, match="cannot be parsed"):
        parse_url(f"postgresql://{text}")
