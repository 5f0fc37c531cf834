"""Models and their versions.

A version is an owned row; its aliases are also in the model's document. A call that changes both makes one commit,
which expects the versions of both. So an alias never points to a missing version, nor to two versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Final, TypeVar, Unpack, cast
from uuid import UUID

from metastore.arguments import positive_integer, shown
from metastore.errors import EntityNotFound, InvalidArgument, VersionConflict, outcome_forgotten
from metastore.kinds.change import Doc, EntityChange, RemoveProperty, SetComment, SetProperty, encode
from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.kinds.model.changes import RemoveUri, SetUri
from metastore.kinds.model.document import clean_alias, clean_aliases
from metastore.kinds.model.kind import Model
from metastore.kinds.model.version import MODEL_VERSION, ModelVersion
from metastore.managers.attempts.create import with_properties
from metastore.managers.manager import Manager
from metastore.managers.model_commit import ModelEdit, SeenModel
from metastore.managers.mutation import actor_of, mutate
from metastore.managers.options import CallOptions, CreateOptions, call_of, shows_options
from metastore.managers.owned import OwnedManager, still
from metastore.managers.pages.page import Page, TokenScope
from metastore.managers.pages.sources import NumberedSource, page_after, parent_of
from metastore.managers.secrets.sealing import sealed_call, sets_properties
from metastore.managers.target import Target, check_standing, find, standing
from metastore.names import Path, format_path, parse_path
from metastore.operation.kept_result import entity_at
from metastore.operation.request import Attempt, Proposal, View
from metastore.operation.seals import NO_SEAL, Seal
from metastore.operation.session import ManagerSession
from metastore.port.records import OwnedRecord, Record, Step
from metastore.port.unreadable import naming
from metastore.secrets.sealer import bound

T = TypeVar("T")

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_CHANGES: Final = (SetComment, SetProperty, RemoveProperty, SetUri, RemoveUri)
_PAGE: Final = 1000
"""How many versions are read at once."""
_FIRST: Final = 20
"""How many numbers the first read asks for, before the latest number is known."""
_ROUNDS: Final = 3
"""How often a transaction looks for an alias: its repeated reads return the same, so more looks are useless."""


class Models(Manager[Model]):
    """Models and their versions. A caller names a version by its number or by an alias."""

    def __init__(self, session: ManagerSession, kind: Kind) -> None:
        super().__init__(session, kind)
        self._rows = OwnedManager[ModelVersion](session, MODEL_VERSION, kind)

    @shows_options(CreateOptions)
    def create(self, path: Path, **options: Unpack[CreateOptions]) -> Model:
        """Create a model, without versions. Raises EntityAlreadyExists, EntityNotFound, NotInUse."""
        return self._create(path, {}, options)

    def load_version(self, model: Target, number_or_alias: int | str) -> ModelVersion:
        """Return one version. Raises EntityNotFound."""
        if not isinstance(number_or_alias, str):
            return self._rows.load(model, str(positive_integer(number_or_alias, "the number of a version")))
        alias, backend = clean_alias(number_or_alias), self._session.backend
        for rounds in count(1):
            seen = SeenModel(View(backend, trusting=False), self._kind, model)
            row = seen.row(seen.number(alias))
            # the row was read after the model, so check in the row whether the alias still points to it
            version = None if row is None else ModelVersion(row)
            if version is not None and alias in version.aliases and still(backend, seen.nodes):
                return version
            if self._session.in_transaction and rounds == _ROUNDS:
                break
        raise VersionConflict(seen.path, None, None, f"{seen.path}: the alias {alias} moved meanwhile; run it again")

    def versions(self, model: Target) -> Iterator[ModelVersion]:
        """Yield the versions by number. Raises EntityNotFound, also if the model is dropped or renamed meanwhile."""
        if self._session.in_transaction:  # a transaction notes the whole listing as read
            yield from sorted(self._rows.list(model), key=lambda version: version.number)
            return
        view, after, rows = View(self._session.backend, trusting=False), 0, list[OwnedRecord]()
        model_id = find(view, self._kind, model).chain[-1].id
        while after == 0 or len(rows) == _PAGE:
            rows = self._numbered(model_id, after, _PAGE)
            if not isinstance(model, Entity) and find(view, self._kind, model).chain[-1].id != model_id:
                path = format_path(parse_path(model))
                raise EntityNotFound(path, f"{path} was renamed while its versions were listed; list again")
            yield from map(ModelVersion, rows)
            after = int(rows[-1].name) if rows else -1

    def versions_page(self, model: Target, *, size: int = 100, token: str | None = None) -> Page[ModelVersion]:
        """Return one page of the versions, by number; ``token`` is the ``next_token`` of the page before."""
        backend = self._session.backend

        def model_id(in_token: int | None) -> int:
            view = View(backend, trusting=False)
            return parent_of(view, lambda v: find(v, self._kind, model).chain, in_token)[0][-1].id

        source = NumberedSource[OwnedRecord, ModelVersion](
            listed=TokenScope("versions", self._kind.name),
            entity=model_id,
            read=self._numbered,
            number=lambda row: int(row.name),
            item=ModelVersion,
        )
        return page_after(self._session, source, size, token)

    def _numbered(self, model_id: int, after: int, limit: int) -> list[OwnedRecord]:
        """Return the rows of the next versions. Numbers are never used again, so there may be gaps."""
        backend, rows, size = self._session.backend, list[OwnedRecord](), min(limit, _FIRST)
        while len(rows) < limit:
            names = [str(number) for number in range(after + 1, after + size + 1)]
            numbered = backend.owned_by_name([model_id] * size, MODEL_VERSION.name, names)
            found = [row for row in numbered if row is not None]
            rows += found
            after += size
            # read after the rows: a version added meanwhile is among the rows, or has a later number
            known = backend.by_id([model_id])[0]
            if known is None or not known.live:
                raise EntityNotFound(str(model_id), f"the model {model_id} was dropped while it was read; list again")
            left = _latest(known.record) - after
            if left <= 0:
                break
            # rows beyond the page are read again; where most versions were dropped, the next read asks for twice as
            # many numbers
            size = min(left, limit - len(rows) if 2 * len(found) >= size else min(2 * size, _PAGE))
        return rows[:limit]

    @shows_options(CallOptions)
    def add_version(
        self,
        model: Target,
        *,
        uris: Mapping[str, str],
        aliases: Iterable[str] = (),
        comment: str | None = None,
        properties: Mapping[str, str] = _NOTHING,
        **options: Unpack[CallOptions],
    ) -> ModelVersion:
        """Add a version, with the number after the latest.

        The same commit moves its aliases from other versions to it.
        """
        names = clean_aliases(aliases)

        def add(seal: Seal) -> ModelVersion:
            sealed = seal.properties(properties)
            doc = MODEL_VERSION.document(comment, sealed, {"uris": uris, "aliases": ()})
            return self._add_version(model, doc, sealed, names, seal, options)

        return sealed_call(self._session, self._kind, model, options, add) if properties else add(NO_SEAL)

    def _add_version(
        self,
        model: Target,
        doc: Doc,
        secrets: Mapping[str, str],
        names: Sequence[str],
        seal: Seal,
        options: CallOptions,
    ) -> ModelVersion:
        actor = actor_of(self._session, call_of(options))

        def attempt(view: View) -> Proposal[ModelVersion]:
            edit = ModelEdit(view, self._kind, model, self._session.in_transaction)
            number = edit.add(with_properties(doc, bound(secrets, edit.nodes[-1].id, {})))
            for alias in names:
                edit.point(alias, number)
            return edit.propose(lambda results: edit.version(number, results, actor))

        def replay(steps: Sequence[Step]) -> ModelVersion:
            return _version([s for s in steps if s.action == "create"], steps[0].operation_id)

        arguments = lambda: [with_properties(doc, secrets), names]  # noqa: E731
        return self._perform("add_version", model, seal.guarding(attempt), replay, arguments, options)

    @shows_options(CallOptions)
    def alter_version(
        self, model: Target, number_or_alias: int | str, *changes: EntityChange, **options: Unpack[CallOptions]
    ) -> ModelVersion:
        """Apply SetComment, SetProperty, RemoveProperty, SetUri, RemoveUri to a version; return it."""
        for change in changes:
            if not isinstance(change, _CHANGES):
                raise InvalidArgument(f"{shown(change)} is not a change of a model's version")
        if not sets_properties(changes):
            return self._alter_version(model, number_or_alias, changes, NO_SEAL, options)

        def alter(seal: Seal) -> ModelVersion:
            return self._alter_version(model, number_or_alias, seal.changes(changes), seal, options)

        return sealed_call(self._session, self._kind, model, options, alter)

    def _alter_version(
        self,
        model: Target,
        number_or_alias: int | str,
        changes: tuple[EntityChange, ...],
        seal: Seal,
        options: CallOptions,
    ) -> ModelVersion:
        actor = actor_of(self._session, call_of(options))

        def attempt(view: View) -> Proposal[ModelVersion] | ModelVersion:
            edit = ModelEdit(view, self._kind, model, self._session.in_transaction)
            number = edit.existing(number_or_alias)
            with standing(view, edit.nodes):
                altered = edit.alter(number, changes)
            if not altered:
                check_standing(view, edit.nodes)
                return edit.version(number, (), actor)
            return edit.propose(lambda results: edit.version(number, results, actor))

        arguments = lambda: [number_or_alias, encode(changes)]  # noqa: E731
        replay = lambda steps: _version(steps, steps[0].operation_id)  # noqa: E731
        return self._perform("alter_version", model, seal.guarding(attempt), replay, arguments, options)

    @shows_options(CallOptions)
    def drop_version(self, model: Target, number_or_alias: int | str, **options: Unpack[CallOptions]) -> bool:
        """Drop a version and its aliases; return False if it does not exist. Its number is not used again."""

        def attempt(view: View) -> Proposal[bool] | bool:
            try:
                edit = ModelEdit(view, self._kind, model, self._session.in_transaction)
            except EntityNotFound:
                return False
            try:
                edit.drop(edit.existing(number_or_alias))
            except EntityNotFound:
                check_standing(view, edit.nodes)
                return False
            return edit.propose(lambda _: True)

        return self._perform("drop_version", model, attempt, lambda _: True, lambda: [number_or_alias], options)

    @shows_options(CallOptions)
    def set_alias(self, model: Target, alias: str, number: int, **options: Unpack[CallOptions]) -> ModelVersion:
        """Let an alias point to a version, even if it points to another one now; return the version."""
        name = clean_alias(alias)
        number = positive_integer(number, "the number of a version")
        actor = actor_of(self._session, call_of(options))

        def attempt(view: View) -> Proposal[ModelVersion] | ModelVersion:
            edit = ModelEdit(view, self._kind, model, self._session.in_transaction)
            edit.existing(number)
            if not edit.point(name, number):
                check_standing(view, edit.nodes)
                return edit.version(number, (), actor)
            return edit.propose(lambda results: edit.version(number, results, actor))

        def replay(steps: Sequence[Step]) -> ModelVersion:
            named = [s for s in steps if (s.path_after or "").endswith(f".{number}")]
            return _version(named, steps[0].operation_id)

        return self._perform("set_alias", model, attempt, replay, lambda: [name, number], options)

    @shows_options(CallOptions)
    def drop_alias(self, model: Target, alias: str, **options: Unpack[CallOptions]) -> bool:
        """Remove an alias; return False if it does not exist."""
        name = clean_alias(alias)

        def attempt(view: View) -> Proposal[bool] | bool:
            try:
                edit = ModelEdit(view, self._kind, model, self._session.in_transaction)
            except EntityNotFound:
                return False
            if not edit.point(name, None):
                check_standing(view, edit.nodes)
                return False
            return edit.propose(lambda _: True)

        return self._perform("drop_alias", model, attempt, lambda _: True, lambda: [name], options)

    def _perform(
        self,
        verb: str,
        model: Target,
        attempt: Attempt[T],
        replay: Callable[[Sequence[Step]], T],
        arguments: Callable[[], Any],
        options: CallOptions,
    ) -> T:
        session, kind, call = self._session, self._kind, call_of(options)
        return mutate(session, kind, call, verb, model, attempt, replay, arguments, owned_rows=True)


def _version(steps: Sequence[Step], operation_id: UUID) -> ModelVersion:
    """Return the version that an operation wrote in one of these steps. Raises OutcomeUnknown if gc has deleted it."""
    for step in steps:
        if step.kind == MODEL_VERSION.name:
            return cast(ModelVersion, entity_at(step))
    raise outcome_forgotten(operation_id)


def _latest(record: Record) -> int:
    here = record.chain[-1]
    return naming(lambda: int(json.loads(record.doc)["latest_version"]), here.kind, here.id, record.version)
