"""The manager of one kind of relation: attach, detach, and list in both directions.

A relation is one row. Its write takes shared guards on both ends and on all their ancestors, so neither end's version
grows, and writers below either end do not wait. A dropped end, or a dropped ancestor of an end, ends the relation
without a write. A read returns the relations that are live at one instant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, Unpack

from metastore.arguments import boolean, known_keywords
from metastore.errors import EntityAlreadyExists, EntityNotFound, InvalidArgument
from metastore.kinds.attached import Attached, attached
from metastore.kinds.change import UNSET, _Unset
from metastore.kinds.entity import utc
from metastore.kinds.relation import Relation, relation_doc
from metastore.managers.mutation import actor_of
from metastore.managers.options import BULK_OPTIONS, BulkOptions, CallOptions, call_from, call_of, shows_options
from metastore.managers.relations import attach_many as bulk
from metastore.managers.relations.ends import EndOf, WantedRelation, end_of, find_ends
from metastore.managers.relations.reads import related_to, related_to_columns, relating_to
from metastore.managers.relations.writes import Judge, clean_value_of, column_id, event_of, no_judge, removal
from metastore.managers.target import Target, check_standing
from metastore.names import Path, format_path, parse_path
from metastore.operation.guards import both, check_in_use
from metastore.operation.perform import perform
from metastore.operation.request import Attempt, Proposal, Request, Results, View, the_result
from metastore.operation.session import ManagerSession
from metastore.port.conditions import Relations
from metastore.port.records import Record, Step
from metastore.port.relations import NO_VALUE, ONLY, RelationRecord
from metastore.port.writes import Relate

T = TypeVar("T")


class RelationManager:
    """The relations of one kind. ``repeats``: attaching again without a value is not an error."""

    def __init__(
        self, session: ManagerSession, relation: Relation, judge: Judge = no_judge, *, repeats: bool = False
    ) -> None:
        self._session = session
        self._relation: Final = relation
        self._judge = judge
        self._repeats = repeats

    def _wanted(
        self, target: Target, other: Target | EndOf, value: str | None, column: Path | None, kind: str | None
    ) -> WantedRelation:
        names = None if column is None else parse_path(column)
        if names is not None and not self._relation.columns:
            raise InvalidArgument(f"{self._relation.name} starts at an entity, not at a column")
        far = other if isinstance(other, EndOf) else end_of(other, self._relation.to_kinds)
        return WantedRelation(end_of(target, self._relation.from_kinds, kind), far, value, names)

    @shows_options(CallOptions)
    def attach(
        self,
        target: Target,
        other: Target,
        *,
        value: str | None = None,
        column: Path | None = None,
        kind: str | None = None,
        **options: Unpack[CallOptions],
    ) -> Attached:
        """Relate ``target``, or its ``column``, to ``other``; return the relation.

        ``target`` is an entity or a path; ``kind`` decides if entities of several kinds have the path. A repeated call
        with the same value changes nothing; without a value it raises EntityAlreadyExists. Raises EntityNotFound for a
        missing end or column, NotInUse, and InvalidArgument for ends in two metalakes or a value that does not fit.
        """
        return self.relate(self._wanted(target, other, clean_value_of(value), column, kind), options)

    def relate(self, wanted: WantedRelation, options: CallOptions) -> Attached:
        """Write a relation, as ``attach`` does."""
        actor = actor_of(self._session, call_of(options))
        return self._run(
            "attach",
            lambda view: self._attach(view, wanted, actor),
            lambda steps: self._replayed(steps[0], wanted),
            wanted.arguments,
            options,
        )

    def _attach(self, view: View, wanted: WantedRelation, actor: str | None) -> Proposal[Attached] | Attached:
        target, other = self._found(view, wanted)
        column = column_id(target, wanted.column)
        value = NO_VALUE if wanted.value is None else wanted.value
        self._judge(target, other, value, column)
        slot = ONLY if self._relation.exclusive else other.chain[-1].id
        there: RelationRecord | None = None
        if self._relation.exclusive or not view.trusting:  # otherwise the primary key shows whether the relation exists
            there = self._there(view, target, slot, column, value)
            if there is not None and there.to_id == other.chain[-1].id:
                check_standing(view, target.chain)
                check_standing(view, other.chain)
                return self._again(there, target, other, wanted)
        write = self._write(target, other, slot, column, value, there)

        def finish(results: Results) -> Attached:
            result = the_result(results)
            made = (actor, result.time) if there is None else (there.created_by, there.created_at)
            row = RelationRecord(*write.key, result.id, write.to_id, result.version, *made, actor, result.time)
            return attached(row, target.chain, other.chain, wanted.column)

        return Proposal(both(target.chain, other.chain), (write,), finish)

    def _found(self, view: View, wanted: WantedRelation) -> tuple[Record, Record]:
        # read in this call, without guesses, for the rules of a tag or policy, and to find a column
        fresh = wanted.column is not None or self._judge is not no_judge
        target, other = find_ends(View(view.backend, False) if fresh else view, wanted.target, wanted.other)
        if target.chain[0].id != other.chain[0].id:
            raise InvalidArgument(
                f"{target.path} and {other.path} are in different metalakes; both ends of a relation must be in one"
            )
        self._relation.check_end(target.chain[-1].kind, far=False)
        self._relation.check_end(other.chain[-1].kind, far=True)
        check_in_use(target.chain[:-1])
        check_in_use(other.chain[:-1])
        return target, other

    def _there(self, view: View, target: Record, slot: int, column: int, value: str) -> RelationRecord | None:
        rows = view.backend.relations(self._relation.name, [(target.chain[-1].id, slot)])
        return next((row for row in rows if (row.column_id, row.value) == (column, value)), None)

    def _again(self, there: RelationRecord, target: Record, other: Record, wanted: WantedRelation) -> Attached:
        if wanted.value is None and not self._repeats and not self._relation.exclusive:
            path = target.path if wanted.column is None else f"{target.path}.{format_path(wanted.column)}"
            message = f"{path} has the {other.chain[-1].kind} {other.path} already ({self._relation.name})"
            raise EntityAlreadyExists(path, message)
        return attached(there, target.chain, other.chain, wanted.column)

    def _write(
        self, target: Record, other: Record, slot: int, column: int, value: str, there: RelationRecord | None
    ) -> Relate:
        to_id = other.chain[-1].id
        event = event_of(self._relation, "create" if there is None else "alter", target.path, other.path)
        return Relate(
            target.chain[-1].id,
            self._relation.name,
            slot,
            column,
            value,
            to_id,
            0 if there is None else there.version,
            relation_doc(to_id, column, value),
            event,
            0 if there is None else there.id,
        )

    @shows_options(CallOptions)
    def detach(
        self,
        target: Target,
        other: Target,
        *,
        value: str | _Unset | None = UNSET,
        column: Path | None = None,
        kind: str | None = None,
        **options: Unpack[CallOptions],
    ) -> bool:
        """End the relation from ``target``, or its ``column``, to ``other``; return False if there was none.

        ``value``: end only the relation with this value (None: without a value). If left out, end the relations with
        any value.
        """
        wanted = self._wanted(target, other, None, column, kind)
        value = _value(value)

        def fits(row: RelationRecord) -> bool:
            return isinstance(value, _Unset) or row.value == (NO_VALUE if value is None else value)

        return self.unrelate(wanted, fits, repr(value), options, every=isinstance(value, _Unset))

    def unrelate(
        self,
        wanted: WantedRelation,
        fits: Callable[[RelationRecord], bool],
        which: object,
        options: CallOptions,
        *,
        every: bool = False,
    ) -> bool:
        """Remove the matching relations, as ``detach`` does; ``which`` is the selection as a JSON value.

        ``every``: no relation may be added before the commit, so that all are removed.
        """
        return self._run(
            "detach",
            lambda view: self._remove(view, wanted, fits, every),
            lambda _: True,
            lambda: [wanted.arguments(), which],
            options,
        )

    def _remove(
        self, view: View, wanted: WantedRelation, fits: Callable[[RelationRecord], bool], every: bool
    ) -> Proposal[bool] | bool:
        try:
            target, other = find_ends(View(view.backend, False), wanted.target, wanted.other)
            column = column_id(target, wanted.column)
        except EntityNotFound:
            return False
        check_in_use(target.chain[:-1])
        check_in_use(other.chain[:-1])
        from_id, to_id = target.chain[-1].id, other.chain[-1].id
        slot = ONLY if self._relation.exclusive else to_id
        there = view.backend.relations(self._relation.name, [(from_id, slot)])
        rows = [row for row in there if row.column_id == column and row.to_id == to_id and fits(row)]
        if not rows:
            check_standing(view, target.chain)
            check_standing(view, other.chain)
            return False
        event = event_of(self._relation, "drop", target.path, other.path)
        writes = tuple([removal(row, event) for row in rows])
        guards = both(target.chain, other.chain)
        if not every or self._relation.exclusive:
            return Proposal(guards, writes, lambda _: True)
        members = frozenset((row.id, row.version) for row in there)
        guards = tuple([replace(g, exclusive=True) if g.id == from_id else g for g in guards])
        reads = (Relations(from_id, self._relation.name, members, slot),)
        return Proposal(guards, writes, lambda _: True, reads=reads)

    @shows_options(BulkOptions)
    def attach_many(self, other: Target, rows: Iterable[Mapping[str, Any]], **options: Unpack[BulkOptions]) -> int:
        """Relate many targets to ``other``; return the number of new relations.

        Each of the ``rows`` has ``target``, and may have ``kind``, ``column`` and ``value``. One commit writes a chunk
        of rows. Existing relations stay, so repeat the call after an error. Raises the errors of ``attach``.
        """
        known_keywords(options, BULK_OPTIONS)
        far = end_of(other, self._relation.to_kinds)

        def wanted(row: Mapping[str, Any]) -> WantedRelation:
            value = clean_value_of(row.get("value"))
            return self._wanted(row["target"], far, value, row.get("column"), row.get("kind"))

        return bulk.attach_many(self._session, self._relation, rows, wanted, self._judge, call_from(options))

    def _run(
        self,
        verb: str,
        attempt: Attempt[T],
        replay: Callable[[Sequence[Step]], T],
        arguments: Callable[[], Any],
        options: CallOptions,
    ) -> T:
        request = Request[T](
            verb=verb,
            what=lambda: f"{verb} {self._relation.name}",
            attempt=attempt,
            replay=replay,
            arguments=lambda: [self._relation.name, arguments()],
        )
        return perform(self._session, request, call_of(options))

    def _replayed(self, step: Step, wanted: WantedRelation) -> Attached:
        """Return the relation that an earlier call with the same operation id made, as it was then.

        The kind of an end that was purged since is unknown, unless only one kind is possible.
        """
        known = self._session.of_store().backend.by_id([step.owner_id or 0, step.other_id or 0])
        from_kind, to_kind = ("" if one is None else one.record.chain[-1].kind for one in known)
        doc = json.loads(step.doc or "{}")
        here, there = step.path_after or step.path_before or "", step.other_path or ""
        if self._relation.to_the_object:
            here, there = there, here
        return Attached(
            id=step.entity_id or 0,
            kind=self._relation.to_kinds[0] if len(self._relation.to_kinds) == 1 else to_kind,
            name=parse_path(there)[-1],
            path=there,
            value=doc.get("value") or None,
            column=None if wanted.column is None else format_path(wanted.column),
            target_kind=from_kind,
            target_path=here,
            target_id=step.owner_id or 0,
            inherited_from=None,
            created_by=step.principal,
            created_at=utc(step.time),
        )

    def on(
        self, target: Target, *, column: Path | None = None, inherited: bool = True, kind: str | None = None
    ) -> list[Attached]:
        """Return the relations of ``target``, or of its ``column``, nearest first; one round trip at any depth.

        ``inherited``: add the relations of the entities above ``target``; of several relations to one entity, only the
        nearest counts. For all columns at once, see ``on_columns``. Raises EntityNotFound.
        """
        boolean(inherited, "inherited")
        names = None if column is None else parse_path(column)
        end = end_of(target, self._relation.from_kinds if not inherited else (), kind)
        return related_to(self._session.backend, self._relation, end, names, inherited=inherited)

    def on_columns(self, target: Target, *, kind: str | None = None) -> list[Attached]:
        """Return the relations of the columns of ``target``, by column and name; one round trip for all columns.

        The list leaves out the relations of the table itself. Raises EntityNotFound.
        """
        return related_to_columns(self._session.backend, self._relation, end_of(target, (), kind))

    def targets(self, other: Target, *, value: str | _Unset | None = UNSET) -> Iterator[Attached]:
        """Yield the relations to ``other``, by value and then by id; ``value``: only with this value (None: with none).

        The listing reads one page at a time, whatever its length. Raises EntityNotFound.
        """
        end = end_of(other, self._relation.to_kinds)
        value = _value(value)
        only = None if isinstance(value, _Unset) else NO_VALUE if value is None else value
        return relating_to(self._session.backend, self._relation, end, only)


def _value(value: str | _Unset | None) -> str | _Unset | None:
    return value if isinstance(value, _Unset) else clean_value_of(value)
