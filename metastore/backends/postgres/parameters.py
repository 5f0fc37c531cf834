"""From a commit to the statements that apply it on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple
from uuid import UUID

from metastore.backends.postgres import batch_sql as sql
from metastore.backends.postgres import hot_sql
from metastore.names import fold, parse_path
from metastore.port.commit import (
    Absent,
    Caller,
    Children,
    Commit,
    Delete,
    Expect,
    Guard,
    Insert,
    LeaseToken,
    Listing,
    Newest,
    Put,
    Update,
    Write,
)
from metastore.port.leases import fences

__all__ = [
    "Statement",
    "alter",
    "caller",
    "create",
    "guards",
    "leases",
    "move",
    "plain",
    "preludes",
    "statements",
    "texts",
]


class Statement(NamedTuple):
    """One statement of a transaction; its rows count only if it ``writes``."""

    text: str
    parameters: dict[str, Any]
    writes: bool = False
    many: bool = False
    """It names many rows: planned each time, knowing how many."""


_MANY = 100
"""Above this a plan is made for the statement; one that was made for a few rows compares each with each."""

# Arrays are sent as literals made here. psycopg's own dumper takes longer than everything else for
# documents (a Python call for each quote), and names the element type by the largest number, so
# that a statement is prepared again when ids outgrow it.


def plain(values: Iterable[object]) -> str:
    """Return an array of values that need no quotes."""
    return "{" + ",".join(["NULL" if v is None else str(v) for v in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Return an array of texts."""
    return "{" + ",".join(["NULL" if v is None else _quoted(v) for v in values]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def guards(held: Sequence[Guard]) -> dict[str, Any]:
    """Return the parameters of shared guards."""
    pairs = sorted([(g.id, g.scope_version) for g in held])
    ids, scopes = ",".join([str(i) for i, _ in pairs]), ",".join([str(s) for _, s in pairs])
    return {"guard_ids": f"{{{ids}}}", "guard_scopes": f"{{{scopes}}}"}


@lru_cache(256)
def leases(held: tuple[LeaseToken, ...]) -> dict[str, Any]:
    """Return the parameters of leases whose tokens must hold: the same for all commits of a holder."""
    ordered = sorted(held, key=lambda lease: lease.name)
    return {
        "lease_names": texts([lease.name for lease in ordered]),
        "lease_tokens": plain([lease.token for lease in ordered]),
        "lease_incarnations": texts([lease.incarnation for lease in ordered]),
        "fences": fences(held),
    }


def caller(given: Caller | None, operation_id: UUID, claim: int) -> list[Statement]:
    """What must hold of a caller's operation id, and of one that was claimed, before its row is written."""
    found: list[Statement] = []
    if given is not None:
        found.append(Statement(sql.CALLER, {"issued": given.issued}))
    if claim:
        found.append(Statement(sql.CLAIMED, {"operation_id": operation_id, "claim": claim}))
    return found


def preludes(commit: Commit) -> list[Statement]:
    """What is sent before the statements of a commit, in its transaction.

    A commit that only checks writes no row, so that it leaves the claimed one where it is.
    """
    return caller(commit.caller, commit.operation_id, commit.claim if commit.writes else 0)


def create(commit: Commit, write: Insert) -> Statement:
    """A single new entity."""
    parameters = {
        **_of_one(commit, write),
        "parent_id": write.parent_id,
        "family": write.family,
        "name": write.name,
        "key": write.key,
        "fold": write.fold,
        "doc": write.doc,
    }
    if commit.leases:
        return Statement(hot_sql.CREATE_FENCED, parameters | leases(commit.leases), writes=True)
    return Statement(hot_sql.CREATE, parameters, writes=True)


def alter(commit: Commit, write: Update) -> Statement:
    """A single entity with a new document."""
    parameters = {**_of_one(commit, write), "id": write.id, "version": write.version, "doc": write.doc}
    if commit.leases:
        return Statement(hot_sql.ALTER_FENCED, parameters | leases(commit.leases), writes=True)
    return Statement(hot_sql.ALTER, parameters, writes=True)


def move(commit: Commit, write: Update) -> Statement:
    """A single entity that is changed exclusively, and keeps its document."""
    place = write.place
    parameters = {
        **_of_one(commit, write),
        "id": write.id,
        "version": write.version,
        "scope_version": write.scope_version,
        "patience": None if commit.patience is None else f"{commit.patience}ms",
        "parent_id": place and place.parent_id,
        "name": place and place.name,
        "key": place and place.key,
        "fold": place and place.fold,
        "state": write.state,
        "in_use": write.in_use,
    }
    return Statement(hot_sql.MOVE, parameters, writes=True)


def _of_one(commit: Commit, write: Insert | Update) -> dict[str, Any]:
    """Return the parameters that the statements for a single entity share."""
    event = write.event
    return {
        **guards(commit.guards),
        "kind": event.kind,
        "action": event.action,
        "path_before": event.path_before,
        "path_after": event.path_after,
        "changes": event.changes,
        "operation_id": commit.operation_id,
        "principal": commit.principal,
        "digest": commit.caller and commit.caller.digest,
    }


def statements(commit: Commit) -> list[Statement]:
    """Everything else: locks and checks where they are needed, then one statement that writes."""
    updates = [w for w in commit.writes if isinstance(w, Update)]
    exclusive = {w.id: w.scope_version for w in updates if w.scope_version is not None}
    barred = {g.id: g.scope_version for g in commit.guards if g.exclusive or g.id == commit.held} | exclusive
    shared = [g for g in commit.guards if g.id not in barred]
    written = {w.id for w in updates}
    reads = [r for r in commit.reads if isinstance(r, Expect) and (r.owned or r.id not in written)]
    checks, stages = _checks(commit, updates), _stages(commit.writes)
    before: list[Statement] = []
    if checks or len(stages) > 1 or _mixed({g.id for g in shared}, set(barred)):
        before += _lock_runs(sql.LOCK_GUARDS, {g.id for g in shared}, set(barred))
    read_ids = {r.id for r in reads if not r.owned}
    if len(stages) > 1 or _mixed(read_ids, written):
        before += _lock_runs(sql.LOCK_ENTITIES, read_ids, written)
    before += checks
    if before and commit.patience is not None:
        before.insert(0, Statement(sql.PATIENCE, {"patience": f"{commit.patience}ms"}))
    # in one statement, an exclusive update of the marked guard takes the mark away itself
    release = commit.held is not None and (commit.held not in exclusive or len(stages) > 1)
    # what is sent with a statement that finds nothing to do must not be applied either
    must = len(stages) > 1 or release or commit.claim > 0
    if len(stages) == 1:
        before.append(_batch(commit, shared, barred, reads, stages[0], must))
    else:
        before += _in_stages(commit, shared, barred, reads, stages)
    if release:
        before.append(Statement(sql.RELEASE, {"held": commit.held, "operation_id": commit.operation_id}))
    return before


def _stages(writes: Sequence[Write]) -> list[list[int]]:
    """Split the writes where their order matters, one statement for each stage.

    A row is written once in a statement; and a name that one write gives up can be taken only
    by a later statement, because a unique index is checked row by row.
    """
    stages: list[list[int]] = [[]]
    rows: set[object] = set()
    taken: set[str | None] = set()
    given: set[str | None] = set()
    for n, write in enumerate(writes):
        row = write.id if isinstance(write, Insert | Update) else (write.owner_id, write.kind, write.name)
        takes, gives = _names(write)
        if (row is not None and row in rows) or (gives and gives in taken) or (takes and takes in given):
            stages.append([])
            rows, taken, given = set(), set(), set()
        stages[-1].append(n)
        rows.add(row)
        taken.add(takes)
        given.add(gives)
    return stages


def _names(write: Write) -> tuple[str | None, str | None]:
    """Return the names that a write takes and gives up: without their parents, and folded, so that none is missed."""
    if isinstance(write, Insert):
        return fold(write.key), None
    if not isinstance(write, Update) or (write.place is None and write.state is None):
        return None, None
    before, after = write.event.path_before, write.event.path_after
    takes = None if after is None else fold(parse_path(after)[-1])
    return takes, None if before is None else fold(parse_path(before)[-1])


def _in_stages(
    commit: Commit, shared: list[Guard], barred: dict[int, int], reads: list[Expect], stages: list[list[int]]
) -> Iterator[Statement]:
    """Apply the writes stage by stage; an exclusive update's scope version is checked in its own."""
    exclusive = {w.id for w in commit.writes if isinstance(w, Update) and w.scope_version is not None}
    for n, stage in enumerate(stages):
        writes = [commit.writes[i] for i in stage]
        bars = {w.id: w.scope_version for w in writes if isinstance(w, Update) and w.scope_version is not None}
        if n == 0:
            bars |= {i: s for i, s in barred.items() if i not in exclusive}
        yield _batch(commit, shared, bars, reads if n == 0 else [], stage, must=True)


def _mixed(shared: set[int], exclusive: set[int]) -> bool:
    """Whether taking all the shared locks first would take them out of the ids' order."""
    return bool(shared and exclusive) and max(shared) > min(exclusive)


def _lock_runs(texts: dict[bool, str], shared: set[int], exclusive: set[int]) -> list[Statement]:
    """Lock by id, each row once in its strongest mode: one statement for each run of one mode."""
    runs = groupby(sorted(shared | exclusive), key=lambda i: i in exclusive)
    return [Statement(texts[mode], {"ids": plain(ids)}) for mode, ids in runs]


def _checks(commit: Commit, updates: list[Update]) -> list[Statement]:
    found: list[Statement] = []
    emptied = [w.id for w in updates if w.empty]
    if emptied:
        leaving = [w.id for w in updates if w.state is not None or w.place is not None]
        found.append(
            Statement(
                sql.check_empty,
                {"ids": plain(emptied), "leaving": plain(leaving)},
            )
        )
    for owned, text in ((False, sql.check_absent), (True, sql.check_absent_owned)):
        absent = [r for r in commit.reads if isinstance(r, Absent) and r.owned == owned]
        if not absent:
            continue
        columns = {
            "parents": plain([r.parent_id for r in absent]),
            "families": texts([r.family for r in absent]),
            "keys": texts([r.key for r in absent]),
        }
        found.append(Statement(text, columns))
    return found + [_check(r) for r in commit.reads if isinstance(r, Listing | Children | Newest)]


def _check(read: Listing | Children | Newest) -> Statement:
    if isinstance(read, Children):
        children = {"parent_id": read.parent_id, "besides": plain(sorted(read.besides)), "there": read.there}
        return Statement(sql.check_children, children)
    if isinstance(read, Newest):
        newest = {"parent_id": read.parent_id, "kind": read.kind, "family": read.family, "key": read.key}
        return Statement(sql.check_newest, {**newest, "id": read.id})
    members = sorted(read.members)
    listing = {
        "parent_id": read.parent_id,
        "kind": read.kind,
        "state": read.state,
        "ids": plain([m[0] for m in members]),
        "versions": plain([m[1] for m in members]),
    }
    return Statement(sql.check_listing[read.owned], listing)


def _batch(
    commit: Commit, shared: list[Guard], barred: dict[int, int], reads: list[Expect], stage: list[int], must: bool
) -> Statement:
    ordinals = {n: commit.writes[n] for n in stage}
    updates = {n: w for n, w in ordinals.items() if isinstance(w, Update)}
    inserts = {n: w for n, w in ordinals.items() if isinstance(w, Insert)}
    owned = {n: w for n, w in ordinals.items() if isinstance(w, Put | Delete)}
    entities = sorted((r for r in reads if not r.owned), key=lambda r: r.id)
    rows = sorted((r for r in reads if r.owned), key=lambda r: r.id)
    bar_ids = sorted(barred)
    parameters: dict[str, Any] = {
        **guards(shared),
        "operation_id": commit.operation_id,
        "held": commit.held,
        "claim": commit.claim,
        "turn_ids": plain([w.id for w in updates.values() if w.scope_version is not None]),
        "keep": len(stage) < len(commit.writes),
        "patience": None if commit.patience is None else f"{commit.patience}ms",
        "bar_ids": plain(bar_ids),
        "bar_scopes": plain([barred[i] for i in bar_ids]),
        "read_ids": plain([r.id for r in entities]),
        "read_versions": plain([r.version for r in entities]),
        "owned_ids": plain([r.id for r in rows]),
        "owned_versions": plain([r.version for r in rows]),
    }
    if commit.writes:
        parameters |= {"principal": commit.principal, "digest": commit.caller and commit.caller.digest}
        parameters |= _events(ordinals)
    if updates:
        withdrawn = [w.id for w in updates.values() if w.scope_version is not None or commit.withdraw]
        parameters |= {**_updates(updates), "u_withdraw_ids": plain(withdrawn)}
    parameters |= _inserts(inserts) if inserts else {}
    parameters |= _owned(owned) if owned else {}
    first = not stage or stage[0] == 0  # what it locks stays locked for the stages after it
    if commit.leases:
        parameters |= {**leases(commit.leases), "publishes": plain(commit.publishes)}
    text = sql.batch(
        bool(updates),
        bool(inserts),
        bool(owned),
        skip_existing=commit.skip_existing,
        claimed=commit.claim > 0,
        must=must,
        overlook=commit.overlook or commit.withdraw,
        fenced=first and bool(commit.leases),
        noted=bool(commit.leases),
        publishes=first and bool(commit.publishes),
    )
    many = len(shared) + len(barred) + len(reads) + len(updates) + len(owned) > _MANY
    return Statement(text, parameters, writes=True, many=many)


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
