"""A statement with its parameters, and the parameters that several statements share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from metastore.port.commit import Commit
from metastore.port.conditions import Guard, LeaseToken
from metastore.port.note import note_of
from metastore.port.writes import Insert, Update

Row = tuple[Any, ...]


class Statement(NamedTuple):
    """One statement of a transaction. Its rows are returned only if it ``writes``."""

    text: str
    parameters: dict[str, Any]
    writes: bool = False
    many: bool = False
    """It names many rows. The server plans it at each call, because a plan for few rows compares all pairs."""


# Array literals are made here. psycopg's own dumper takes longer than all the rest for documents (a Python call for
# each quote). It also derives the element type from the largest number, so that the server would have to prepare a
# statement again when ids outgrow that type.


def plain(values: Iterable[object]) -> str:
    """Return an array of values that need no quotes."""
    return "{" + ",".join(["NULL" if v is None else str(v) for v in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Return an array of texts."""
    every = list(values)
    known = [v for v in every if v is not None]
    if known and len(known) == len(every):
        # one pass over all texts; a text with NUL takes the slow path, and is refused later, because no row can have it
        joined = "\x00".join(known)
        if joined.count("\x00") == len(known) - 1:
            return '{"' + joined.replace("\\", "\\\\").replace('"', '\\"').replace("\x00", '","') + '"}'
    return "{" + ",".join(["NULL" if v is None else _quoted(v) for v in every]) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def guards(held: Sequence[Guard]) -> dict[str, Any]:
    """Return the parameters of shared guards, by id."""
    ids, scopes = _guards(*[(g.id, g.scope_version) for g in held])
    return {"guard_ids": ids, "guard_scopes": scopes}


@lru_cache(1024)
def _guards(*held: tuple[int, int]) -> tuple[str, str]:
    """Return the arrays of ids and scope versions. They are cached, because siblings have the same guards."""
    pairs = sorted(held)
    return plain([i for i, _ in pairs]), plain([s for _, s in pairs])


@lru_cache(256)
def leases(held: tuple[LeaseToken, ...]) -> dict[str, Any]:
    """Return the parameters of leases whose tokens must hold; cached, because all commits of a holder use the same."""
    ordered = sorted(held, key=lambda lease: lease.name)
    return {
        "lease_names": texts([lease.name for lease in ordered]),
        "lease_tokens": plain([lease.token for lease in ordered]),
        "lease_incarnations": texts([lease.incarnation for lease in ordered]),
    }


def writing(commit: Commit, values: dict[str, Any], plain: str, noted: str, fenced: str = "") -> Statement:
    """Return the statement of a commit with one write: ``fenced`` under leases, ``noted`` with evidence or a reason."""
    if commit.leases:
        return Statement(fenced, {**values, **leases(commit.leases), "note": note_of(commit)}, writes=True)
    if commit.evidence or commit.reason is not None:
        return Statement(noted, {**values, "note": note_of(commit)}, writes=True)
    return Statement(plain, values, writes=True)


def versions(version: int, actions: Iterable[str]) -> list[int | None]:
    """Return the version that each step makes, beginning after ``version``; None: the step makes no version."""
    made = list[int | None]()
    for action in actions:
        version += action == "alter"
        made.append(version if action == "alter" else None)
    return made


def patience(commit: Commit) -> str | None:
    """Return the lock_timeout of a commit; None: the session's."""
    return None if commit.patience is None else f"{commit.patience}ms"


def of_one(commit: Commit, write: Insert | Update) -> dict[str, Any]:
    """Return the parameters that the statements for a single write share."""
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
