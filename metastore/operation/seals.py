"""A store's memory of which properties catalogs declare secret, and the encryption of a call's values.

A write below a catalog guards the catalog's scope version, and each change of the catalog's settings raises that
version. So a process can use remembered settings without a read. If the version has changed, the attempt reads the
settings again, because a rename changes the version too. If the settings have changed, the attempt raises
:class:`Stale`, and the call begins again with the present settings (``managers/secrets/sealing.py``).

An encrypted change is announced as ciphertext, and depends on the catalog's scope version. So no helper needs a key,
and no helper applies the change under other settings or another data key. A plain value that was announced before its
property was declared secret may still be applied as plain text; ``verify`` reports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, TypeVar

from metastore.arguments import shown
from metastore.errors import EntityNotFound, InvalidArgument, MetastoreError
from metastore.kinds.change import EntityChange, RemoveProperty, SetProperty
from metastore.kinds.entity import Entity
from metastore.kinds.families import families_of
from metastore.kinds.kind import Kind
from metastore.kinds.secret import PREFIX, Secret, sealed_parts
from metastore.names import Path, clean_text, parse_path
from metastore.operation.guards import guards_of
from metastore.operation.hot import ForgetfulMap
from metastore.operation.request import Attempt, Merge, Proposal, View
from metastore.port.backend import Backend, Reads
from metastore.port.conditions import Guard
from metastore.port.records import Lookup, Node, Record
from metastore.port.unreadable import properties_of
from metastore.retry.runner import Conflict
from metastore.secrets.declared import KEY, NOTHING, PATTERNS, Declared, declared_in, is_plain
from metastore.secrets.sealer import Sealed, Sealer

T = TypeVar("T")
_NOWHERE = Node(-1, "catalog", "", 0, True, False)
"""A catalog that does not exist: no proposal guards it."""


class Stale(Exception):
    """A catalog's settings differ from those with which the call was prepared."""


class _Mode(Enum):
    """The source of a seal's settings. With GUESSED, a guard that is older than the settings need not fail."""

    ALONE = auto()
    GUESSED = auto()
    """The store remembers them, and a transaction uses them: its reads must have the same scope version."""
    IN_TRANSACTION = auto()
    """The transaction has read them; its commit validates that read."""


