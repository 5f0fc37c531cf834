"""Faults planted in the statements, one by one. Each must be found by its program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from metastore.backends.postgres import fragments, general_commit, parameters
from metastore.backends.postgres.together import below
from metastore.backends.sqlite import checks
from metastore.backends.sqlite import commit as sqlite_commit
from metastore.backends.sqlite import writer as sqlite_writer
from metastore.managers import bulk, target
from metastore.managers.attempts import create
from metastore.operation.request import Proposal
from metastore.port.batches import Below
from metastore.port.commit import Commit
from metastore.port.conditions import Children, Guard, Newest
from metastore.port.records import Record
from metastore.port.writes import Delete, Put, Update
from tests.statements.explore import Program
from tests.statements.programs import PROGRAMS

__all__ = ["MUTANTS", "Mutant"]

Rewrite = Callable[[str], str]


@dataclass(frozen=True)
class Mutant:
    """One fault, and the program that finds it."""

    name: str
    on: str
    """Which database."""
    program: str
    texts: tuple[tuple[str, str], ...] = ()
    """Parts of statements, and their replacements."""
    schema: str = ""
    """What is changed in the database."""
    planted: Callable[[], AbstractContextManager[object]] = nullcontext

    def rewrite(self, text: str) -> str:
        for old, new in self.texts:
            text = text.replace(old, new)
        return text

    def found_by(self) -> Program:
        (found,) = [p for p in PROGRAMS if p.name == self.program]
        return found


_GUARDS = parameters.guards
_STATEMENTS = general_commit.statements
_CHECK_GUARDS = checks.check_guards
_CHECK_UPDATE = checks.check_update
_APPLY = sqlite_commit.apply
_EXISTING = create.of_existing
_FOUND = below.found
_NO_BUMP = "DROP TRIGGER guard_scope_bump"


def _nearest(guards: Sequence[Guard]) -> Sequence[Guard]:
    return sorted(guards, key=lambda g: g.id)[-1:]


@contextmanager
def _parent_only_on_postgres() -> Iterator[None]:
    with patch.object(parameters, "guards", lambda held: _GUARDS(_nearest(held))):
        yield


@contextmanager
def _parent_only_on_sqlite() -> Iterator[None]:
    def check(connection: Any, guards: Sequence[Guard], operation_id: Any) -> None:
        _CHECK_GUARDS(connection, _nearest(guards), operation_id)

    with patch.object(sqlite_commit, "check_guards", check):
        yield


@contextmanager
def _empty_in_one_statement() -> Iterator[None]:
    """Whether there are children is asked by the statement that drops, with its snapshot from before the wait."""

    def statements(commit: Commit) -> list[parameters.Statement]:
        found = _STATEMENTS(commit)
        if not any(isinstance(w, Update) and w.empty for w in commit.writes):
            return found
        childless = "NOT EXISTS (SELECT FROM guard WHERE parent_id = ANY(%(u_ids)s::bigint[]) AND state = 0)"
        return [found[-1]._replace(text=found[-1].text.replace(" AS guards,", f" AND {childless} AS guards,", 1))]

    with patch.object(general_commit, "statements", statements):
        yield


@contextmanager
def _any_version_on_sqlite() -> Iterator[None]:
    def check(run: Any, commit: Commit, write: Update, now: int) -> None:
        (version,) = run("SELECT version FROM entity WHERE id = ?", (write.id,)).fetchone()
        _CHECK_UPDATE(run, commit, replace(write, version=version), now)

    with patch.object(sqlite_writer, "check_update", check):
        yield


@contextmanager
def _without(read: type) -> Iterator[None]:
    """SQLite does not look at reads of one kind."""

    def apply(connection: Any, commit: Commit, now: int) -> Any:
        reads = tuple([r for r in commit.reads if not isinstance(r, read)])
        return _APPLY(connection, replace(commit, reads=reads), now)

    with patch("metastore.backends.sqlite.backend.apply", apply):
        yield


@contextmanager
def _owned_by_name() -> Iterator[None]:
    """SQLite knows an owned row by its name and version only."""

    def apply(connection: Any, commit: Commit, now: int) -> Any:
        writes = [replace(w, id=0) if isinstance(w, Put | Delete) else w for w in commit.writes]
        return _APPLY(connection, replace(commit, writes=tuple(writes)), now)

    with patch("metastore.backends.sqlite.backend.apply", apply):
        yield


@contextmanager
def _replaced_unguarded() -> Iterator[None]:
    """What create_many replaces is not guarded itself."""

    def existing(*arguments: Any) -> Any:
        decided = _EXISTING(*arguments)
        return replace(decided, guards=()) if isinstance(decided, Proposal) else decided

    with patch.object(bulk, "of_existing", existing):
        yield


@contextmanager
def _two_instants() -> Iterator[None]:
    """What a second look refuses is an error, whether or not what the first one found is still there."""
    with patch.object(target, "check_standing", lambda *_: None):
        yield


_PG, _LITE = "PostgreSQL", "SQLite"


@contextmanager
def _parents_by_their_ids() -> Iterator[None]:
    """What one member of a batch knows of a parent vouches for what another one knows."""

    def found(wanted: Sequence[Below], rows: Sequence[Any]) -> list[Record | bool]:
        held = {entity_id for entity_id, _ in rows[0][0] or ()}
        every = [[n.id, n.scope_version] for one in wanted for n in one.parents if n.id in held]
        return _FOUND(wanted, [(every, *rows[0][1:]), *rows[1:]])

    with patch.object(below, "found", found):
        yield


MUTANTS: tuple[Mutant, ...] = (
    Mutant("no guard on the grandparent", _PG, "create | rename the catalog", planted=_parent_only_on_postgres),
    Mutant("no guard on the grandparent", _LITE, "create | rename the catalog", planted=_parent_only_on_sqlite),
    Mutant(
        "guard without a row lock",
        _PG,
        "create in the empty schema | drop the empty schema",
        (("ORDER BY id FOR KEY SHARE", "ORDER BY id"), ("ORDER BY t.id FOR KEY SHARE OF t", "ORDER BY t.id")),
    ),
    Mutant(
        "drop if empty in one statement",
        _PG,
        "create in the empty schema | drop the empty schema",
        planted=_empty_in_one_statement,
    ),
    Mutant(
        "rename without a bump of the scope version",
        _PG,
        "create | rename the schema",
        (("scope_version = g.scope_version + 1", "scope_version = g.scope_version"),),
        f"{_NO_BUMP} ON guard",
    ),
    Mutant(
        "rename without a bump of the scope version",
        _LITE,
        "create | rename the schema",
        (("SET scope_version = scope_version + 1, parent_id", "SET scope_version = scope_version, parent_id"),),
        _NO_BUMP,
    ),
    Mutant(
        "reads of a transaction without FOR SHARE",
        _PG,
        "copy | copy back",
        (("ORDER BY id FOR SHARE", "ORDER BY id"), ("ORDER BY t.id FOR SHARE OF t", "ORDER BY t.id")),
    ),
    Mutant(
        "absent names without a lock on the parent",
        _PG,
        "create | write down what is absent",
        (("ORDER BY id FOR UPDATE", "ORDER BY id"), ("ORDER BY t.id FOR UPDATE OF t", "ORDER BY t.id")),
    ),
    Mutant(
        "create without a check of the name",
        _PG,
        "create | create in hand",
        (("ON CONFLICT (parent_id, family, key) WHERE state = 0 DO NOTHING", ""),),
        "DROP INDEX guard_live_name",
    ),
    Mutant(
        "create without a check of the name",
        _LITE,
        "create | create in hand",
        (
            (
                "SELECT id FROM guard WHERE parent_id = ? AND family = ? AND key = ? AND (state = 0 OR state = 3)",
                "SELECT id FROM guard WHERE false AND parent_id = ? AND family = ? AND key = ? AND state = 3",
            ),
        ),
        "DROP INDEX guard_live_name",
    ),
    Mutant(
        "lease checked without a row lock",
        _PG,
        "alter under the lease | break the lease, load",
        (("ORDER BY name FOR KEY SHARE", "ORDER BY name"),),
    ),
    Mutant(
        "alter without the version",
        _PG,
        "alter | alter in hand",
        (("AND version = %(version)s::bigint AND", "AND"),),
    ),
    Mutant("alter without the version", _LITE, "alter | alter in hand", planted=_any_version_on_sqlite),
    Mutant(
        "restore of any",
        _PG,
        "drop what was dropped | restore",
        (("%(id)s::bigint IS DISTINCT FROM (SELECT id", "false AND %(id)s::bigint IS DISTINCT FROM (SELECT id"),),
    ),
    Mutant("restore of any", _LITE, "drop what was dropped | restore", planted=lambda: _without(Newest)),
    Mutant(
        "the newest without a lock on the parent",
        _PG,
        "drop what was dropped | restore",
        (("ORDER BY id FOR UPDATE", "ORDER BY id"),),
    ),
    Mutant(
        "a caught NotEmpty is not a read",
        _PG,
        "drop the only one | note the drop of the schema",
        (("%(there)s::boolean <> EXISTS", "false AND %(there)s::boolean <> EXISTS"),),
    ),
    Mutant(
        "a caught NotEmpty is not a read",
        _LITE,
        "drop the only one | note the drop of the schema",
        planted=lambda: _without(Children),
    ),
    Mutant(
        "a caught EntityNotFound is not a read",
        _LITE,
        "note the restore of what is there | drop",
        planted=lambda: _without(Newest),
    ),
    Mutant(
        "owned rows without their id",
        _PG,
        "put another partition in its place | read a partition and drop it",
        (("AND w.id IN (0, o.id)", ""),),
    ),
    Mutant(
        "owned rows without their id",
        _LITE,
        "put another partition in its place | read a partition and drop it",
        planted=_owned_by_name,
    ),
    Mutant("replaced containers without a guard", _PG, "replace the schema | freeze", planted=_replaced_unguarded),
    Mutant(
        "purge says what two instants say",
        _LITE,
        "purge the empty schema | rename the empty schema and fill it",
        planted=_two_instants,
    ),
    Mutant(
        "what is written down is written asynchronously",
        _PG,
        "alter to what it is, with an id | alter",
        ((fragments.DURABLE, "true"),),
    ),
    Mutant(
        "an intent is written asynchronously",
        _PG,
        "alter | alter while hot",
        ((fragments.DURABLE, "true"),),
    ),
    Mutant(
        "a commit without a transaction",
        _LITE,
        "create | create in hand",
        (("BEGIN IMMEDIATE", "SELECT 1"), ("COMMIT", "SELECT 1")),
    ),
    Mutant(
        "a parent that another member of the batch has seen",
        _PG,
        "reads by an old and a new path | swap",
        planted=_parents_by_their_ids,
    ),
    Mutant(
        "a rename behind another commit's version",
        _PG,
        "an alter and a rename | an alter",
        (("w.follows IS NULL", "true"),),
    ),
)
