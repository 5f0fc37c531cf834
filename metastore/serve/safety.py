"""Check for unsafe settings before the first request: the address, the files, the database and its role.

It changes nothing: it migrates nothing, makes no file, and listens nowhere.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from metastore.clock import SYSTEM, Clock
from metastore.database import pending_revisions
from metastore.errors import InvalidArgument, MigrationNeeded
from metastore.port.format import RESTORING, SCHEMA_FORMAT
from metastore.serve.principals import tokens_of
from metastore.serve.server import is_loopback
from metastore.serve.tls import Tls
from metastore.urls import Url, parse_url

__all__ = ["Finding", "findings"]

_APART: Final = 2.0
"""How far this machine's clock may be from the database's (seconds)."""
_DEADLINE: Final = 10.0
"""How long the database may take to answer (seconds)."""


@dataclass(frozen=True)
class Finding:
    """The result of one check, and whether it is safe."""

    check: str
    safe: bool
    found: str

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def findings(
    url: str | None,
    *,
    host: str,
    token_file: Path | None = None,
    client_secret: Path | None = None,
    proxy: bool = False,
    issuer: bool = False,
    tls: tuple[Path, Path] | None = None,
    authorization: bool = False,
    clock: Clock = SYSTEM,
) -> Iterator[Finding]:
    """Yield the finding of each check.

    ``client_secret``: the file with the console's secret at the issuer. ``proxy``: a proxy names the user. ``issuer``:
    an issuer's tokens name the user. ``tls``: the certificate and key.

    Raises BackendUnavailable, BackendRefused, InvalidArgument.
    """
    yield _address(host, token_file is not None or issuer, proxy, tls is not None, authorization)
    if token_file is not None:
        yield _file(token_file, lambda: tokens_of(token_file))
    if client_secret is not None:
        yield _file(client_secret, lambda: None)  # the caller has read it
    if tls is not None:
        yield _file(tls[1], lambda: Tls(*tls))
    parsed = parse_url(url)
    if parsed.is_postgres:
        yield from _postgres(parsed, clock)
    elif parsed.drivername == "sqlite":
        yield _sqlite(url, clock)
    else:
        yield Finding("format", True, _CURRENT)


_CURRENT: Final = f"{SCHEMA_FORMAT}, that of this program"


def _address(host: str, token: bool, proxy: bool, tls: bool, authorization: bool) -> Finding:
    known, local = token or proxy, is_loopback(host)
    if authorization and not known:
        found = "--authorization without --token-file, --oidc-issuer or --proxy-header: serve refuses to start"
    elif local:
        return Finding("address", True, f"{host}: only this machine reaches it")
    elif not known:
        found = f"{host} without --token-file, --oidc-issuer or --proxy-header: serve refuses to start"
    elif not tls:
        found = (
            f"{host} without TLS: others can read tokens; give --tls-cert and --tls-key, or end TLS before the server"
        )
    elif not token:
        found = f"{host} with --proxy-header alone: who reaches it names any user; give a --token-file for the proxy"
    else:
        return Finding("address", True, f"{host} with TLS")
    return Finding("address", False, found)


def _file(file: Path, read: Callable[[], object]) -> Finding:
    """Check a secret file. ``read`` reads it as the server does, and raises InvalidArgument."""
    try:
        mode, group = stat.S_IMODE(file.stat().st_mode), file.stat().st_gid
        read()
    except OSError as error:
        return Finding("file", False, f"{file} cannot be read: {error.strerror}")
    except InvalidArgument as error:
        return Finding("file", False, f"{error}; serve refuses to start")
    others = [what for bits, what in ((0o004, "read"), (0o022, "change")) if mode & bits]
    if others:
        return Finding(
            "file", False, f"{file} has mode {mode:04o}: others may {' and '.join(others)} it; run: chmod 600"
        )
    readers = f": its group {group} can read it, so only the server may be a member" if mode & 0o040 else ""
    return Finding("file", True, f"{file} has mode {mode:04o}{readers}")


def _sqlite(url: str | None, clock: Clock) -> Finding:
    from metastore.backends.sqlite.backend import SqliteBackend  # noqa: PLC0415  (only SQLite needs the driver)

    # the revision may be of a newer program: the check of the format decides whether this one can use it
    with suppress(MigrationNeeded):
        if pending := ", ".join(name for name, _ in pending_revisions(url)):
            return Finding("format", False, f"migrations are due, which serve makes: {pending}")
    with closing(SqliteBackend(parse_url(url).database, _DEADLINE, clock)) as backend:
        return _format(backend.format())


def _postgres(url: Url, clock: Clock) -> Iterator[Finding]:
    from metastore.backends.postgres.safety import ask  # noqa: PLC0415  (only PostgreSQL needs the driver)

    said = ask(url, _DEADLINE, clock)
    settings = ", ".join(said.unsafe_settings)
    yield Finding(
        "durability",
        not settings,
        f"{settings}: a crash of the machine may lose commits and damage the database" if settings else "fsync is on",
    )
    yield Finding(
        "clocks",
        said.apart <= _APART,
        f"the clocks of this machine and of the database are {said.apart:.1f} s apart; {_APART:g} s is the most",
    )
    yield _format(said.formats)
    sequences = ", ".join(said.cached)
    yield Finding(
        "sequences",
        not sequences,
        f"{sequences}: readers of the feed miss changes; run: ALTER SEQUENCE … CACHE 1, then close all connections"
        if sequences
        else "CACHE is 1",
    )
    rights = [*(f"lacks {one}" for one in said.missing), *said.too_many]
    yield Finding(
        "role",
        not rights,
        f"{said.role} {'; '.join(rights)}; docs/operations.md has the writer's rights"
        if rights
        else f"{said.role} has the rights of a writer",
    )


def _format(formats: tuple[int, int] | None) -> Finding:
    if formats is None:
        return Finding(
            "format",
            False,
            "this role sees no tables of metastore, or may not read them; run: metastore migrate, then give the role "
            "its rights (docs/operations.md)",
        )
    written, compatible = formats
    if compatible == RESTORING:
        return Finding("format", False, "an import into the database is not finished; run it again")
    if compatible > SCHEMA_FORMAT:
        return Finding("format", False, f"{written}: this program has {SCHEMA_FORMAT}, which is too old for it")
    if written < SCHEMA_FORMAT:
        return Finding("format", False, f"{written} is older than {SCHEMA_FORMAT}; run: metastore migrate")
    return Finding("format", True, _CURRENT if written == SCHEMA_FORMAT else f"{written}, newer than {SCHEMA_FORMAT}")
