"""Read the owners, tags, policies, roles and grants of objects; name each wrong one in the report, and leave it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from metastore.errors import InvalidArgument
from metastore.governance.privileges import check_privilege
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.values import DAMAGED, Key, audit, json_of, known_audit

__all__ = ["Ends", "Link", "Links", "read_links"]


class Link(NamedTuple):
    """A relation; :class:`Links` knows the entity that it goes from. ``column``: Gravitino's id of its column."""

    kind: str
    to: Key
    value: str
    audit: Mapping[str, Any]
    column: int | None = None


class Ends(Protocol):
    """The entities that a link may lead from and to."""

    @property
    def id(self) -> int:
        """Return the metalake's id in Gravitino."""
        ...

    def ids(self, kind: str) -> set[int]:
        """Return the ids of all entities of a kind that are imported."""
        ...

    def exists(self, key: Key) -> bool:
        """Whether an object is imported; True for every column."""
        ...

    def is_left(self, key: Key) -> bool:
        """Whether an object exists but is not imported; the report says so already."""
        ...


@dataclass
class Links:
    """All links of a metalake, by the entity that they go from; those of columns by the column's id."""

    of: dict[Key, list[Link]] = field(default_factory=dict)
    columns: dict[int, list[Link]] = field(default_factory=dict)
    unsure: set[Key] = field(default_factory=set)
    """Entities with links that cannot be read: it is not known which links they have."""
    _seen: set[tuple[Key, str, Key, str]] = field(default_factory=set)

    def add(self, end: Key, link: Link) -> bool:
        """Add a link that goes from ``end``; return False if the same link is there already."""
        place = (end, link.kind, link.to, link.value)
        if place in self._seen:
            return False
        self._seen.add(place)
        if end[0] == "column":
            self.columns.setdefault(end[1], []).append(link._replace(column=end[1]))
        else:
            self.of.setdefault(end, []).append(link)
        return True


_ATTACHED: Final = ("tag", "policy")
_NOTHING: Final[Row] = {}


def read_links(source: Source, ends: Ends, report: Report) -> Links:
    """Return the links of a metalake."""
    reading = _Reading(source, ends, report)
    for kind in _ATTACHED:
        reading.attached(kind)
    for kind in ("user", "group"):
        reading.memberships(kind)
    reading.owners()
    reading.grants()
    return reading.links


