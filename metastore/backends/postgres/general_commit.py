"""Apply a commit that no special statement covers: its stages, locks and checks, and the meaning of its rows.

One write of a common kind has a special statement (create, alter, exclusive). Everything else is one message, and so
one round trip and one transaction. If shared and exclusive locks would mix, the message first takes the locks. Then it
makes the checks, whose snapshot is taken after the locks. Then it writes, with one statement for each stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from metastore.backends.postgres import parameters
from metastore.backends.postgres import relations as relation_parts
from metastore.backends.postgres.around_commit import ADVANCE, BUMP, KEEP, RELEASE, THROUGH
from metastore.backends.postgres.carry import help_must
from metastore.backends.postgres.checks import checks
from metastore.backends.postgres.general_commit_sql import Shape, statement_of
from metastore.backends.postgres.locks import LOCK_ENTITIES, LOCK_GUARDS, PATIENCE, lock_in_order, mixed
from metastore.backends.postgres.parameters import Row, Statement, plain, texts
from metastore.backends.postgres.tickets import PASSED
from metastore.names import fold, parse_path
from metastore.port.commit import MOVED, Commit, CommitOutcome, Committed, Conflicted
from metastore.port.conditions import Expect, Guard
from metastore.port.note import note_below, note_of
from metastore.port.writes import Delete, Insert, Put, Relate, Result, Update, Write

_MANY = 100
"""With more rows, the server plans the statement at each call: a plan for few rows compares all pairs of rows."""


class _Stage(NamedTuple):
    """One of the writing statements of a commit."""

    ordinals: Sequence[int]
    """The ordinals of the writes that the stage makes."""
    shared: Sequence[Guard]
    barred: dict[int, int]
    """The guards that the stage holds exclusively: id and scope version."""
    reads: Sequence[Expect]
    must: bool
    """The stage fails if a precondition does not hold, because other statements are sent with it."""

    @property
    def first(self) -> bool:
        """Whether it is the first stage, whose locks last for the later stages."""
        return not self.ordinals or self.ordinals[0] == 0


def statements(commit: Commit) -> list[Statement]:
    """Return the locks and checks that the commit needs, then the statements that write."""
    updates = [w for w in commit.writes if isinstance(w, Update)]
    exclusive = _exclusive(updates)
    barred = {g.id: g.scope_version for g in commit.guards if g.exclusive or g.id == commit.held} | exclusive
    shared = [g for g in commit.guards if g.id not in barred]
    written = {w.id for w in updates}
    reads = [r for r in commit.reads if isinstance(r, Expect) and (r.owned or r.id not in written)]
    carried = [help_must(commit, one) for one in commit.carries if one.resolutions]
    ordinals, checked = _split(commit.writes), checks(commit, updates)
    before: list[Statement] = []
    # a check runs after the guards are locked; several stages, or shared and exclusive locks together, could otherwise
    # take locks out of the ids' order
    if checked or len(ordinals) > 1 or mixed({g.id for g in shared}, set(barred)):
        before += lock_in_order(LOCK_GUARDS, {g.id for g in shared}, set(barred))
    read_ids = {r.id for r in reads if not r.owned}
    if len(ordinals) > 1 or mixed(read_ids, written):
        before += lock_in_order(LOCK_ENTITIES, read_ids, written)
    before += checked
    if commit.advance is not None:
        before.append(Statement(ADVANCE, asdict(commit.advance)))
    if before and commit.patience is not None:
        before.insert(0, Statement(PATIENCE, {"patience": parameters.patience(commit)}))
    # if a commit has one statement, the exclusive update of the marked guard removes the mark itself
    release = commit.held is not None and (commit.held not in exclusive or len(ordinals) > 1)
    bumped = [g.id for g in commit.guards if g.bump]
    if len(ordinals) > 1:
        stages = list(_in_stages(commit, shared, barred, reads, ordinals))
    else:
        # if this statement writes nothing, the other statements of this message must not be applied either
        must = release or bool(bumped) or commit.claim > 0 or commit.advance is not None
        must = must or bool(carried or commit.leaves)
        stages = [_Stage(ordinals[0], shared, barred, reads, must)]
    after = [Statement(RELEASE, {"held": commit.held, "operation_id": commit.operation_id})] if release else []
    after += [Statement(BUMP, {"ids": plain(bumped)})] if bumped else []
    after += carried
    after += [Statement(PASSED, {"ids": plain(commit.leaves), "own": commit.ticket})] if commit.leaves else []
    if len(ordinals) > 1:
        after.append(Statement(THROUGH, {"operation_id": commit.operation_id}))
    if commit.advance is not None and not commit.writes:
        after.append(Statement(KEEP, {"operation_id": commit.operation_id, "result": MOVED}))
    return [*before, *[_statement(commit, stage) for stage in stages], *after]


def _exclusive(writes: Sequence[Write]) -> dict[int, int]:
    """Return the id and the expected scope version of each exclusively updated entity."""
    return {w.id: w.scope_version for w in writes if isinstance(w, Update) and w.scope_version is not None}


# --- stages


def _split(writes: Sequence[Write]) -> list[list[int]]:
    """Split the writes into stages where their order matters; return the ordinals of each stage.

    A statement can write a row only once. And if one write gives up a name, only a later statement can take that name,
    because a unique index is checked row by row.
    """
    stages: list[list[int]] = [[]]
    rows: set[object] = set()
    taken: set[str | None] = set()
    given: set[str | None] = set()
    for n, write in enumerate(writes):
        row = _row(write)
        takes, gives = _names(write)
        if (row is not None and row in rows) or (gives and gives in taken) or (takes and takes in given):
            stages.append([])
            rows, taken, given = set(), set(), set()
        stages[-1].append(n)
        rows.add(row)
        taken.add(takes)
        given.add(gives)
    return stages


def _row(write: Write) -> object:
    """Return the identity of the row that a write changes; None for a new entity without a reserved id."""
    if isinstance(write, Insert | Update):
        return write.id
    if isinstance(write, Relate):
        return write.from_id, write.kind, write.slot, write.column_id, write.value
    return write.owner_id, write.kind, write.name


def _names(write: Write) -> tuple[str | None, str | None]:
    """Return the names that a write takes and gives up. They have no parents and are folded, so none is missed."""
    if isinstance(write, Insert):
        return fold(write.key), None
    if not isinstance(write, Update) or (write.place is None and write.state is None):
        return None, None
    before, after = write.event.path_before, write.event.path_after
    takes = None if after is None else fold(parse_path(after)[-1])
    return takes, None if before is None else fold(parse_path(before)[-1])


def _in_stages(
    commit: Commit, shared: list[Guard], barred: dict[int, int], reads: list[Expect], stages: list[list[int]]
) -> Iterator[_Stage]:
    """Yield the stages. Each checks the scope versions that its exclusive updates raise."""
    exclusive = _exclusive(commit.writes)
    for n, ordinals in enumerate(stages):
        own = _exclusive([commit.writes[i] for i in ordinals])
        others = {i: s for i, s in barred.items() if i not in exclusive} if n == 0 else {}
        yield _Stage(ordinals, shared, own | others, reads if n == 0 else [], must=True)


# --- parameters


def _statement(commit: Commit, stage: _Stage) -> Statement:
    writes = {n: commit.writes[n] for n in stage.ordinals}
    updates = {n: w for n, w in writes.items() if isinstance(w, Update)}
    inserts = {n: w for n, w in writes.items() if isinstance(w, Insert)}
    owned = {n: w for n, w in writes.items() if isinstance(w, Put | Delete)}
    related = {n: w for n, w in writes.items() if isinstance(w, Relate)}
    values = _preconditions(commit, stage, updates)
    if commit.writes:
        values |= {"principal": commit.principal, "digest": commit.caller and commit.caller.digest}
        values |= _events(writes)
    if updates:
        raised = plain([guard.id for guard in commit.guards if guard.bump])
        values |= {**_updates(updates), "u_raised": raised, "ticket": commit.ticket}
    values |= _inserts(inserts) if inserts else {}
    values |= _owned(owned) if owned else {}
    values |= {**relation_parts.parameters(related), **_others(writes)} if related else {}
    noted = note_of(commit)
    if commit.leases:
        values |= {**parameters.leases(commit.leases), "publishes": plain(commit.publishes)}
    if noted is not None:
        values |= {"note": noted, "fences": note_below(commit)}
    shape = Shape(
        updates=bool(updates),
        inserts=bool(inserts),
        owned=bool(owned),
        relations=bool(related),
        skip_existing=commit.skip_existing,
        claimed=commit.claim > 0,
        must=stage.must,
        overlook=commit.overlook or bool(commit.carries),
        queues=commit.held is None,
        fenced=stage.first and bool(commit.leases),
        noted=noted is not None,
        publishes=stage.first and bool(commit.publishes),
    )
    many = len(stage.shared) + len(stage.barred) + len(stage.reads) + len(updates) + len(owned) + len(related) > _MANY
    return Statement(statement_of(shape), values, writes=True, many=many)


def _preconditions(commit: Commit, stage: _Stage, updates: dict[int, Update]) -> dict[str, Any]:
    entities = sorted((r for r in stage.reads if not r.owned), key=lambda r: r.id)
    rows = sorted((r for r in stage.reads if r.owned), key=lambda r: r.id)
    bar_ids = sorted(stage.barred)
    return {
        **parameters.guards(stage.shared),
        "operation_id": commit.operation_id,
        "held": commit.held,
        "claim": commit.claim,
        "turn_ids": plain([w.id for w in updates.values() if w.scope_version is not None]),
        # a later stage still needs the operation's mark
        "keep": len(stage.ordinals) < len(commit.writes),
        "patience": parameters.patience(commit),
        "bar_ids": plain(bar_ids),
        "bar_scopes": plain([stage.barred[i] for i in bar_ids]),
        "read_ids": plain([r.id for r in entities]),
        "read_versions": plain([r.version for r in entities]),
        "owned_ids": plain([r.id for r in rows]),
        "owned_versions": plain([r.version for r in rows]),
    }


def _events(writes: dict[int, Write]) -> dict[str, Any]:
    events = [w.event for w in writes.values()]
    return {
        "e_ordinals": plain(writes),
        "e_kinds": texts([e.kind for e in events]),
        "e_actions": texts([e.action for e in events]),
        "e_before": texts([e.path_before for e in events]),
        "e_after": texts([e.path_after for e in events]),
        "e_changes": texts([e.changes for e in events]),
    }


def _others(writes: dict[int, Write]) -> dict[str, Any]:
    return {
        "e_other_ids": plain([w.to_id if isinstance(w, Relate) else None for w in writes.values()]),
        "e_other_paths": texts([w.event.other_path for w in writes.values()]),
    }


def _updates(updates: dict[int, Update]) -> dict[str, Any]:
    writes = sorted(updates.items(), key=lambda item: item[1].id)
    rows = [w for _, w in writes]
    places = [w.place for w in rows]
    return {
        "u_ordinals": plain([n for n, _ in writes]),
        "u_ids": plain([w.id for w in rows]),
        "u_versions": plain([w.version for w in rows]),
        "u_docs": texts([w.doc for w in rows]),
        "u_exclusive": plain([w.scope_version is not None for w in rows]),
        "u_plain": plain([w.id for w in rows if w.scope_version is None]),
        "u_parents": plain([None if p is None else p.parent_id for p in places]),
        "u_names": texts([None if p is None else p.name for p in places]),
        "u_keys": texts([None if p is None else p.key for p in places]),
        "u_folds": plain([None if p is None else p.fold for p in places]),
        "u_states": plain([w.state for w in rows]),
        "u_in_use": plain([w.in_use for w in rows]),
    }


def _inserts(inserts: dict[int, Insert]) -> dict[str, Any]:
    rows = list(inserts.values())
    return {
        "i_ordinals": plain(inserts),
        "i_ids": plain([w.id for w in rows]),
        "i_parents": plain([w.parent_id for w in rows]),
        "i_kinds": texts([w.kind for w in rows]),
        "i_families": texts([w.family for w in rows]),
        "i_names": texts([w.name for w in rows]),
        "i_keys": texts([w.key for w in rows]),
        "i_folds": plain([w.fold for w in rows]),
        "i_docs": texts([w.doc for w in rows]),
    }


def _owned(owned: dict[int, Put | Delete]) -> dict[str, Any]:
    rows = list(owned.values())
    return {
        "w_ordinals": plain(owned),
        "w_owners": plain([w.owner_id for w in rows]),
        "w_kinds": texts([w.kind for w in rows]),
        "w_names": texts([w.name for w in rows]),
        "w_versions": plain([w.version for w in rows]),
        "w_ids": plain([w.id for w in rows]),
        "w_docs": texts([w.doc if isinstance(w, Put) else None for w in rows]),
        "w_known": sum(w.version > 0 for w in rows),
    }


# --- the meaning of the rows


class Done(NamedTuple):
    """One row of a writing statement, with the columns of its last SELECT: one row for each write, at least one."""

    fenced: bool
    """Whether all leases still had their tokens."""
    guards: bool
    """Whether all guards held, including the exclusive ones."""
    turn: bool
    """Whether no other transaction is earlier in line."""
    reads: bool
    """Whether all validated reads still had their versions."""
    own: bool
    """Whether all rows to write still had the expected versions."""
    free: bool
    """Whether no mark and no pending intent blocks the commit."""
    marked: bool
    ordinal: int | None
    """The ordinal of the write; None: nothing was written."""
    id: int
    version: int
    time: int


def outcome(commit: Commit, rows: list[Row]) -> CommitOutcome:
    """Return the outcome that the rows of all stages mean."""
    # A statement that must succeed has more columns, which only raise. If there are several stages, all of them fail
    # together, so the first row speaks for all.
    done = [Done(*row[: len(Done._fields)]) for row in rows]
    first = done[0]
    if not first.fenced:
        return Conflicted("lease")
    if first.marked:
        return Conflicted("marked")
    if not first.guards:
        return Conflicted("ancestor")
    if not first.turn:
        return Conflicted("ticket")
    if not (first.reads and first.own and first.free):
        return Conflicted("read" if not first.reads else "self" if not first.own else "pending")
    results: list[Result | None] = [None] * len(commit.writes)
    for one in done:
        if one.ordinal is not None:
            results[one.ordinal] = Result(one.id, one.version, one.time)
    return Committed(tuple(results))
