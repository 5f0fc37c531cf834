"""The programs: each pair of operations, and some triples."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from tests.statements.batched import BATCHED, twins
from tests.statements.explore import Program
from tests.statements.operations import CALLERS, GONE, OPERATIONS, Operation, T, named

__all__ = ["CALLED", "FEW", "FEW_CALLED", "PAIRS", "PROGRAMS", "TOGETHER", "TRIPLES", "program"]


def program(*names: str) -> Program:
    """Return the program in which these operations meet."""
    ordered = sum(named(name).group == "read" for name in names) == 0 or len(names) < 3
    return Program(" | ".join(names), tuple([(named(name),) for name in names]), ordered=ordered)


PAIRS: tuple[Program, ...] = tuple([program(a.name, b.name) for a, b in combinations_with_replacement(OPERATIONS, 2)])
"""Each operation and each other one, and itself. Whichever comes first: both orders are among the interleavings."""

_MET = (
    *("create", "create what was dropped", "alter", "alter while hot", "rename", "drop", "restore", "purge"),
    *("drop a partition", "rename the schema", "drop the schema", "drop the empty schema", "freeze", "copy"),
)
CALLED: tuple[Program, ...] = (
    *[program(a.name, b.name) for a, b in combinations_with_replacement(CALLERS, 2)],
    *[program(a.name, b) for a, b in product(CALLERS, _MET)],
)
"""What callers make of the calls: each with each other one, and with what changes what they look at."""

_SEEN = Operation("load, then", "read", lambda h: h.store.tables.load(T))

TRIPLES: tuple[Program, ...] = (
    Program(
        "alter under the lease | break the lease, load",
        ((named("alter under the lease"),), (named("break the lease"), _SEEN)),
        ordered=False,
    ),
    Program(
        "create | drop the schema, names",
        ((named("create"),), (named("drop the schema"), named("names"))),
        ordered=False,
    ),
    Program(
        "alter | rename, create what was there",
        (
            (named("alter"),),
            (named("rename in hand"), Operation("create again", "create table", lambda h: h.store.tables.create(T))),
        ),
    ),
    Program(
        "rename | alter, drop, create",
        ((named("rename"),), (named("alter in hand"), named("drop in hand"), named("create in hand"))),
    ),
    Program(
        "drop the empty schema | rename it, create in it",
        (
            (named("drop the empty schema"),),
            (
                Operation("rename it", "rename or move schema", lambda h: h.store.schemas.rename(h.given["r"], "r2")),
                Operation("create in it", "create table", lambda h: h.store.tables.create("n", parent=h.given["r"])),
            ),
        ),
    ),
    Program(
        "restore | restore, drop",
        (
            (named("restore"),),
            (
                named("restore"),
                Operation("drop it", "drop, restore or purge table", lambda h: h.store.tables.drop(GONE)),
            ),
        ),
    ),
    program("move the schema", "move the other schema", "create in the empty schema"),
    program("create in the empty schema", "drop the empty schema", "rename the catalog"),
    program("copy", "copy back", "alter"),
    program("alter", "alter in hand", "swap"),
    program("create", "create in hand", "drop the schema"),
    program("create", "rename", "rename a sibling"),
    program("alter in hand", "rename in hand", "rename the schema in hand"),
    program("create a partition", "drop", "restore"),
)
"""Three operations, or one and two in a row."""

TOGETHER: tuple[Program, ...] = tuple([Program(name, both, twins) for name, both in BATCHED.items()])
"""Operations that travel together, on PostgreSQL."""

FEW: tuple[str, ...] = (
    "create | create",
    "create | create a sibling",
    "create | names",
    "create | rename a sibling",
    "create | drop the schema",
    "create | rename the schema",
    "create | rename the catalog",
    "create in hand | rename the schema in hand",
    "create in the empty schema | drop the empty schema",
    "create what was dropped | restore",
    "alter | alter in hand",
    "alter | alter a sibling",
    "alter | drop",
    "alter | rename in hand",
    "alter | alter the schema",
    "alter | rename the schema",
    "swap | swap otherwise",
    "alter while hot | rename",
    "rename | move",
    "rename | load",
    "create a partition | create it with other values",
    "create a partition | drop",
    "purge | purge",
    "copy | copy back",
    "alter | copy",
    "create | write down what is listed",
    "alter under the lease | break the lease",
    "attach a tag | drop a tag",
    "set the owner | set another owner",
    "revoke | alter as a user",
)
"""The pairs of the test suite."""

FEW_CALLED: tuple[str, ...] = (
    "drop what was dropped | note the restore",
    "drop the only one | note the drop of the schema",
    "put another partition in its place | read a partition and drop it",
    "put another partition in its place | read a partition and make another of it",
    "note the restore of what is there | drop",
    "note the creation | create",
    "alter to what it is, with an id | alter",
    "create what is there, with an id | drop",
    "create several or return | create",
)
"""Those of what callers make of the calls."""

PROGRAMS: tuple[Program, ...] = (*PAIRS, *CALLED, *TRIPLES, *TOGETHER)
"""All that the full exploration goes through."""