@dataclass(frozen=True)
class Seal:
    """The encryption of one call: the settings of the catalog above the write, at a known scope version."""

    sealer: Sealer | None
    """None: the seal of a view of the past, which writes nothing."""
    catalog: Node | None
    """None: it writes below no catalog that exists."""
    declared: Declared
    more: Mapping[str, str] = field(default_factory=dict)
    """The extra properties of a new catalog: the number of its data key."""
    mode: _Mode = _Mode.ALONE
    compares: bool = True
    """The caller may learn whether a value that it gives is the present one: a user may not."""
    seals: Seals | None = None
    """The memory in which an attempt looks at the settings once more; None: it does not look."""

    @property
    def settled(self) -> tuple[int, int] | None:
        """The catalog and its scope version; an announced change is applied only while they match."""
        return None if self.catalog in (None, _NOWHERE) else (self.catalog.id, self.catalog.scope_version)

    def nowhere(self) -> Seal:
        """Return the seal of a call below a catalog that does not exist."""
        return Seal(self.sealer, _NOWHERE, NOTHING, compares=self.compares)

    def announced(self, merge: Merge) -> Merge | None:
        """Return an encrypted change to announce: helpers apply it only while the catalog's settings stay the same.

        Otherwise its owner decides again with the then valid data key. None: no catalog must be guarded.
        """
        settled = self.settled
        return None if settled is None else replace(merge, settled=settled, evidence=(settled,))

    def value(self, key: object, value: Any) -> Any:
        """Return the form in which a call may write a property's value. Raises InvalidArgument, SecretKeyMissing."""
        if type(value) is str and not self.declared.patterns and not value.startswith(PREFIX):
            return value  # most values: the catalog declares no secrets
        if not isinstance(value, str) or isinstance(value, Sealed | Secret) or not isinstance(key, str):
            return value
        if sealed_parts(value) is not None:
            raise InvalidArgument(f"the property {shown(key)} is given as a ciphertext; give the secret itself")
        if not self.declared.covers(key) or not is_plain(value):
            return value
        assert self.sealer is not None
        text = clean_text(value, f"the property {shown(key)}")
        return self.sealer.seal(key, text, self.declared.key, compares=self.compares)

    def properties(self, properties: Any) -> Any:
        """Return the form in which a call may write properties."""
        if not isinstance(properties, Mapping):
            return properties
        return {**{key: self.value(key, value) for key, value in properties.items()}, **self.more}

    def changes(self, changes: Iterable[EntityChange]) -> tuple[EntityChange, ...]:
        """Return changes in a form that a repeat of the operation can compare; :func:`bound_changes` binds secrets."""
        return tuple([self._change(one) if isinstance(one, SetProperty) else one for one in changes])

    def _change(self, one: SetProperty) -> SetProperty:
        value, expected = self.value(one.key, one.value), self.value(one.key, one.expected)
        return one if value is one.value and expected is one.expected else replace(one, value=value, expected=expected)

    def redeclared(self, changes: tuple[EntityChange, ...]) -> tuple[Seal, tuple[EntityChange, ...]]:
        """Return the seal for changes of the catalog itself, and the changes, with a data key if they need one."""
        seal = self._after(changes)
        new = bool(seal.declared.patterns) and not self.declared.patterns
        if self.sealer is None or not new or any(isinstance(c, SetProperty) and c.key == KEY for c in changes):
            return seal, changes
        number = self.sealer.newest()
        if number == seal.declared.key:
            return seal, changes
        changes = (*changes, SetProperty(KEY, str(number)))
        return self._after(changes), changes

    def _after(self, changes: Iterable[EntityChange]) -> Seal:
        settings: dict[str, Any] = {PATTERNS: " ".join(self.declared.patterns) or None, KEY: str(self.declared.key)}
        for one in changes:
            if isinstance(one, SetProperty) and one.key in settings:
                settings[one.key] = one.value
            elif isinstance(one, RemoveProperty) and one.key in settings:
                settings[one.key] = None if one.key == PATTERNS else "1"
        declared = declared_in(settings)
        return replace(self, declared=declared if self.sealer is None else self.sealer.usable(declared), seals=None)

    def guarding(self, attempt: Attempt[T]) -> Attempt[T]:
        """Return an attempt whose proposals commit only while the catalog's settings stay the same."""
        catalog = self.catalog
        if catalog is None:
            return attempt

        def checked(view: View) -> Proposal[T] | T:
            try:
                decided = attempt(view)
            except EntityNotFound:  # this error does not depend on the settings
                raise
            except MetastoreError:
                if not view.guessed and _outdated(view, catalog):
                    raise Stale from None
                raise
            if isinstance(decided, Proposal):
                return self._guarded(view, decided, catalog)
            if isinstance(decided, Entity) and not view.guessed and not self._found(decided):
                raise Stale
            return decided

        return checked

    def _guarded(self, view: View, proposal: Proposal[T], catalog: Node) -> Proposal[T]:
        """Return a proposal that can commit only under these settings."""
        held = self._is_guarded(catalog, proposal.guards)
        settled = self.settled if held else self._settled_anew(proposal.guards)
        if settled is not None:
            merge = proposal.merge
            if merge is None or merge.settled == settled:
                return proposal
            # an announced change rests on the scope version at which the settings were read
            merge = replace(merge, settled=settled, evidence=(settled,) if merge.evidence else ())
            return replace(proposal, merge=merge)
        if view.guessed:
            raise Conflict("ancestor", f"the catalog {catalog.name} has other settings, or is another one")
        raise Stale

    def _settled_anew(self, guards: Iterable[Guard]) -> tuple[int, int] | None:
        """Return the guarded catalog and its scope version if it has the same settings; None: its settings differ.

        The catalog was renamed, or another catalog has its name now.
        """
        found = None if self.seals is None or self.mode is not _Mode.ALONE else self.seals.settings_at(guards)
        return None if found is None or found[1] != self.declared else (found[0].id, found[0].scope_version)

    def _is_guarded(self, catalog: Node, guards: Iterable[Guard]) -> bool:
        """Whether a commit with these guards can succeed only under these settings."""
        for guard in guards:
            if guard.id == catalog.id:
                older = guard.scope_version < catalog.scope_version
                return guard.scope_version == catalog.scope_version or (older and self.mode is not _Mode.GUESSED)
        return False

    def _found(self, entity: Entity) -> bool:
        """Whether a call that changes nothing read its entity below a catalog with these settings."""
        assert self.catalog is not None
        known, above = self.catalog, entity.record.chain[1:2]
        if not above:
            return False
        # a transaction's commit validates the reads of its calls
        older = self.mode is _Mode.IN_TRANSACTION and above[0].scope_version < known.scope_version
        same = older or above[0].scope_version == known.scope_version
        own = (above[0].id, above[0].scope_version)
        return (same and own[0] == known.id) or self._settled_anew(guards_of(above)) == own


