"""Run one import from beginning to end. It may be killed at any time, and repeated while the old server still runs."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Final

from metastore.errors import MetastoreError, MigrationNeeded
from metastore.imports.counts import Tell
from metastore.imports.gravitino.dropped import import_dropped
from metastore.imports.gravitino.follow import (
    check_drops,
    detach_the_gone,
    drop_the_gone,
    enabled_to_write,
    rename_the_moved,
    without_copies,
)
from metastore.imports.gravitino.identity import came_back, columns_that_came_back
from metastore.imports.gravitino.lines import Seen, Standing, write_file
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Source, open_source
from metastore.imports.gravitino.target import Contents, contents_of_store
from metastore.imports.gravitino.values import Key
from metastore.imports.root import PATIENCE, TTL
from metastore.kinds.registry import KINDS
from metastore.kinds.table.kind import Table
from metastore.leases.lease import Lease
from metastore.operation.request import Call
from metastore.store import Store, open_store, restore, restore_export
from metastore.transfer import calls
from metastore.transfer.plan import Follow

__all__ = ["PRINCIPAL", "import_gravitino"]

Names = tuple[str, ...]
PRINCIPAL: Final = "import gravitino"
"""The principal of the changes that a repeated import writes."""
_DIGITS: Final = 16
"""How many digits of a position are the number of changes."""


def import_gravitino(
    url: str | None, source: str, *, file: str | Path = "gravitino-import.jsonl", progress: Tell | None = None
) -> Report:
    """Import Gravitino's database at ``source`` into the store at ``url``; return the report.

    An empty store gets Gravitino's versions, audits and times. A store that has an earlier import is brought up to
    date: entities keep their ids through renames, and entities that are gone in Gravitino are dropped. ``file``: the
    file into which the import writes the entities that it read. After a kill, call the import again: it finishes the
    restore of an empty store. Raises InvalidArgument for a source that cannot be read, and LeaseHeld if another import
    runs for too long. Raises EntityAlreadyExists if an entity has a name that the import needs: rename that entity.
    """
    tell = progress or (lambda _step, _share: None)
    place = Path(file)
    _finish_what_was_killed(url, place, tell)
    with open_store(url, principal=PRINCIPAL) as store:
        if not _is_unused(store):
            with _turn(store) as lease, open_source(source) as opened:  # read the source as it is when the turn begins
                seen = Seen()
                report, read = _follow(store, opened, place, seen, tell, lease)
                _finish(store, lease, opened, report, read, seen, tell)
                place.unlink()  # before this turn ends, because the next import may write a file of this name
            return report
    with open_source(source) as opened:  # one snapshot for all reads
        seen = Seen()
        report, read = _read(opened, place, Standing(), seen, tell, ids=True)
        done = restore_export(url, place, partial(tell, "restoring"), read.checked)
        report.written, report.left = done.written, done.left
        with open_store(url, principal=PRINCIPAL) as store, _turn(store) as lease:
            _finish(store, lease, opened, report, read, seen, tell)
            place.unlink(missing_ok=True)  # a faster import may have used and removed a file of this name
    return report


def _turn(store: Store) -> Lease:
    """Wait until no other import into the store runs.

    Two at once could recreate entities that people dropped in between.
    """
    return store.leases.acquire(PRINCIPAL, ttl=TTL, timeout=PATIENCE)


def _finish(store: Store, lease: Lease, source: Source, report: Report, read: Contents, seen: Seen, tell: Tell) -> None:
    tell("comparing", 0.0)
    report.dropped = import_dropped(store, lease, source, read.names)
    report.source_hash = read.hash
    tell("comparing", 0.3)
    report.target_hash = contents_of_store(store, _metalakes(read), seen.left).hash


def _metalakes(read: Contents) -> set[str]:
    return {names[0] for names in read.names.values()}


def _is_unused(store: Store) -> bool:
    """Whether nothing was ever written to the store: a restore needs an unused store."""
    return int(store.position().rpartition("-")[2][:_DIGITS], 16) == 0


def _finish_what_was_killed(url: str | None, place: Path, tell: Tell) -> None:
    """Finish a restore that was killed: until then the store cannot be opened."""
    if not place.exists():
        return
    try:
        open_store(url).close()
    except MigrationNeeded:
        raise
    except MetastoreError:
        restore(url, place, progress=lambda share: tell("restoring", share))


def _read(
    source: Source,
    place: Path,
    standing: Standing,
    seen: Seen,
    tell: Tell,
    *,
    ids: bool,
) -> tuple[Report, Contents]:
    report = Report()
    tell("reading", 0.0)
    beside = place.with_name(place.name + ".reading")
    beside.unlink(missing_ok=True)
    # the file holds all properties: nobody else may read it
    with os.fdopen(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
        progress = partial(tell, "reading")
        read = write_file(source, stream, report, standing, ids=ids, seen=seen, progress=progress)
    beside.replace(place)
    return report, read


def _follow(store: Store, source: Source, place: Path, seen: Seen, tell: Tell, lease: Lease) -> tuple[Report, Contents]:
    tell("reading the store", 0.0)
    check_drops(store)
    target = without_copies(store, lease, contents_of_store(store, store.metalakes.names(), columns=True))
    ours = Follow(set(target.ids.values()), {target.ids[key]: one.last for key, one in target.columns.items()})

    def is_taken(key: Key, names: Names) -> bool:
        if (KINDS[key[0]].family, names) not in target.made_here:
            return False
        if (back := came_back(store, key, names)) is None:
            return True
        ours.only.add(back.id)
        if isinstance(back, Table):
            target.columns[key] = columns_that_came_back(key, back)
            ours.columns[back.id] = target.columns[key].last
        return False

    standing = Standing(target.columns, is_taken)
    report, wanted = _read(source, place, standing, seen, tell, ids=False)
    if wanted.hash == target.hash:
        report.left = len(wanted.names)
        return report, wanted
    with enabled_to_write(store, lease, wanted, target):
        drop_the_gone(store, lease, wanted, target, seen, report)
        rename_the_moved(store, lease, wanted, target, report)
        session, progress = store._session, partial(tell, "importing")  # noqa: SLF001  (no caller needs ``follow``)
        done = calls.import_from(session, place, None, "replace", progress, Call(lease=lease), ours)
    report.written, report.left = done.written, done.left
    there = contents_of_store(store, _metalakes(wanted))
    with enabled_to_write(store, lease, wanted, there):
        detach_the_gone(store, lease, wanted, there, seen, report)
    return report, wanted
