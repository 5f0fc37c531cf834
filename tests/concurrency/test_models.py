"""An alias of a model moves in one commit, while others add, drop and read versions."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any
from uuid import UUID

import metastore as ms
from tests.concurrency.checks import seed, violations
from tests.concurrency.workers import Job, Team, Turn, outcome

M = "lake.cat.s.model"
URIS = {"default": "s3://b/x"}


def add(turn: Turn, count: int, aliases: tuple[str, ...]) -> list[int]:
    """Add versions that take the aliases along; return their numbers."""
    turn.meet()
    return [turn.store.models.add_version(M, uris=URIS, aliases=aliases).number for _ in range(count)]


def move(turn: Turn, seed_number: int, count: int) -> Counter[str]:
    """Let the alias point to one of the first versions, which nobody drops."""
    dice = random.Random(seed_number)
    turn.meet()
    return Counter(outcome(turn.store.models.set_alias, M, "prod", dice.randint(1, 3)) for _ in range(count))


def drop(turn: Turn, seed_number: int, count: int) -> Counter[str]:
    """Drop versions that somebody may be pointing to."""
    dice, models = random.Random(seed_number), turn.store.models
    turn.meet()
    for _ in range(count):
        numbers = [v.number for v in models.versions(M) if v.number > 3]
        if numbers:
            models.drop_version(M, dice.choice(numbers))
    return Counter()


def read(turn: Turn) -> list[str]:
    """Return what was wrong with what the alias led to."""
    turn.meet()
    wrong: list[str] = []
    while turn.go_on():
        try:
            found = turn.store.models.load_version(M, "prod")
        except ms.EntityNotFound as error:
            wrong.append(str(error))
            continue
        if "prod" not in found.aliases:
            wrong.append(f"version {found.number} has the aliases {found.aliases}")
    return wrong


def torn(store: ms.Store) -> list[str]:
    """Return the operations after which the model and its versions say different things of an alias.

    Of operations that share no row, one may have its place in the feed between two rows of the other.
    """
    operations: dict[UUID, list[ms.Change]] = {}
    for change in store.changes():
        if change.kind in ("model", "model_version"):
            operations.setdefault(change.operation_id, []).append(change)
    of_model: dict[str, int] = {}
    of_versions: dict[int, tuple[str, ...]] = {}
    wrong: list[str] = []
    for operation_id, changes in sorted(operations.items(), key=lambda item: item[1][-1].position):
        for change in changes:
            entity: Any = change.entity
            if change.kind == "model":
                of_model = dict(entity.aliases)
            elif change.action == "drop":
                of_versions.pop(entity.number)
            else:
                of_versions[entity.number] = entity.aliases
        if sorted((alias, n) for n, aliases in of_versions.items() for alias in aliases) != sorted(of_model.items()):
            wrong.append(f"after {operation_id}: {of_model}, {of_versions}")
    return wrong


def prepare(url: str) -> None:
    seed(url)
    with ms.open(url) as store:
        store.models.create(M)
        for _ in range(3):
            store.models.add_version(M, uris=URIS)
        store.models.set_alias(M, "prod", 1)


def test_case_28_an_alias_moves_atomically(url: str, team: Team) -> None:
    """Field case 28: While versions are added and the alias moves, it always leads to one version, which has it."""
    prepare(url)
    jobs = [Job(add, 15, ("prod",)), Job(add, 15, ()), Job(move, 1, 25), Job(move, 2, 25), Job(read, background=True)]
    with_alias, without, *moved, wrong = team.run(url, jobs)
    assert sorted(with_alias + without) == list(range(4, 34)), "each number once, and none left out"
    assert sum(moved, Counter()) == {"ok": 50}
    assert wrong == []
    with ms.open(url) as store:
        assert torn(store) == []
        assert store.models.load(M).latest_version == 33
    assert violations(url) == []


def test_case_28_a_dropped_version_leaves_no_alias(url: str, team: Team) -> None:
    """Field case 28: Versions are dropped while others point to them: an alias never leads to what is gone."""
    prepare(url)
    jobs = [Job(add, 15, ("prod",)), Job(add, 15, ("best",)), Job(move, 1, 20), Job(drop, 2, 12), Job(drop, 3, 12)]
    team.run(url, jobs)
    with ms.open(url) as store:
        assert torn(store) == []
        model = store.models.load(M)
        for alias, number in model.aliases.items():
            assert store.models.load_version(M, alias).number == number
    assert violations(url) == []
