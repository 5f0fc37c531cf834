"""What docs/governance.md says that a user may see and do: pure, over plain sets, and without any code of the library.

What each operation needs is read from the tables of that page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["Rules", "Thing", "needs", "placed", "table", "words_of"]

_PAGE: Final = Path(__file__).parents[3] / "docs" / "governance.md"
_USE: Final = {"catalog": "use_catalog", "schema": "use_schema"}


def table(head: str) -> dict[str, list[str]]:
    """Return the rows of the table whose head begins so, by their first cell."""
    text = _PAGE.read_text(encoding="utf-8")
    lines = text[text.index(f"| {head} |") :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return {row[0].strip("`"): [cell.strip(" |") for cell in row[1:]] for row in rows}


def words_of(cell: str) -> tuple[str, ...]:
    """Return the privileges in a cell, of which one is enough; none: only an owner."""
    return tuple(re.findall(r"`(\w+)`", cell))


@cache
def needs(kind: str, operation: str) -> tuple[str, ...]:
    """Return the privileges that an operation on a kind needs, or the write of a row that it owns."""
    see, create, alter, drop, *rows = _needs()[kind]
    columns = {"see": see, "create": create, "alter": alter, "rename": alter, "move": "", "drop": drop}
    if operation in columns:
        return words_of(columns[operation])
    if operation in ("restore", "purge", "enable", "disable"):
        return words_of(drop)
    found = dict(re.findall(r"(\w+): ((?:`\w+`(?: or )?)+)", rows[0] if rows else ""))
    return words_of(found.get(operation, ""))


@cache
def _needs() -> dict[str, list[str]]:
    return table("kind")


@cache
def placed() -> dict[str, tuple[str, ...]]:
    """Return each privilege with the kinds on which it is granted; none: on any."""
    return {word: tuple(re.findall(r"\w+", cell)) for word, (cell,) in table("privilege").items() if "any" not in cell}


@dataclass
class Thing:
    """An entity: where it stands, and whether it was dropped, or disabled, itself."""

    id: int
    kind: str
    name: str
    parent: int | None
    live: bool = True
    enabled: bool = True


@dataclass
class Rules:
    """What there is in a database, and what follows of it for a user, whom its bare name names."""

    things: dict[int, Thing] = field(default_factory=dict)
    joined: set[tuple[int, int]] = field(default_factory=set)
    """(user, group)."""
    has: set[tuple[int, int]] = field(default_factory=set)
    """(user or group, role)."""
    grants: set[tuple[int, str, str, int]] = field(default_factory=set)
    """(role, privilege, "allow" or "deny", object)."""
    owners: dict[int, int] = field(default_factory=dict)
    """Of each object the one user or group that owns it."""

    # --- the tree

    def way(self, thing: int) -> list[int]:
        """Return the ids from the metalake to an entity."""
        parent = self.things[thing].parent
        return [*([] if parent is None else self.way(parent)), thing]

    def path(self, thing: int) -> str:
        """Return the path of an entity, whose names need no quotes."""
        return ".".join(self.things[one].name for one in self.way(thing))

    def live(self, thing: int) -> bool:
        """Whether an entity and all above it are live."""
        return all(self.things[one].live for one in self.way(thing))

    def below(self, thing: int | None) -> list[Thing]:
        """Return the live entities below one; None: all."""
        return [one for one in self.things.values() if self.live(one.id) and self.is_below(one.id, thing)]

    def leads(self, target: object, thing: int) -> bool:
        """Whether a path, or an entity in hand, leads to this live entity."""
        return self.live(thing) and (not isinstance(target, str) or target == self.path(thing))

    def is_below(self, one: int, thing: int | None) -> bool:
        """Whether an entity is below another one; None: it is below the root."""
        return thing is None or thing in self.way(one)[:-1]

    # --- the user

    def user(self, name: str, lake: int) -> int | None:
        """Return the live user of a name in a metalake."""
        found = [one for one in self.things.values() if (one.kind, one.name, one.parent) == ("user", name, lake)]
        return next((one.id for one in found if one.live), None)

    def selves(self, name: str, lake: int) -> set[int]:
        """Return the user and its groups, as far as they count; none: it is not an enabled user of the metalake."""
        user = self.user(name, lake)
        if user is None or not self.things[user].enabled:
            return set()
        groups = {group for member, group in self.joined if member == user}
        return {user, *(one for one in groups if self.things[one].live and self.things[one].enabled)}

    def roles(self, name: str, lake: int) -> set[int]:
        """Return the roles that count for a user."""
        selves = self.selves(name, lake)
        return {role for member, role in self.has if member in selves and self.things[role].live}

    # --- the rules

    def owns(self, name: str, thing: int) -> bool:
        """Whether the user owns the object, or something above it."""
        way = self.way(thing)
        return any(self.owners.get(one) in self.selves(name, way[0]) for one in way)

    def has_privilege(self, name: str, word: str, thing: int) -> bool:
        """Whether a role allows a privilege at the object or above it, and none denies it there."""
        way = self.way(thing)
        roles = self.roles(name, way[0])
        effects = {effect for role, w, effect, on in self.grants if w == word and on in way and role in roles}
        return effects == {"allow"}

    def may(self, name: str, words: Iterable[str], thing: int, *, inside: bool = False) -> bool:
        """Whether the user may do what needs one of ``words``: the three rules. ``inside``: it is done below."""
        way = self.way(thing)
        passed = way if inside else way[:-1]
        return (
            bool(self.selves(name, way[0]))
            and all(self._right(name, (_USE[k],), one) for one in passed if (k := self.things[one].kind) in _USE)
            and self._right(name, words, thing)
        )

    def _right(self, name: str, words: Iterable[str], thing: int) -> bool:
        return self.owns(name, thing) or any(self.has_privilege(name, word, thing) for word in words)

    def sees(self, name: str, thing: int) -> bool:
        """Whether the user sees an entity. It sees its metalakes, itself, its groups and its roles without a right."""
        lake, kind = self.way(thing)[0], self.things[thing].kind
        if thing in ({lake} if self.selves(name, lake) else set()) | self.selves(name, lake) | self.roles(name, lake):
            return True
        return self.may(name, needs(kind, "see"), thing)

    def may_do(self, name: str, operation: str, thing: int) -> bool:
        """Whether the user may alter, rename, drop … an entity."""
        kind = self.things[thing].kind
        kept = {"rename": ("user", "group"), "restore": ("user", "group", "role")}  # identities, and what has rights
        if kind in kept.get(operation, ()):
            return self.owns(name, self.way(thing)[0])
        return self.may(name, needs(kind, operation), thing)

    def allowed(self, name: str, word: str, thing: int) -> bool:
        """What ``store.allowed`` says: of a container, whether the user may use the privilege there or below."""
        kind = self.things[thing].kind
        own = {*needs(kind, "see"), *needs(kind, "alter"), *needs(kind, "drop"), "use_secret"}
        return self.may(name, (word,), thing, inside=kind in _USE and word not in own)
