"""Open the storage of lock files at a URL, and return the URL without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from metastore.arguments import shown
from metastore.clock import Clock
from metastore.errors import BackendUnavailable, InvalidArgument
from metastore.leases.objects.buckets import bucket_of, server_of
from metastore.leases.objects.client import Objects, ObstoreObjects
from metastore.leases.objects.files import FileObjects

if TYPE_CHECKING:
    from obstore.store import MemoryStore

__all__ = ["Address", "address_of", "open_objects"]

_REMOTE = ("s3", "s3a", "az", "abfs", "abfss", "gs")
_SECRET_USERS = ("s3", "s3a", "gs", "az")
"""Schemes in which the user of a URL is a key; in the others it is a container."""
_KNOWN = "s3://bucket/prefix, az://container/prefix, abfss://…, gs://bucket/prefix, memory://name, or a local folder"
Address = tuple[str, ...] | None
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")

_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME",)
_THIS_MACHINE = ("localhost", "127.", "::1", "0.0.0.0")  # noqa: S104  (nothing is bound to it)
_memories: dict[str, MemoryStore] = {}
"""The storage of memory:// URLs: one for each name, until the process ends."""


def open_objects(url: object, request_timeout: float, options: Mapping[str, Any], clock: Clock) -> tuple[Objects, str]:
    """Return the objects below ``url``, and the URL without secrets, for messages.

    ``options`` are those of obstore's ``from_url``; the environment supplies the rest. Raises InvalidArgument, which
    shows neither the values of options nor the parts of a URL that may be secret.
    """
    if isinstance(url, os.PathLike):
        url = os.fspath(url)
    if not isinstance(url, str) or not url or "\x00" in url:
        raise InvalidArgument(f"a URL for leases is a string such as {_KNOWN}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InvalidArgument(f"the URL for leases cannot be parsed; write {_KNOWN}") from None
    if parts.scheme in _REMOTE and ("://" not in url or port is not None):  # a part of a key may look like a port
        raise InvalidArgument(f"the URL for leases names no bucket; write {_KNOWN}")
    if "://" not in url or parts.scheme == "file":
        return _files(url if "://" not in url else unquote(parts.path), parts, options, clock)
    keyed = parts.password is not None or (parts.username and parts.scheme in _SECRET_USERS)
    if keyed or parts.query or parts.fragment:
        raise InvalidArgument(
            "a URL for leases must not hold credentials or options: remove what is before an @ or after a ?, and "
            "give them as keywords, or in the environment"
        )
    if parts.scheme == "memory":
        return _memory(parts, options)
    if parts.scheme not in _REMOTE:
        raise InvalidArgument(f"leases are not kept in {shown(parts.scheme + '://')}; use {_KNOWN}")
    if not parts.netloc:
        raise InvalidArgument("the URL for leases names no bucket; write s3://bucket/prefix")
    place = url.rstrip("/")
    return ObstoreObjects(_remote(place, request_timeout, options), place), place


def address_of(place: str, options: Mapping[str, Any]) -> Address:
    """Return the words that identify an opened place, in any spelling of its URL; None for a place in memory.

    The address of a folder, or of a server at a loopback address, includes this machine's name.
    """
    parts = urlsplit(place)
    if parts.scheme == "memory":
        return None
    if parts.scheme == "file":
        return gethostname(), str(Path(unquote(parts.path)).resolve())
    servers = sorted(server_of(server) for server in _given(options, "endpoint", _ENDPOINTS))
    here = any((urlsplit(server).hostname or "").startswith(_THIS_MACHINE) for server in servers)
    scheme, bucket, account = bucket_of(parts.scheme, parts.netloc)
    accounts = [account.removesuffix(".core.windows.net")] if account else sorted(_given(options, "account", _ACCOUNTS))
    return gethostname() if here else "", *servers, *accounts, scheme, bucket, unquote(parts.path)


def _files(path: str, parts: SplitResult, options: Mapping[str, Any], clock: Clock) -> tuple[Objects, str]:
    if "://" in path or (parts.scheme == "file" and parts.netloc not in ("", "localhost")) or not path:
        raise InvalidArgument("local lock files have a URL such as file:///var/lib/locks, or the path of a folder")
    _no_options(options, "local lock files")
    folder = Path(os.path.abspath(path))  # noqa: PTH100  (removes ..)
    return FileObjects(folder, clock), folder.as_uri()


def _memory(parts: SplitResult, options: Mapping[str, Any]) -> tuple[Objects, str]:
    _no_options(options, "memory://")
    _import_obstore()
    from obstore.store import MemoryStore  # noqa: PLC0415

    name = (parts.netloc + parts.path).rstrip("/")
    place = f"memory://{name}"
    return ObstoreObjects(_memories.setdefault(name, MemoryStore()), place), place


def _no_options(options: Mapping[str, Any], what: str) -> None:
    if options:
        raise InvalidArgument(f"{what} take no options; leave out {', '.join(sorted(options))}")


def _remote(url: str, request_timeout: float, options: Mapping[str, Any]) -> Any:
    _import_obstore()
    from obstore.exceptions import BaseError, UnknownConfigurationKeyError  # noqa: PLC0415
    from obstore.store import from_url  # noqa: PLC0415

    if "retry_config" in options:
        raise InvalidArgument("leases need obstore's own retries to be off: leave out retry_config")
    config = dict(options)
    client = {"timeout": f"{round(request_timeout * 1000)}ms", "connect_timeout": f"{round(request_timeout * 1000)}ms"}
    if _is_plain_http(config):
        client["allow_http"] = True  # type: ignore[assignment]
    client |= config.pop("client_options", {})
    try:
        return from_url(url, client_options=client, retry_config={"max_retries": 0}, **config)  # type: ignore[call-overload]
    except UnknownConfigurationKeyError:
        raise InvalidArgument(f"an option is unknown for this URL; given are {', '.join(sorted(config))}") from None
    except (BaseError, TypeError, ValueError):
        raise InvalidArgument(
            f"{url} cannot be opened with the options {', '.join(sorted(config)) or '(none)'} and this environment: "
            "something that this kind of storage needs is missing or malformed, such as a region, an account or a key"
        ) from None


def _is_plain_http(config: Mapping[str, Any]) -> bool:
    """Return whether the endpoint is a URL without TLS, so that the client must allow plain HTTP."""
    return any(value.startswith("http://") for value in _given(config, "endpoint", _ENDPOINTS))


def _given(options: Mapping[str, Any], word: str, variables: Iterable[str]) -> list[str]:
    """Return the values of the options whose names contain ``word``; without such options, those of the environment."""
    named = [str(value) for option, value in options.items() if word in option.lower() and "key" not in option.lower()]
    return named or [os.environ[variable] for variable in variables if variable in os.environ]


def _import_obstore() -> None:
    try:
        import obstore  # noqa: F401, PLC0415
    except ImportError:
        raise BackendUnavailable(
            "leases on object storage need the package obstore: pip install 'versioned-metastore[object-store]'"
        ) from None