NO_SEAL = Seal(None, None, NOTHING)


def bound_changes(changes: Sequence[EntityChange], entity_id: int, doc: str) -> tuple[EntityChange, ...]:
    """Return changes with secrets bound to the entity, for an intent or history; ``doc`` is its present document."""
    for one in changes:
        if isinstance(one, SetProperty) and _is_sealed(one):
            break
    else:
        return tuple(changes)
    now: dict[str, Any] = dict(json.loads(doc)["properties"])
    made = list[EntityChange]()
    for one in changes:
        if isinstance(one, SetProperty):
            before = now.get(one.key)
            expected = one.expected.expected(entity_id, before) if isinstance(one.expected, Sealed) else one.expected
            now[one.key] = one.value.bound(entity_id, before) if isinstance(one.value, Sealed) else one.value
            made.append(replace(one, value=now[one.key], expected=expected) if _is_sealed(one) else one)
            continue
        if isinstance(one, RemoveProperty):
            now.pop(one.key, None)
        made.append(one)
    return tuple(made)


def _is_sealed(one: SetProperty) -> bool:
    return isinstance(one.value, Sealed) or isinstance(one.expected, Sealed)


def _outdated(view: View, catalog: Node) -> bool:
    """Return whether the catalog has changed since its settings were read, so that an error may be outdated."""
    found = view.scope_version(catalog.id)
    return found is not None and found != catalog.scope_version


