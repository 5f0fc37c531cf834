"""Implement ``store.secrets``: rotate keys, and redact history.

A rotation wraps each data key with the environment's first key, by one compare-and-swap each. If it stops midway, each
data key is wrapped by the old key or by the new one, and the next run continues.

With ``reencrypt``, each catalog that declares secrets gets a new data key, by an alter that bumps its scope version:
later no write that used the old key can land. Then ordinary alters encrypt the properties below it again. An old data
key is destroyed once no entity, live or restorable, and no pending intent needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from metastore.arguments import boolean, shown
from metastore.errors import EntityNotFound, NotInUse, PermissionDenied, VersionConflict
from metastore.kinds.change import SetProperty
from metastore.kinds.kind import dump, dump_changes
from metastore.kinds.registry import kind_named
from metastore.kinds.secret import key_numbers, sealed_parts
from metastore.managers.attempts.alter import alter
from metastore.managers.mutation import first_entity, mutate
from metastore.managers.secrets.redaction import candidates, catalogs, redact
from metastore.names import format_path
from metastore.operation.guards import check_in_use, guards_of
from metastore.operation.perform import perform
from metastore.operation.request import Call, Proposal, Request, View
from metastore.operation.seals import settings_of
from metastore.operation.session import Session
from metastore.port.intents import PENDING
from metastore.port.records import Known, OwnedRecord, Record
from metastore.port.secret_keys import KeyRow
from metastore.port.unreadable import document, naming, properties_of
from metastore.port.writes import Event, Put
from metastore.secrets.declared import KEY, PATTERNS, Declared, is_plain
from metastore.secrets.keyring import current, new_key, of_text, unwrap, wrap
from metastore.secrets.sealer import Sealer


@dataclass(frozen=True)
class Rotated:
    """The counts of a rotation."""

    rewrapped: int
    """Data keys that this run wrapped with the first key of the environment."""
    reencrypted: int = 0
    """Entities and rows whose properties were encrypted again, or for the first time."""
    destroyed: tuple[int, ...] = ()
    """Numbers of the data keys that were destroyed."""
    needed: tuple[int, ...] = ()
    """Numbers of old data keys that dropped or disabled entities, or pending intents, still need."""
    erased: bool = False
    """Whether the database's own files no longer have bytes of the destroyed keys."""


@dataclass(frozen=True)
class Scrubbed:
    """The counts of a scrub."""

    reencrypted: int
    """Entities and rows that had a plain value, which is encrypted now."""
    redacted: int
    """Rows of history whose plain values were removed."""
    left: int
    """Entities and rows that still have a plain value, because they are dropped or disabled; so has their history."""
    erased: bool = False
    """Whether the database's own files no longer have bytes of the replaced values."""


