"""Start exports, imports and restores: check the arguments, open the file, and run."""

from __future__ import annotations

from functools import partial

from metastore.arguments import boolean, function
from metastore.clock import Clock
from metastore.errors import InvalidArgument
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.kinds.registry import KINDS
from metastore.managers.attempts.create import IfExists, check_if_exists
from metastore.managers.target import Target, absent_from, in_hand, unless_back
from metastore.names import Path, format_path, parse_path
from metastore.operation.guards import lookup
from metastore.operation.request import Call
from metastore.operation.session import Session
from metastore.port.backend import Backend, Guards
from metastore.port.records import Lookup
from metastore.port.unreadable import Unreadable, check_unreadable
from metastore.transfer import export as exporting
from metastore.transfer.export import RightsChanged
from metastore.transfer.files import FileOrName, reading, writing
from metastore.transfer.importer import folds_below, import_lines
from metastore.transfer.outcomes import Exported, Imported
from metastore.transfer.plan import Follow
from metastore.transfer.reader import Checked, Progress, check, read_header
from metastore.transfer.restore import restore

__all__ = ["RightsChanged", "export_to", "has_ids", "import_from", "restore_into"]

_CHECKING = 0.3
"""The share of the first reading of a file in the whole time, for a progress bar."""


def export_to(
    session: Session,
    to: FileOrName,
    target: Target | None,
    *,
    ids: bool,
    history: bool,
    progress: exporting.Progress | None,
    unreadable: Unreadable | None = None,
    rests: Guards = (),
) -> Exported:
    """See :meth:`metastore.store.Store.export_to`; ``rests``: the scope versions that the user's right depends on."""
    check_unreadable(unreadable)
    boolean(ids, "ids")
    boolean(history, "history")
    if progress is not None:
        function(progress, "progress")
    entity = target if target is None or isinstance(target, Entity) else _entity_at(session.backend, target)
    if isinstance(target, Entity):
        in_hand(session.backend, target, partial(session.backend.by_id, [target.id]))
    with writing(to) as (stream, resume):
        options = {"ids": ids or history, "history": history, "resume": resume}
        return exporting.export(
            session.backend,
            session.clock,
            stream,
            entity,
            **options,
            progress=progress,
            unreadable=unreadable,
            rests=rests,
        )


def import_from(
    session: Session,
    source: FileOrName,
    into: Path | None,
    if_exists: IfExists,
    progress: Progress | None,
    call: Call,
    follow: Follow | None = None,
) -> Imported:
    """See :meth:`metastore.store.Store.import_from`.

    ``follow``: the file follows another system, and entities that were created here stay.
    """
    check_if_exists(if_exists)
    names = None if into is None else parse_path(into)
    first, second = _halves(progress)
    with reading(source) as stream:
        if not (header := read_header(stream)).ids:
            checked = check(stream, first, folds=folds_below(session.backend, header, names))
            return import_lines(session, stream, checked, names, if_exists, second, call, follow)
        if into is not None or if_exists != "error" or call.lease is not None:
            raise InvalidArgument("a file with ids restores a whole database; leave out into, if_exists and lease")
        if call.reason is not None or session.reason is not None:
            raise InvalidArgument("a file with ids brings its own history; leave out the reason")
        imported = restore(session.backend, session.clock, stream, check(stream, first), second)
    session.backend.identify()
    return imported


def has_ids(source: FileOrName) -> bool:
    """Return whether a file restores a whole database. Raises InvalidArgument if it is not an export."""
    with reading(source) as stream:
        return read_header(stream).ids


def restore_into(
    backend: Backend, clock: Clock, source: FileOrName, progress: Progress | None, checked: Checked | None = None
) -> Imported:
    """See :func:`metastore.store.restore`.

    ``checked``: the result of a check, if the caller has checked each line while it wrote the file.
    """
    first, second = _halves(progress)
    with reading(source) as stream:
        return restore(backend, clock, stream, checked or check(stream, first), second)


def _halves(progress: Progress | None) -> tuple[Progress, Progress]:
    """Return the progress functions for the check of a file, and for the writing. Raises InvalidArgument."""
    if progress is not None:
        function(progress, "progress")
    if progress is None:
        return (lambda _: None), (lambda _: None)
    return (lambda done: progress(done * _CHECKING)), (lambda done: progress(_CHECKING + done * (1 - _CHECKING)))


def _entity_at(backend: Backend, path: Path) -> Entity:
    """Return the entity of any kind at a path. Raises EntityNotFound; InvalidArgument if several share the path."""
    names = parse_path(path)
    lookups = {asked.families: asked for kind in KINDS.values() if (asked := _lookup(kind, names)) is not None}
    answers = backend.resolve(list(lookups.values()))
    records = [answer.record for answer in answers if answer.record is not None]
    if not records:
        ends = [answer.nodes for answer in answers]
        error = partial(absent_from, backend, list(zip(lookups.values(), ends, strict=True)))
        return unless_back(error, lambda: _entity_at(backend, path))
    if len(records) > 1:
        kinds = " and a ".join(record.chain[-1].kind for record in records)
        raise InvalidArgument(f"{format_path(names)} is the name of a {kinds}; give the entity instead of its path")
    return Entity(records[0])


def _lookup(kind: Kind, names: tuple[str, ...]) -> Lookup | None:
    try:
        return lookup(kind, names)
    except InvalidArgument:  # paths to entities of this kind have another length
        return None