class _Reading:
    def __init__(self, source: Source, ends: Ends, report: Report) -> None:
        self._source, self._ends, self._report = source, ends, report
        self.links = Links()

    def attached(self, kind: str) -> None:
        for row in self._of(f"{kind}_relation_meta", f"{kind}_id", kind):
            what = f"{kind}_on {row[f'{kind}_id']}"
            if (end := self._end(row, "metadata_object_type", what)) is None:
                continue
            value, at = str(row.get("tag_value") or ""), known_audit(row, self._report, what)
            link = Link(f"{kind}_on", (kind, int(row[f"{kind}_id"])), value, at)
            if self._is_there(end, f"{what} on the {end[0]} {end[1]}, which is gone"):
                self._add(end, link)

    def memberships(self, kind: str) -> None:
        for row in self._of(f"{kind}_role_rel", f"{kind}_id", kind):
            member = (kind, int(row[f"{kind}_id"]))
            what = f"membership of the {kind} {member[1]}"
            try:
                role = ("role", int(row["role_id"]))
            except DAMAGED as error:
                self._unreadable(what, error, member)
                continue
            if self._is_there(role, f"{what} in the role {role[1]}, which is gone"):
                self._add(member, Link("membership", role, "", known_audit(row, self._report, what)))

    def owners(self) -> None:
        """Add one owner for each object. If two servers have set an owner at the same time, add the newest."""
        newest: dict[Key, Row] = {}
        for row in self._source.rows("owner_meta", metalake_id=self._ends.id):
            what = f"owner {row.get('owner_id')}"
            if (end := self._end(row, "metadata_object_type", what)) is None:
                continue
            try:
                owner = _owner(row)
            except DAMAGED as error:
                self._unreadable(f"owner of the {end[0]} {end[1]}", error, end)
                continue
            gone = f"owner of the {end[0]} {end[1]}: the {owner[0]} {owner[1]}, which is gone"
            if not self._is_there(owner, gone, ("user", "group")):
                continue
            if not self._is_there(end, f"owner {owner[0]} {owner[1]} of the {end[0]} {end[1]}, which is gone"):
                continue
            if end in newest:
                self._report.find("double_owner", f"the {end[0]} {end[1]} has two owners", "the newer one was taken")
            newest[end] = max(newest.get(end, row), row, key=_age)
        for end, row in newest.items():
            self._add(
                end, Link("owner", _owner(row), "", known_audit(row, self._report, f"owner of {end[0]} {end[1]}"))
            )

    def grants(self) -> None:
        for row in self._of("role_meta_securable_object", "role_id", "role"):
            role = ("role", int(row["role_id"]))
            if (end := self._end(row, "type", f"privileges of the role {role[1]}", role)) is None:
                continue
            if self._is_there(end, f"privileges of the role {role[1]} on the {end[0]} {end[1]}, which is gone"):
                for value in self._values(row, role, end[0]):
                    self._add(role, Link("grant", end, value, audit(_NOTHING)))

    def _values(self, row: Row, role: Key, kind: str) -> Iterator[str]:
        """Yield the privileges of a row that the store knows, with their effects."""
        try:
            words, effects = list(json_of(row["privilege_names"], [])), list(json_of(row["privilege_conditions"], []))
        except DAMAGED as error:
            self._unreadable(f"privileges of the role {role[1]} on a {kind}", error, role)
            return
        for at, word in enumerate(words):
            privilege, effect = str(word).lower(), str(effects[at]).lower() if at < len(effects) else ""
            if effect not in ("allow", "deny"):
                what = f"the privilege {privilege} of the role {role[1]} on a {kind} has no condition"
                self._report.find("unreadable", what)
                self.links.unsure.add(role)
                continue
            try:
                check_privilege(privilege, kind)
            except InvalidArgument:
                self._report.find("unknown", f"the privilege {privilege} of the role {role[1]} on a {kind}")
            else:
                yield f"{effect}:{privilege}"

    def _of(self, table: str, column: str, kind: str) -> Iterator[Row]:
        ids = sorted(self._ends.ids(kind))
        for start in range(0, len(ids), 1000):
            yield from self._source.rows(table, **{column: ids[start : start + 1000]})

    def _end(self, row: Row, word: str, what: str, owner: Key | None = None) -> Key | None:
        try:
            return str(row[word]).lower(), int(row["metadata_object_id"])
        except DAMAGED as error:
            self._unreadable(what, error, owner)
            return None

    def _is_there(self, end: Key, gone: str, kinds: tuple[str, ...] = ()) -> bool:
        """Whether an end is imported; report an end that is gone. ``kinds``: the kinds that it may have; empty: any."""
        if (not kinds or end[0] in kinds) and self._ends.exists(end):
            return True
        if not self._ends.is_left(end):
            self._report.find("dangling", gone)
        return False

    def _unreadable(self, what: str, error: Exception, owner: Key | None) -> None:
        self._report.find("unreadable", f"{what}: its row is damaged ({type(error).__name__})")
        if owner is not None:
            self.links.unsure.add(owner)

    def _add(self, end: Key, link: Link) -> None:
        if not self.links.add(end, link):
            what = f"{link.kind} of the {end[0]} {end[1]}: the {link.to[0]} {link.to[1]} comes twice"
            self._report.find("double", what, "the first one was taken")


def _owner(row: Row) -> Key:
    return str(row["owner_type"]).lower(), int(row["owner_id"])


def _age(row: Row) -> tuple[int, int]:
    return max(int(row.get("updated_at") or 0), known_audit(row)["modified_at"] // 1000), int(row.get("id") or 0)