class SecretStore:
    """The keys of encrypted properties, and the redaction of history."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _sealer(self) -> Sealer:
        assert self._session.seals is not None
        return self._session.seals.sealer

    def rotate(self, *, reencrypt: bool = False) -> Rotated:
        """Wrap all data keys with the first key of METASTORE_SECRET_KEY. Until this returns, keep the other keys there.

        ``reencrypt`` also makes new data keys, encrypts all secret properties with them, including plain ones, and
        destroys the old data keys. Then no history and no backup can show the old values. Run it again after an error.
        Raises SecretKeyMissing, SecretKeyWrong, SecretDamaged.
        """
        self._check("rotate keys")
        rewrapped = self._rewrap()
        if not boolean(reencrypt, "reencrypt"):
            return Rotated(rewrapped)
        old = {row.number for row in self._rows() if row.wrapped is not None}
        self._declare_new_keys(old)
        count, _ = self._encrypt_all()
        needed = self._needed()
        gone = tuple(sorted(old - needed))
        for row in self._rows():
            if row.number in gone:
                self._session.backend.secret_keys.rewrap(row, None, row.wrapper)
        erased = bool(gone) and self._session.backend.secret_keys.erase()
        return Rotated(rewrapped, count, gone, tuple(sorted(old & needed)), erased)

    def scrub(self) -> Scrubbed:
        """Encrypt plain values under declared patterns, and take them out of history.

        History keeps each step, with ``secret:redacted`` in place of the value. On SQLite, the file is rewritten and
        its log emptied, so free space does not have the value either. On PostgreSQL, free pages and write-ahead logs
        keep it, and so do all backups: docs/operations.md says what to do. Raises SecretKeyMissing.
        """
        self._check("redact history")
        count, left = self._encrypt_all()
        redacted = redact(self._session, left)
        return Scrubbed(count, redacted, len(left), self._session.backend.secret_keys.erase())

    def _check(self, what: str) -> None:
        """Raise PermissionDenied for a user's view of the store."""
        if self._session.access is not None:
            name = self._session.access.who.name
            message = f"{name} may not {what}; only the library itself and admins may (ms.open(admins=…))"
            raise PermissionDenied(name, "admin", "", message)

    def _rows(self) -> list[KeyRow]:
        return self._session.backend.secret_keys.rows()

    def _rewrap(self) -> int:
        rows, done = [row for row in self._rows() if row.wrapped is not None], 0
        key = current() if rows else None
        for row in rows:
            if key is not None and row.wrapper != key.name:
                wrapped = wrap(unwrap(row), row.number, key)
                done += self._session.backend.secret_keys.rewrap(row, wrapped, key.name)
        return done

    def _declare_new_keys(self, old: set[int]) -> None:
        """Give each catalog a new data key, neither old nor destroyed: a restored catalog may name an old number."""
        keys, number = self._session.backend.secret_keys, 0
        destroyed = {row.number for row in self._rows() if row.wrapped is None}
        for record in self._catalogs():
            if settings_of(record)[1].key not in old | destroyed:
                continue  # an earlier run, which was stopped, has changed this catalog
            if not number:
                number, key = max(row.number for row in self._rows()) + 1, current()
                keys.add(number, wrap(of_text(new_key()), number, key), key.name)
            self._alter(record, [SetProperty(KEY, str(number))])

    def _alter(self, record: Record, changes: Sequence[SetProperty]) -> bool:
        """Alter an entity with values that are encrypted already; return False if the entity is gone or disabled."""
        kind = kind_named(record.chain[-1].kind)
        entity = kind.entity(record, self._session.backend.origin)
        attempt = alter(kind, entity, tuple(changes), None, None, self._session.principal)
        try:
            mutate(self._session, kind, Call(), "alter", entity, attempt, first_entity)
        except (EntityNotFound, NotInUse):
            return False
        return True

    def _catalogs(self) -> list[Record]:
        """Return the live catalogs that declare secrets."""
        live = [one.record for one in catalogs(self._session) if one.live]
        return [record for record in live if PATTERNS in properties_of(record)]

    def _encrypt_all(self) -> tuple[int, set[int]]:
        """Encrypt declared properties with the present keys; return the row count, and the ids that stayed plain."""
        declared = {record.chain[-1].id: self._sealer.usable(settings_of(record)[1]) for record in self._catalogs()}
        done, left = 0, set[int]()
        for table in ("entity", "owned") if declared else ():
            for known, row in candidates(self._session, table):
                catalog = known.record.chain[1:2]
                wanted = declared.get(catalog[0].id) if catalog else None
                if wanted is None:
                    continue
                outcome = self._encrypt(known, row, wanted)
                done += outcome is True
                if outcome is False:
                    left.add(known.record.chain[-1].id if row is None else row.id)
        return done, left

    def _changes(
        self, properties: Mapping[str, str], entity_id: int, declared: Declared, path: str
    ) -> list[SetProperty]:
        """Return the changes that encrypt properties of an entity, or of its owned row, with the present data key."""
        sealer = self._sealer
        changes = []
        for key, value in properties.items():
            parts = sealed_parts(value)
            if not declared.covers(key) or not (is_plain(value) or (parts and parts[0] != declared.key)):
                continue
            secret = (
                value if parts is None else sealer.open(key, value, entity_id, f"the property {shown(key)} of {path}")
            )
            changes.append(SetProperty(key, sealer.bind(key, secret, declared.key, entity_id), expected=value))
        return changes

    def _encrypt(self, known: Known | None, row: OwnedRecord | None, declared: Declared) -> bool | None:
        """Encrypt an entity's or row's properties. True: some were encrypted; False: a plain value stays; else None."""
        while known is not None:
            properties = properties_of(known.record if row is None else row)
            names = (*[node.name for node in known.record.chain], *([] if row is None else [row.name]))
            changes = self._changes(properties, known.record.chain[-1].id, declared, format_path(names))
            if not changes:
                return None
            stays = False if any(is_plain(one.expected) for one in changes) else None
            if not known.live:
                return stays
            try:
                done = self._alter(known.record, changes) if row is None else self._put(known, row, changes)
            except VersionConflict:  # another process has changed the entity
                (known,) = self._session.backend.by_id([known.record.chain[-1].id])
                if row is not None:
                    (row,) = self._session.backend.owned_by_name([row.owner_id], row.kind, [row.name])
                    if row is None:
                        return None
                continue
            return True if done else stays
        return None

    def _put(self, known: Known, row: OwnedRecord, changes: Sequence[SetProperty]) -> bool:
        """Replace the document of an owned row; False if its owner is disabled.

        Raises VersionConflict if another process changed it meanwhile.
        """
        names = (*[node.name for node in known.record.chain], row.name)
        doc = document(row)
        for change in changes:
            change.apply(doc, names)
        path, chain = format_path(names), known.record.chain
        event = Event(row.kind, "alter", path, path, dump_changes(tuple(changes), names))
        write = Put(row.owner_id, row.kind, row.name, row.version, dump(doc, names), event, row.id)

        def attempt(view: View) -> Proposal[bool] | bool:
            (there,) = view.backend.owned_by_name([row.owner_id], row.kind, [row.name])
            if there != row:
                raise VersionConflict(path, row.version, None if there is None else there.version)
            check_in_use(chain[:-1])
            return Proposal(guards_of(chain), (write,), lambda _: True)

        request = Request[bool](
            verb="reencrypt", what=lambda: f"encrypt {path}", attempt=attempt, replay=lambda _: True, arguments=tuple
        )
        try:
            return perform(self._session, request, Call())
        except NotInUse:
            return False

    def _needed(self) -> set[int]:
        """Return the numbers of the data keys that entities or intents still need; history does not count."""
        numbers = {settings_of(record)[1].key for record in self._catalogs()}
        with self._session.backend.snapshot() as snapshot:
            for table in ("entity", "owned"):
                for row_id, text in snapshot.rows(table, ("id", "doc"), ("id",)):
                    numbers |= naming(partial(key_numbers, text), None, row_id, None)
            for action, text in snapshot.rows("operation", ("action", "changes"), ("operation_id", "ordinal")):
                numbers |= key_numbers(text or "") if action == PENDING else set()
        return numbers
