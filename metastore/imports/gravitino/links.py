"""Read the owners, tags, policies, roles and grants of objects; name each wrong one in the report, and leave it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from metastore.errors import InvalidArgument
from metastore.governance.privileges import check_privilege
from metastore.imports.gravitino.report import Report
from metastore.imports.gravitino.source import Row, Source
from metastore.imports.gravitino.values import audit, json_of

__all__ = ["Key", "Link", "Links", "read_links"]

Key = tuple[str, int]
"""A kind, and Gravitino's id."""


class Link(NamedTuple):
    """A relation from the entity under which it stands; ``column``: from this column of it (Gravitino's id)."""

    kind: str
    to: Key
    value: str
    audit: Mapping[str, Any]
    column: int | None = None


@dataclass
class Links:
    """All links of a metalake, by the entity that they go from; those of columns by the column's id."""

    of: dict[Key, list[Link]] = field(default_factory=dict)
    columns: dict[int, list[Link]] = field(default_factory=dict)

    def add(self, end: Key, link: Link) -> None:
        """Add a link that goes from ``end``."""
        if end[0] == "column":
            self.columns.setdefault(end[1], []).append(link._replace(column=end[1]))
        else:
            self.of.setdefault(end, []).append(link)


Exists = Callable[[Key], bool]
_ATTACHED: Final = (("tag", "tag_relation_meta"), ("policy", "policy_relation_meta"))


def read_links(source: Source, metalake: int, there: Mapping[str, set[int]], exists: Exists, report: Report) -> Links:
    """Return the links of a metalake. ``there``: its users, groups, roles, tags, policies; ``exists``: others."""
    links = Links()
    for kind, table in _ATTACHED:
        ids = sorted(there[kind])
        for row in _of(source, table, f"{kind}_id", ids):
            value = str(row.get("tag_value") or "")
            _attach(links, row, Link(f"{kind}_on", (kind, int(row[f"{kind}_id"])), value, audit(row)), exists, report)
    for kind in ("user", "group"):
        for row in _of(source, f"{kind}_role_rel", f"{kind}_id", sorted(there[kind])):
            role = int(row["role_id"])
            if role in there["role"]:
                links.add((kind, int(row[f"{kind}_id"])), Link("membership", ("role", role), "", audit(row)))
            else:
                report.find(
                    "dangling", f"membership of the {kind} {row[f'{kind}_id']} in the role {role}, which is gone"
                )
    _owners(source, metalake, there, exists, links, report)
    _grants(source, there, exists, links, report)
    return links


def _of(source: Source, table: str, column: str, ids: list[int]) -> list[Row]:
    return [
        row for start in range(0, len(ids), 1000) for row in source.rows(table, **{column: ids[start : start + 1000]})
    ]


def _end(row: Row) -> Key:
    return str(row["metadata_object_type"]).lower(), int(row["metadata_object_id"])


def _attach(links: Links, row: Row, link: Link, exists: Exists, report: Report) -> None:
    end = _end(row)
    if exists(end):
        links.add(end, link)
    else:
        report.find("dangling", f"{link.kind} {link.to[1]} on the {end[0]} {end[1]}, which is gone")


def _owners(
    source: Source, metalake: int, there: Mapping[str, set[int]], exists: Exists, links: Links, report: Report
) -> None:
    """One owner for each object: of several, which two servers set at once, the newest."""
    newest: dict[Key, Row] = {}
    for row in source.rows("owner_meta", metalake_id=metalake):
        end, owner = _end(row), (str(row["owner_type"]).lower(), int(row["owner_id"]))
        if owner[1] not in there.get(owner[0], ()):
            report.find("dangling", f"owner of the {end[0]} {end[1]}: the {owner[0]} {owner[1]}, which is gone")
        elif not exists(end):
            report.find("dangling", f"owner {owner[0]} {owner[1]} of the {end[0]} {end[1]}, which is gone")
        elif end in newest:
            report.find("double_owner", f"the {end[0]} {end[1]} has two owners", "the newer one was taken")
            newest[end] = max(newest[end], row, key=_age)
        else:
            newest[end] = row
    for end, row in newest.items():
        owner = (str(row["owner_type"]).lower(), int(row["owner_id"]))
        links.add(end, Link("owner", owner, "", audit(row)))


def _age(row: Row) -> tuple[int, int]:
    return max(int(row.get("updated_at") or 0), audit(row)["modified_at"] // 1000), int(row["id"])


def _grants(source: Source, there: Mapping[str, set[int]], exists: Exists, links: Links, report: Report) -> None:
    nothing: Row = {}
    for row in _of(source, "role_meta_securable_object", "role_id", sorted(there["role"])):
        role, end = int(row["role_id"]), (str(row["type"]).lower(), int(row["metadata_object_id"]))
        if not exists(end):
            report.find("dangling", f"privileges of the role {role} on the {end[0]} {end[1]}, which is gone")
            continue
        words, effects = json_of(row["privilege_names"], []), json_of(row["privilege_conditions"], [])
        for word, effect in zip(words, effects, strict=False):
            privilege = str(word).lower()
            try:
                check_privilege(privilege, end[0])
            except InvalidArgument:
                report.find("unknown", f"the privilege {privilege} of the role {role} on a {end[0]}")
                continue
            value = f"{str(effect).lower()}:{privilege}"
            links.add(("role", role), Link("grant", end, value, audit(nothing)))
