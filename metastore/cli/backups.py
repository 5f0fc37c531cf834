"""``verify --backup``: say whether a backup is complete, and at which position it ends. This changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import typer
from rich.text import Text

from metastore.cli.output import console, safe, table, write_json, write_table
from metastore.errors import InvalidArgument
from metastore.transfer.reader import check
from metastore.urls import Url, parse_url, redacted

__all__ = ["verify_backup"]

_DEADLINE: Final = 30.0
"""How long the database may take to answer (seconds)."""
_MANIFEST: Final = "backup_manifest"
"""The file by which ``pg_verifybackup`` checks a base backup."""


@dataclass(frozen=True)
class Backup:
    """The result for one backup.

    ``position``: the end of its feed; ``time``: that of its newest change, or of the export.
    """

    place: str
    problems: list[str]
    position: str | None = None
    time: str | None = None


def verify_backup(place: str, *, json: bool) -> None:
    """Show the backups at a URL, in a file or in a folder; the exit code is 1 if any of them is not complete."""
    if not place:
        raise InvalidArgument("--backup is empty; give a URL of PostgreSQL, an export, or a folder of exports")
    found = [_database(parse_url(place))] if "://" in place else list(_exports(Path(place)))
    whole = not any(one.problems for one in found)
    if json:
        write_json({"whole": whole, "backups": [{"whole": not one.problems, **asdict(one)} for one in found]})
    else:
        rows = table("Backup", "Whole", "Time", "Position", "Problem")
        for one in found:
            first = "; ".join(one.problems[:3])
            rows.add_row(
                *(Text(safe(one.place)), "NO" if one.problems else "yes", one.time, one.position, Text(safe(first)))
            )
        write_table(console(), rows)
    if not whole:
        raise typer.Exit(1)


def _database(url: Url) -> Backup:
    """Check a database into which a backup was put back, in read-only sessions, so that it stays a backup."""
    if not url.is_postgres:
        raise InvalidArgument(
            "--backup takes the URL of a PostgreSQL database, or exports; make another copy of a backup of SQLite, and "
            "run: metastore --url sqlite:///COPY verify"
        )
    from metastore.backends.postgres.whole import lacking  # noqa: PLC0415  (only PostgreSQL needs the driver)
    from metastore.store import open_store  # noqa: PLC0415

    place = redacted(url)
    options = f"{url.query.get('options', '')} -c default_transaction_read_only=on".strip()
    url = url.set(query={**url.query, "options": options})
    if problems := lacking(url, _DEADLINE):
        return Backup(place, problems)
    with open_store(url.render_as_string(hide_password=False)) as store:
        problems = [f"{one.path or one.entity_id or ''}: {one.message} ({one.invariant})" for one in store.verify()]
        position = store.position()
        newest = store.changes_page(after=store.position(back=1, before=position)).items[-1:]
        return Backup(place, problems, position, newest[0].time.isoformat() if newest else None)


def _exports(place: Path) -> Iterator[Backup]:
    """Check the file of an export, or each file in a folder."""
    if (place / _MANIFEST).exists():
        raise InvalidArgument(
            f"{place} is a base backup: check it with pg_verifybackup, start PostgreSQL on a copy, and give its URL"
        )
    files = sorted(one for one in place.iterdir() if one.is_file()) if place.is_dir() else [place]
    if not files:
        raise InvalidArgument(f"{place} has no file; give an export, or the folder that it is in")
    for file in files:
        try:
            with file.open("rb") as stream:
                header = check(stream, lambda _: None).header
        except OSError as error:
            yield Backup(str(file), [f"it cannot be read: {error.strerror}"])
        except InvalidArgument as error:
            yield Backup(str(file), [str(error)])
        else:
            yield Backup(str(file), [], header.position, header.time)
