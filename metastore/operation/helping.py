"""Apply the pending intents of all processes on one entity with one compare-and-swap.

Pure: it turns the content of one snapshot (:class:`~metastore.port.records.Pending`) into a
:class:`~metastore.port.intents.Help` that resolves each intent. docs/progress.md has the protocol and the proof.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final
from uuid import UUID

from metastore.errors import InvalidArgument, MetastoreError
from metastore.kinds.change import EntityChange, UnknownChange, decode
from metastore.kinds.registry import kind_named
from metastore.names import fold, format_path, parse_path
from metastore.operation.guards import check_in_use, guards_of, requiring
from metastore.operation.kept_result import OF_THE_COMMIT, encode_error, encode_value
from metastore.operation.merge import altered
from metastore.operation.replace import Replace
from metastore.port.conditions import Guard
from metastore.port.intents import FORMAT, Help, Resolution
from metastore.port.note import read_note
from metastore.port.records import Node, Pending, Record, Step
from metastore.port.scopes import Scopes

BATCH = 64
"""How many intents are resolved at once."""
_NONE: Final[Mapping[int, int]] = MappingProxyType({})
_BROKEN: Final[Mapping[int, int]] = MappingProxyType({-1: 0})
"""Evidence that never holds: it replaces a note that cannot be read."""
BATCH_BYTES = 4 << 20
"""How many bytes of documents, at most, one batch writes beyond its first."""


@dataclass(frozen=True)
class PlannedHelp:
    """A helping commit, and the result of the caller's own operation if this commit applies it."""

    help: Help
    record: Record
    """The entity after the asking operation's intent."""


def own_guards(chain: Sequence[Node]) -> tuple[Guard, ...]:
    """Return the guards of an alter: the ancestors' guards, and the entity's own guard if it can be frozen."""
    guards = guards_of(chain[:-1])
    own = chain[-1]
    return (*guards, Guard(own.id, own.scope_version)) if kind_named(own.kind).container else guards


def leads_to(path: str | None, chain: Sequence[Node]) -> bool:
    """Whether ``path`` names the entity at the end of ``chain``. None means that only the id counts: True."""
    if path is None:
        return True
    names = parse_path(path)
    if len(names) != len(chain):
        return False
    above = False
    for name, node in zip(names, chain, strict=True):
        if (fold(name) != fold(node.name)) if above else name != node.name:
            return False
        above = node.fold
    return True


class BatchSize:
    """The number of intents to resolve at once; it shrinks while the database refuses the content of one of them.

    After a refusal try half of the batch, until the culprit is alone. The next batch resolves the culprit as failed.
    """

    def __init__(self) -> None:
        self.most = BATCH
        self.rejected: UUID | None = None

    def refused(self, help_: Help) -> None:
        """Note that the database refused this batch."""
        sent = help_.resolutions
        if len(sent) == 1:
            self.most, self.rejected = BATCH, sent[0].operation_id
        else:
            self.most = len(sent) // 2

    def passed(self) -> None:
        """Note that a batch was applied."""
        self.most = BATCH if self.rejected is not None else min(BATCH, 2 * self.most)
        self.rejected = None


def plan(seen: Pending, own: UUID | None, batch: BatchSize, scopes: Mapping[int, int] = _NONE) -> PlannedHelp | None:
    """Resolve the oldest intents that this program can resolve, and intent ``own``. Return None if there is none.

    The entity must be live. While ``batch`` looks for a culprit, ``own`` waits for its turn. ``scopes``: the present
    scope versions that users' intents rest on. An intent whose evidence no longer holds is *moved*: its owner must
    decide again.
    """
    most, strictly = batch.most, batch.most < BATCH
    assert seen.known is not None
    record, resolutions, size = seen.known.record, list[Resolution](), 0
    mine, rests = record, list[tuple[int, int]]()
    for intent in seen.intents:
        if len(resolutions) >= most and (strictly or intent.operation_id != own):
            continue
        evidence = evidence_of(intent)
        if any(scopes.get(i) != scope for i, scope in evidence.items()):
            one: Resolution | None = Resolution(intent.operation_id, "moved", intent.principal)
        else:
            one = _resolve(intent, record, seen.now, intent.operation_id == batch.rejected, intent.operation_id == own)
        if one is None:
            continue
        size += len(one.doc or "")
        if size > BATCH_BYTES and resolutions and intent.operation_id != own:
            continue
        if one.action == "alter" and one.doc is not None:
            record = record._replace(
                version=record.version + 1, doc=one.doc, modified_by=one.principal, modified_at=OF_THE_COMMIT
            )
        if intent.operation_id == own:
            mine = record
        resolutions.append(one)
        if one.action not in ("moved", "expired"):
            rests += evidence.items()
    if not resolutions:
        return None
    known = seen.known.record
    path = known.path
    guards = requiring(own_guards(known.chain), Scopes(rests))
    return PlannedHelp(Help(guards, known.chain[-1].id, known.version, path, tuple(resolutions)), mine)


def _resolve(intent: Step, record: Record, now: int, rejected: bool, own: bool) -> Resolution | None:
    """Return the resolution of an intent on this record; None: leave the intent to its owner."""
    become = partial(Resolution, intent.operation_id, principal=intent.principal)
    if intent.deadline is not None and intent.deadline < now:
        return become("expired")
    if intent.kind != record.chain[-1].kind or not leads_to(intent.path_before, record.chain):
        return become("moved")
    changes = _understood(intent)
    if changes is None:
        return None
    names = tuple([n.name for n in record.chain])
    try:
        check_in_use(record.chain[:-1])
        text = altered(record.doc, names, changes, kind_named(record.chain[-1].kind).check_doc)
        if rejected:
            path = format_path(names)
            raise InvalidArgument(f"the database refuses the new content of {path}; change the values of the call")
    except MetastoreError as error:
        return become("failed", result=encode_error(error))
    except Exception:
        if own:
            raise
        return None  # a bug in the change: its owner sees the exception
    history = "[]" if any(isinstance(c, Replace) for c in changes) else None
    return (
        become("alter", doc=text, changes=history)
        if text is not None
        else become("unchanged", result=encode_value(kind_named(record.chain[-1].kind).entity(record)))
    )


def evidence_of(intent: Step) -> Mapping[int, int]:
    """Return the guards on which a user's right to an intent rests; {}: the intent comes from a trusted store."""
    if intent.fences is None:
        return _NONE
    try:
        return read_note(intent.fences).evidence
    except ValueError:
        return _BROKEN


def _understood(intent: Step) -> tuple[EntityChange, ...] | None:
    if (intent.format or 0) > FORMAT:
        return None
    try:
        changes = decode(json.loads(intent.changes or "[]"))
    except (TypeError, ValueError, KeyError, MetastoreError):
        return None
    known = (*kind_named(intent.kind or "").changes, Replace)
    return None if any(isinstance(c, UnknownChange) or not isinstance(c, known) for c in changes) else changes
