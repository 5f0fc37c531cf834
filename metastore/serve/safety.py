"""Say before the first request what is unsafe: how clients reach the server, its files, its database, its role.

It changes nothing: it migrates nothing, makes no file, and listens nowhere.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from metastore.clock import SYSTEM, Clock
from metastore.database import pending_revisions
from metastore.port.format import RESTORING, SCHEMA_FORMAT
from metastore.serve.server import is_loopback
from metastore.urls import Url, parse_url

__all__ = ["Finding", "findings"]

_APART: Final = 2.0
"""How far this machine's clock may be from the database's (seconds)."""
_DEADLINE: Final = 10.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, whether it is safe, and what was found."""

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
    authenticates: bool,
    tls: bool,
    private: tuple[Path, ...] = (),
    clock: Clock = SYSTEM,
) -> Iterator[Finding]:
    """Yield what each check found. ``private`` are the files that only the server's user may read.

    Raises BackendUnavailable, BackendRefused, InvalidArgument.
    """
    yield _address(host, authenticates=authenticates, tls=tls)
    yield from (_file(file) for file in private)
    parsed = parse_url(url)
    if parsed.is_postgres:
        yield from _postgres(parsed, clock)
    else:
        pending = pending_revisions(url)
        names = ", ".join(name for name, _ in pending)
        yield Finding("format", not pending, f"migrations are due, which serve makes: {names}" if pending else _CURRENT)


_CURRENT: Final = f"{SCHEMA_FORMAT}, that of this program"


def _address(host: str, *, authenticates: bool, tls: bool) -> Finding:
    if is_loopback(host):
        return Finding("address", True, f"{host}: only this machine reaches it")
    if not authenticates:
        return Finding("address", False, f"{host} without --token-file or --proxy-header: serve refuses to start")
    if not tls:
        found = (
            f"{host} without TLS: others read tokens on the way; give --tls-cert and --tls-key, or end TLS before it"
        )
        return Finding("address", False, found)
    return Finding("address", True, f"{host} with TLS")


def _file(file: Path) -> Finding:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError as error:
        return Finding("file", False, f"{file} cannot be read: {error.strerror}")
    others = [what for bits, what in ((0o004, "read"), (0o022, "change")) if mode & bits]
    if others:
        return Finding(
            "file", False, f"{file} has mode {mode:04o}: others may {' and '.join(others)} it; run: chmod 600"
        )
    return Finding("file", True, f"{file} has mode {mode:04o}")


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
        return Finding("format", False, "this role sees no tables of metastore; run: metastore migrate")
    written, compatible = formats
    if compatible == RESTORING:
        return Finding("format", False, "an import into the database is not finished; run it again")
    if compatible > SCHEMA_FORMAT:
        return Finding("format", False, f"{written}: this program, which has {SCHEMA_FORMAT}, is too old for it")
    if written < SCHEMA_FORMAT:
        return Finding("format", False, f"{written} is older than {SCHEMA_FORMAT}; run: metastore migrate")
    return Finding("format", True, _CURRENT if written == SCHEMA_FORMAT else f"{written}, newer than {SCHEMA_FORMAT}")
