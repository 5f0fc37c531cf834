"""Run one import from beginning to end. It may be killed at any time, and repeated while the old server still runs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from metastore.errors import MetastoreError, MigrationNeeded
from metastore.imports.counts import Tell
from metastore.imports.gravitino.dropped import import_dropped
from metastore.imports.gravitino.follow import detach_the_gone, drop_the_gone, enable_the_imported, rename_the_moved
from metastore.imports.gravitino.lines import write_file
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import open_source
from metastore.imports.gravitino.target import Contents, contents, contents_of_store
from metastore.store import Store, open_store, restore

__all__ = ["PRINCIPAL", "import_gravitino"]

PRINCIPAL: Final = "import gravitino"
"""The principal of the changes that a later import writes."""


def import_gravitino(
    url: str | None, source: str, *, file: str | Path = "gravitino-import.jsonl", progress: Tell | None = None
) -> Report:
    """Import Gravitino's database at ``source`` into the store at ``url``; return the report.

    An empty store gets versions, audits and times as they are there. A store that has an earlier import follows:
    entities keep their ids through renames, and entities that are gone there are dropped. ``file``: where the import
    writes what it read; call again after a kill, and it goes on with the file. Raises InvalidArgument for a source that
    cannot be read, EntityAlreadyExists if an entity of the store has a name that the import needs: rename that one.
    """
    tell = progress or (lambda _step, _share: None)
    place = Path(file)
    _finish_what_was_killed(url, place, tell)
    with open_store(url, principal=PRINCIPAL) as store:
        fresh = next(iter(store.metalakes.names()), None) is None
    if fresh:
        report = _read(source, place, Contents(), tell, ids=True)
        done = restore(url, place, progress=lambda share: tell("restoring", share))
        report.written, report.left = done.written, done.left
    with open_store(url, principal=PRINCIPAL) as store:
        if not fresh:
            report = _follow(store, source, place, tell)
        with open_source(source) as opened:
            report.dropped = import_dropped(store, opened)
        with place.open("rb") as stream:
            read = contents(stream)
        report.source_hash = read.hash
        report.target_hash = contents_of_store(store, {names[0] for names in read.names.values()}).hash
    place.unlink()
    return report


def _finish_what_was_killed(url: str | None, place: Path, tell: Tell) -> None:
    """Finish a restore that was killed: until then no store can be opened."""
    if not place.exists():
        return
    try:
        open_store(url).close()
    except MigrationNeeded:
        raise
    except MetastoreError:
        restore(url, place, progress=lambda share: tell("restoring", share))


def _read(source: str, place: Path, target: Contents, tell: Tell, *, ids: bool, position: str | None = None) -> Report:
    report = Report()
    tell("reading", 0.0)
    beside = place.with_name(place.name + ".reading")
    with open_source(source) as opened, beside.open("wb") as stream:
        write_file(opened, stream, report, target.columns, ids=ids, position=position)
    beside.replace(place)
    return report


def _follow(store: Store, source: str, place: Path, tell: Tell) -> Report:
    target = contents_of_store(store, store.metalakes.names())
    report = _read(source, place, target, tell, ids=False, position=store.position())
    with place.open("rb") as stream:
        wanted = contents(stream)
    if wanted.hash == target.hash:
        report.left = len(wanted.names)
        return report
    enable_the_imported(store, wanted, target)
    drop_the_gone(store, wanted, target, report)
    rename_the_moved(store, wanted, target, report)
    done = store.import_from(place, if_exists="replace", progress=lambda share: tell("importing", share))
    report.written, report.left = done.written, done.left
    there = contents_of_store(store, {names[0] for names in wanted.names.values()})
    detach_the_gone(store, wanted, there, report)
    return report