class Seals:
    """A store's memory of catalogs' settings, and its data keys."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.sealer = Sealer(backend)
        self._settings: ForgetfulMap[Seal] = ForgetfulMap()
        self._ids: ForgetfulMap[int] = ForgetfulMap()
        self._read_last: ForgetfulMap[tuple[str, Seal]] = ForgetfulMap()
        """The last read document of each catalog, and its settings, also from a transaction that is not committed.

        Only the commit raises the scope version, so within a transaction two documents can have the same one.
        """

    def clear(self) -> None:
        """Forget everything, including the data keys and the reserved ids."""
        self._settings.clear()
        self._read_last.clear()
        self._ids.clear()
        self.sealer.clear()

    def unsealed(self, kind: Kind, where: Path | Entity) -> Seal | None:
        """Return the remembered seal of a catalog without secrets; None: it declares secrets, or is not remembered."""
        known = self._remembered(kind, where)
        return known if known is not None and not known.declared.patterns else None

    def seal(
        self, reads: Reads, kind: Kind, where: Path | Entity, *, in_transaction: bool = False, fresh: bool = False
    ) -> Seal:
        """Return the seal of a call at a path, or at or below an entity; ``fresh``: do not use the remembered one.

        Settings that a transaction reads are remembered only after its commit: see :meth:`validated`.
        """
        known = None if fresh else self._remembered(kind, where)
        if known is not None:
            return replace(known, mode=_Mode.GUESSED) if in_transaction else known
        if in_transaction:
            declaring = self._read(reads, kind, where, fresh)
            return replace(self._seal(declaring), mode=_Mode.IN_TRANSACTION)
        declaring = self._read(self._backend, kind, where, fresh)
        if isinstance(declaring, Record):
            self._note(declaring)
        return self._seal(declaring)

    def settings_at(self, guards: Iterable[Guard]) -> tuple[Node, Declared] | None:
        """Return the guarded catalog, and its settings at that scope version or later; None: no catalog is guarded.

        If they are not remembered, read them. If the catalog has changed again, a commit with these guards fails.
        """
        pairs = {guard.id: guard.scope_version for guard in guards}
        for entity_id, scope_version in pairs.items():
            known = self._settings.get(entity_id)
            if known is not None and known.catalog is not None and known.catalog.scope_version >= scope_version:
                return known.catalog, known.declared
        rows = [row.record for row in self._backend.by_id(list(pairs)) if row is not None]
        catalogs = [record for record in rows if record.chain[-1].kind == "catalog"]
        if len(catalogs) != 1:
            return None
        self._note(catalogs[0])
        known = self._of(catalogs[0])
        return (catalogs[0].chain[-1], known.declared)

    def validated(self, catalog: Record) -> None:
        """Remember the settings of a catalog that a transaction has read and its commit has validated."""
        own, known = catalog.chain[-1], self._settings.get(catalog.chain[-1].id)
        if known is None or known.catalog != own or self._ids.get(_names(catalog)) != own.id:
            self._note(catalog)

    def _seal(self, declaring: Record | Node | None) -> Seal:
        """Return the seal of a catalog that was read, or of one that does not exist, or the seal for no catalog."""
        return (
            self._of(declaring) if isinstance(declaring, Record) else Seal(self.sealer, declaring, NOTHING, seals=self)
        )

    def _of(self, catalog: Record) -> Seal:
        """Return the seal of a catalog that was read; the data keys are read once for each state of the catalog."""
        own, last = catalog.chain[-1], self._read_last.get(catalog.chain[-1].id)
        if last is not None and last[0] == catalog.doc and last[1].catalog == own:
            return last[1]
        seal = replace(seal_of(self.sealer, catalog), seals=self)
        self._read_last.set(own.id, (catalog.doc, seal))
        return seal

    def _remembered(self, kind: Kind, where: Path | Entity) -> Seal | None:
        if isinstance(where, Entity):
            chain = where.record.chain
            catalog = chain[1] if len(chain) > 1 and chain[1].kind == "catalog" else None
            seal = None if catalog is None else self._settings.get(catalog.id)
            if seal is None or seal.catalog is None or catalog is None:
                return None
            return None if seal.catalog.scope_version < catalog.scope_version else seal
        known = self._ids.get(parse_path(where)[:2]) if _is_below(kind, where) else None
        return None if known is None else self._settings.get(known)

    def _read(self, reads: Reads, kind: Kind, where: Path | Entity, fresh: bool) -> Record | Node | None:
        """Return the catalog above the written entity; _NOWHERE: it does not exist; None: no catalog above."""
        if not isinstance(where, Entity):
            if not _is_below(kind, where):
                return None
            names = parse_path(where)
            (resolved,) = reads.resolve([Lookup((families_of(kind, len(names)) or ())[:2], names[:2])])
            return _NOWHERE if resolved.record is None else resolved.record
        catalog = _catalog_of(reads, where, fresh)
        if catalog is None or catalog is _NOWHERE:
            return catalog
        (known,) = reads.by_id([catalog.id])
        return _NOWHERE if known is None or known.record.chain[-1].kind != "catalog" else known.record

    def _note(self, record: Record) -> None:
        catalog = record.chain[-1]
        self._settings.set(catalog.id, self._of(record))
        self._ids.set(_names(record), catalog.id)


def _names(record: Record) -> tuple[str, ...]:
    return tuple([node.name for node in record.chain])


def _is_below(kind: Kind, path: Path) -> bool:
    """Whether a path names a catalog or an entity below one."""
    families = families_of(kind, len(parse_path(path)))
    return families is not None and len(families) > 1 and families[1] == "catalog"


def _catalog_of(reads: Reads, entity: Entity, fresh: bool) -> Node | None:
    """Return the catalog above a loaded entity, or the entity itself."""
    chain = entity.record.chain
    if fresh or (len(chain) > 1 and not chain[1].kind):  # an entity from history does not know its ancestors
        (known,) = reads.by_id([entity.id])
        if known is None:
            return _NOWHERE
        chain = known.record.chain
    return chain[1] if len(chain) > 1 and chain[1].kind == "catalog" else None


def seal_of(sealer: Sealer, catalog: Record) -> Seal:
    """Return the seal of a catalog that was read."""
    here, declared = settings_of(catalog)
    return Seal(sealer, here, sealer.usable(declared))


def settings_of(record: Record) -> tuple[Node, Declared]:
    """Return a catalog's node and its settings."""
    return record.chain[-1], declared_in(properties_of(record))
