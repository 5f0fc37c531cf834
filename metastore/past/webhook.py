"""Post events to a webhook. Each post has one deadline for the whole request, and returns the reason if it fails.

A redirect is a failure: a client that follows it turns the POST into a GET, whose answer says nothing about the event.
If a receiver sends its answer byte by byte, or `100 Continue` for ever, the connection is cut off at the deadline.
Proxies of the environment are used only if the caller asks for them.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import Final
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from metastore.arguments import shown
from metastore.errors import InvalidArgument

__all__ = ["Failure", "Webhook"]

_TIMEOUT: Final = 30.0
"""The longest time of a post, from the connection to the end of the answer's head (seconds)."""
_LONGEST: Final = 3600.0
"""The longest pause that a receiver can ask for (seconds)."""


@dataclass(frozen=True)
class Failure:
    """The reason why an event did not arrive."""

    why: str
    retry_after: float = 0.0
    """How long to wait, as the receiver asked (seconds)."""


class Webhook:
    """The receiver of events at a URL."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        environment_proxies: bool = False,
        timeout: float = _TIMEOUT,
    ) -> None:
        """Check the URL and send nothing. ``headers`` go with each request. Raises InvalidArgument."""
        self._parts = _checked(url)
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._proxy = _proxy(self._parts) if environment_proxies else None

    def post(self, body: bytes, content_type: str) -> Failure | None:
        """Post ``body``; return why it did not arrive. None: the receiver answered with 2xx."""
        connection = self._connection()
        try:
            with _cut_off(connection, self._timeout) as over:
                connection.connect()  # this also reads a proxy's answer to CONNECT
                if over:
                    raise TimeoutError
                connection.request("POST", self._target(), body, {**self._headers, "Content-Type": content_type})
                return _judged(connection.getresponse())
        except ssl.SSLError as error:
            return Failure(f"TLS: {error.reason or error}")
        except socket.gaierror as error:
            return Failure(f"the name {self._parts.hostname} was not found: {error.strerror}")
        except TimeoutError:
            return Failure(f"no answer within {self._timeout:g} s")
        except OSError as error:
            return Failure(error.strerror or type(error).__name__)
        except HTTPException as error:  # an answer that was cut off may end within a line
            return Failure(f"its answer was cut off or not HTTP ({type(error).__name__})")
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        parts, proxy = self._parts, self._proxy
        at = proxy or parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(at.hostname or "", at.port, timeout=self._timeout)
        if proxy is not None and parts.scheme == "https":
            connection.set_tunnel(parts.hostname or "", parts.port)
        return connection

    def _target(self) -> str:
        parts = self._parts
        if self._proxy is not None and parts.scheme == "http":
            return parts.geturl()  # a proxy for plain HTTP wants the whole URL
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _checked(url: str) -> SplitResult:
    """Return the parts of a webhook's URL. Raises InvalidArgument."""
    if not url.startswith(("http://", "https://")):
        raise InvalidArgument("a webhook's URL must begin with http:// or https://")
    try:
        parts = urlsplit(url)
        named = bool((parts.hostname or "").encode("idna")) and parts.port != 0
    except ValueError:  # a wrong port, a broken IPv6 address, or a name of impossible length
        named = False
    if not named or not url.isascii() or any(c <= " " or c == "\x7f" for c in url):
        raise InvalidArgument(
            "a webhook's URL needs a host, and must not contain blanks, control characters or a wrong port"
        )
    if "@" in parts.netloc:
        raise InvalidArgument(
            "a webhook's URL must not have a password; give a header with a value from the environment"
        )
    return parts._replace(fragment="")


def _proxy(parts: SplitResult) -> SplitResult | None:
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return None
    at = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if at.scheme != "http" or not at.hostname or "@" in at.netloc:
        raise InvalidArgument(
            f"the environment's proxy for {parts.scheme} is {shown(at.hostname or proxy)}: "
            "only an http:// proxy without a password can be used"
        )
    return at


@contextmanager
def _cut_off(connection: HTTPConnection, seconds: float) -> Iterator[list[bool]]:
    """Shut down the connection after a time, because a socket's own time-out starts again with each byte.

    Yield a list that has an item once the time is over, because the connection may have had no socket at that time.
    """
    over = list[bool]()

    def cut() -> None:
        over.append(True)
        sock = connection.sock  # None: there is no connection yet, or the answer has closed it
        if sock is not None:
            with suppress(OSError):  # the connection was closed meanwhile
                sock.shutdown(socket.SHUT_RDWR)

    timer = Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield over
    except (OSError, HTTPException):
        if not over:
            raise
    finally:
        timer.cancel()
    if over:  # http.client accepts a head that was cut off
        raise TimeoutError


def _judged(answer: HTTPResponse) -> Failure | None:
    if 200 <= answer.status < 300:
        return None
    if 300 <= answer.status < 400:
        return Failure(f"it answered {answer.status}, a redirect, which is not followed: give the URL that it leads to")
    return Failure(f"it answered {answer.status}", min(_LONGEST, _retry_after(answer)))


def _retry_after(answer: HTTPResponse) -> float:
    """Return the seconds that the header Retry-After asks for (RFC 9110, 10.2.3); 0 if it is missing or unreadable."""
    text = answer.getheader("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    try:  # a time by the receiver's clock, as in its Date header
        then, now = parsedate_to_datetime(text), parsedate_to_datetime(answer.getheader("Date", ""))
        return max(0.0, (then - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
