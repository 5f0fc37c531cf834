"""Object stores: the file system of a URI, and how to open it.

pyarrow opens ``s3 s3a gs gcs abfs abfss hdfs viewfs``; fsspec, if installed, opens any other scheme. Credentials,
region and endpoint come from the environment, as each store defines it (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, ``AWS_ENDPOINT_URL`` …), or from the URI that the user gives:
``s3://key:secret@bucket/lake?region=eu-west-1&endpoint_override=minio:9000&scheme=http``.

This URI is split once. Only the *root* (``s3://bucket/lake``) is stored, shown and logged. ``Options`` map the store
(``s3://bucket``) to the URI that opens it, with its secrets. Options go to the executors inside the tasks, as the
database's URL does, and nowhere else. Paths below a root are never parsed: ``%``, ``?`` and ``#`` in names have no
special meaning.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from metastore.errors import InvalidArgument

__all__ = ["NO_OPTIONS", "Options", "filesystem_of", "is_uri", "split_uri", "why"]

Options = Mapping[str, str]
"""The URI that opens a store, by store. Stores that need only the environment are left out."""

NO_OPTIONS: Final[Options] = {}
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_ARROW: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    **dict.fromkeys(("abfs", "abfss", "hdfs", "viewfs")),
}
_SECRET_USERS: Final = frozenset({"s3", "s3a", "gs", "gcs"})
"""Schemes in which the user of a URI is an access key, not a part of the location."""
_ACCEPTED: Final = {
    "s3": "region, endpoint_override, scheme, tls_ca_file_path, tls_ca_dir_path, tls_verify_certificates",
    "gs": "endpoint_override, scheme, retry_limit_seconds, project_id",
}
_REQUEST_ID: Final = re.compile(r" \(Request ID: [^)]*\)")


def is_uri(path: str) -> bool:
    """Return whether ``path`` begins with a scheme."""
    return path[:1] != "/" and _URI.match(path) is not None


def split_uri(uri: str) -> tuple[str, Options]:
    """Return the root of ``uri``, without options and secrets, and the options that open it.

    Raises InvalidArgument for an unknown scheme, a missing package, or invalid options.
    """
    match = _URI.match(uri)
    assert match is not None
    scheme, rest = match[1].lower(), match[2]
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    shown = "" if scheme in _SECRET_USERS else user.partition(":")[0]
    _, colon, port = host.rpartition("]")[2].rpartition(":")  # without the brackets of an IPv6 address
    cut = bool(colon) and (scheme in _SECRET_USERS or not port.isdecimal())
    if not host or cut:  # a slash or a question mark in a password has cut the host
        raise InvalidArgument(f"a {scheme}:// path is {scheme}://bucket/folder; percent-encode credentials before an @")
    store = f"{scheme}://{shown}@{host}" if shown else f"{scheme}://{host}"
    opening = f"{scheme}://{authority if at else host}" + (f"?{query}" if query else "")
    options = {} if opening == store else {store: opening}
    filesystem_of(store, options)
    return f"{store}{slash}{path}".rstrip("/"), options


def filesystem_of(uri: str, options: Options = NO_OPTIONS) -> tuple[Any, str]:
    """Return the pyarrow file system of ``uri``, which has neither options nor secrets, and the path in it."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    store = f"{scheme}://{authority}"
    filesystem, base = _opened(options.get(store, store))
    return filesystem, f"{base.rstrip('/')}{slash}{path}".lstrip("/" if base[:1] != "/" else "")


def why(error: Exception) -> str:
    """Return an error of the operating system or of a file system as one line."""
    text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
    return _REQUEST_ID.sub("", text)


@functools.lru_cache(maxsize=64)
def _opened(uri: str) -> tuple[Any, str]:
    """Open a store, once per process. No error repeats the URI, because it may have secrets."""
    scheme, _, rest = uri.partition("://")
    try:
        from pyarrow.fs import FileSystem  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        raise InvalidArgument(
            f"{scheme}:// needs the package pyarrow: pip install 'versioned-metastore[spark]'"
        ) from None
    if scheme not in _ARROW:
        return _through_fsspec(scheme, uri)
    arrow = _ARROW[scheme] or scheme
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if arrow == "s3" and region and "region" not in dict(parse_qsl(rest.partition("?")[2])):
        rest += f"{'&' if '?' in rest else '?'}region={quote(region)}"
    try:
        opened: tuple[Any, str] = FileSystem.from_uri(f"{arrow}://{rest}")
    except (NotImplementedError, ImportError):
        raise InvalidArgument(f"this pyarrow was built without {scheme}://; install the one from PyPI") from None
    except ValueError:
        known = f": {_ACCEPTED[arrow]}" if arrow in _ACCEPTED else ""
        raise InvalidArgument(f"a {scheme}:// path has options or credentials that are not accepted{known}") from None
    except OSError as error:  # libhdfs or Hadoop is missing
        reason = "" if "@" in rest or "?" in rest else f": {why(error)}"
        raise InvalidArgument(f"{scheme}:// cannot be opened{reason}") from None
    return opened


def _through_fsspec(scheme: str, uri: str) -> tuple[Any, str]:
    known = ", ".join(f"{name}://" for name in _ARROW)
    try:
        import fsspec  # noqa: PLC0415 (an extra)
        from pyarrow.fs import FSSpecHandler, PyFileSystem  # noqa: PLC0415
    except ModuleNotFoundError:
        raise InvalidArgument(
            f"{scheme}:// is not one of {known}; for other schemes install fsspec and its package for {scheme}"
        ) from None
    store, _, query = uri.partition("?")
    try:
        filesystem = fsspec.filesystem(scheme, **dict(parse_qsl(query)))
    except ImportError as error:
        raise InvalidArgument(f"{scheme}:// needs a package that is not installed: {why(error)}") from None
    except (ValueError, TypeError):
        raise InvalidArgument(
            f"{scheme}:// is not one of {known}, and fsspec does not know it or its options"
        ) from None
    return PyFileSystem(FSSpecHandler(filesystem)), str(type(filesystem)._strip_protocol(store))  # noqa: SLF001 (its own name)
