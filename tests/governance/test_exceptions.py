"""What a listing shows to a user: as the plain rules say for each child, and in steps that grow with the roles only."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from typing import Any

from metastore.governance.decision import Facts, Granted, Has, Level, Member
from metastore.governance.evidence import KnownFacts, Remembered
from metastore.port.records import Node
from tests.governance.model import may_see

NODES = tuple(
    Node(n + 1, kind, name, 1, True, False)
    for n, (kind, name) in enumerate([("metalake", "m"), ("catalog", "c"), ("schema", "s")])
)
CHAIN = tuple(Level(node.id, node.kind, node.name) for node in NODES)
WORDS = ("use_catalog", "use_schema", "select_table", "modify_table", "manage_grants")


def test_a_listing_shows_what_the_rules_say() -> None:
    for seed in range(300):
        _compare(random.Random(seed))


def _compare(dice: random.Random) -> None:
    members = [Member(100 + n, "user" if n == 0 else "group", f"p{n}", dice.random() < 0.85) for n in range(4)]
    roles = tuple(Has(dice.choice(members).id, 200 + n, f"r{n}") for n in range(4))
    ids, depth = [*range(1, 4), *range(10, 16), 101, 201], dice.choice([1, 3])
    grants = tuple(
        Granted(200 + dice.randrange(5), dice.choice(WORDS), dice.random() < 0.75, dice.choice(ids))
        for _ in range(dice.randrange(14))
    )
    owners = {dice.choice(ids): 100 + dice.randrange(5) for _ in range(dice.randrange(3))}
    facts = Facts("ann", CHAIN[:depth], tuple(members), roles, owners, grants)
    kind = "table" if depth == 3 else dice.choice(["role", "group", "user", "catalog"])
    usually, different = KnownFacts(NODES[:depth], facts, {}).exceptions(kind)
    of_kind = {"role": [200, 201, 202], "group": [101, 102], "user": [100]}.get(kind, [10, 11, 12, 13, 14, 15, 16])
    for child in of_kind:
        seen = may_see(replace(facts, chain=(*facts.chain, Level(child, kind, ""))), depth)
        assert seen == (usually != (child in different)), (child, facts)


def _steps(roles: int) -> int:
    """Return how many functions are called for a user with so many roles, each of which allows another table."""
    grants = [Granted(200 + n, "use_schema", True, 3) for n in range(roles)]
    grants += [Granted(200 + n, "select_table", True, 100_000 + n) for n in range(roles)]
    has = tuple(Has(100, 200 + n, f"r{n}") for n in range(roles))
    facts = Facts("ann", CHAIN, (Member(100, "user", "ann"),), has, {}, (*grants, Granted(200, "use_catalog", True, 2)))
    known, steps = KnownFacts(NODES, facts, {}), 0

    def step(*_: Any) -> Any:
        nonlocal steps
        steps += 1
        return step

    sys.settrace(step)
    try:
        usually, different = known.exceptions("table")
    finally:
        sys.settrace(None)
    assert not usually
    assert len(different) >= roles
    return steps


def test_ten_times_the_roles_are_ten_times_the_steps() -> None:
    assert _steps(1_000) < 12 * _steps(100)


def test_of_a_user_with_many_roles_fewer_facts_are_remembered() -> None:
    has = tuple(Has(100, 200 + n, f"r{n}") for n in range(5_000))
    remembered = Remembered()
    for n in range(100):
        node = Node(1_000 + n, "table", f"t{n}", 1, True, False)
        facts = Facts("ann", CHAIN, (Member(100, "user", "ann"),), has, {}, ())
        remembered.note(KnownFacts((*NODES, node), facts, {}))
        assert sum(len(known.facts.roles) for known in remembered.known.values()) <= 50_000
    assert remembered.known
