"""The kernel in parts: how many mutants each gets, and which tests find them.

``tests`` run first: those that are made for the part, in half a minute. ``then`` run for what they do not find.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["AREAS", "Area"]


@dataclass(frozen=True)
class Area:
    """Files of the kernel that the same tests are made for."""

    name: str
    paths: tuple[str, ...]
    share: int
    """How many of the 200 mutants are here."""
    tests: str
    then: str

    def files(self, tree: Path) -> list[str]:
        """Return its files, without those of areas that are a part of it."""
        others = [path for area in AREAS if area is not self for path in area.paths]
        inner = tuple(path for path in others if path.startswith(self.paths))
        files = {file.relative_to(tree).as_posix() for path in self.paths for file in _files(tree / path)}
        return sorted(file for file in files if not (inner and file.startswith(inner)))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [*path.rglob("*.py")]


def _contract(*names: str) -> str:
    return " ".join(f"tests/contract/test_{name}_contract.py" for name in names)


_COMMIT = _contract("commit", "writes", "alter", "exactly_once", "transactions", "moving", "marks", "intents", "restore")
_SQL = f"{_COMMIT} {_contract('own_guards', 'relations', 'past', 'gc', 'tickets', 'pages', 'search', 'clocks')}"
_WIDE = "tests/contract tests/past tests/leases/test_contract.py tests/operation tests/verify"

_IN_BACKENDS = (
    Area(
        "PostgreSQL",
        ("metastore/backends/postgres",),
        28,
        f"{_SQL} tests/unit tests/bad_input/test_sessions.py tests/leases/test_contract.py -k postgres",
        f"{_WIDE} tests/statements tests/concurrency tests/progress tests/cache tests/migration/test_roles.py"
        " tests/migration/test_put_back.py tests/bad_input tests/telemetry -k postgres",
    ),
    Area(
        "batches on PostgreSQL",
        ("metastore/backends/postgres/together",),
        12,
        "tests/combine/test_batches.py tests/combine/test_pitfalls.py",
        f"tests/combine tests/statements tests/concurrency/test_siblings.py {_COMMIT} -k 'combined or not contract'"
        " -m 'long or not long'",
    ),
    Area(
        "SQLite",
        ("metastore/backends/sqlite",),
        17,
        f"{_SQL} tests/unit tests/leases/test_contract.py tests/concurrency/test_group_commit.py -k 'not postgres'",
        f"{_WIDE} tests/statements tests/concurrency tests/progress tests/cache tests/bad_input"
        " -k 'not postgres and not memory'",
    ),
    Area(
        "both SQL databases",
        ("metastore/backends/sql", "metastore/backends/precondition.py"),
        16,
        f"{_SQL} tests/past tests/unit -k 'not postgres and not memory'",
        f"{_WIDE} tests/statements tests/governance tests/concurrency tests/property tests/bad_input -k 'not memory'",
    ),
    Area("the memory model", ("metastore/backends/memory",), 7, f"{_SQL} -k memory", f"{_WIDE} -k memory"),
    Area(
        "the port",
        ("metastore/port",),
        5,
        f"{_SQL} tests/unit tests/operation -k 'not postgres'",
        f"{_WIDE} tests/statements tests/concurrency tests/progress tests/cache tests/bad_input -k 'not postgres'",
    ),
    Area(
        "gc",
        ("metastore/gc.py", "metastore/backends/sql/gc.py", "metastore/backends/memory/gc.py"),
        6,
        f"{_contract('gc', 'left_behind', 'short_retention')} tests/past/test_retention.py tests/past/test_promises.py",
        "tests/contract tests/past tests/verify tests/progress tests/concurrency -k 'not postgres'",
    ),
)

_ABOVE = (
    Area(
        "operations",
        ("metastore/operation",),
        23,
        f"tests/operation {_COMMIT} {_contract('claims', 'lost_answers', 'in_hand', 'own_guards', 'trust')}"
        " -k 'not postgres'",
        "tests/contract tests/progress tests/interleaving tests/concurrency tests/secrets tests/combine",
    ),
    Area(
        "requests that travel together",
        ("metastore/combine",),
        13,
        "tests/combine",
        "tests/interleaving tests/cache tests/concurrency tests/aio tests/progress",
    ),
    Area(
        "transactions",
        ("metastore/transaction",),
        13,
        f"{_contract('transactions', 'validation', 'freeze', 'freezes_meet', 'tickets', 'bind', 'one_instant')}"
        " tests/unit/test_read_set.py -k 'not postgres'",
        "tests/contract tests/progress tests/concurrency tests/interleaving tests/statements -k 'not postgres'",
    ),
    Area(
        "managers' attempts",
        ("metastore/managers/attempts", "metastore/managers/mutation.py", "metastore/managers/target.py"),
        8,
        f"{_COMMIT} {_contract('managers', 'own_guards', 'in_hand', 'remembered_parents', 'one_instant')} -k 'not postgres'",
        "tests/contract tests/progress tests/concurrency tests/interleaving -k 'not postgres'",
    ),
    Area(
        "retries",
        ("retry",),
        5,
        "tests/retry tests/operation",
        "tests/progress tests/concurrency tests/interleaving tests/contract -k 'not postgres'",
    ),
    Area("caches", ("metastore/cache",), 17, "tests/cache", "tests/cli/test_cache.py tests/contract"),
    Area(
        "leases",
        ("metastore/leases",),
        12,
        "tests/leases/test_contract.py tests/leases/test_holding.py tests/leases/test_waiting.py"
        " tests/leases/test_left_behind.py",
        "tests/leases tests/cli/test_leases.py tests/cli/test_lease_run.py tests/bad_input/test_leases.py",
    ),
    Area(
        "leases in object storage",
        ("metastore/leases/objects",),
        4,
        "tests/leases/test_object_model.py tests/leases/test_object_faults.py tests/leases/test_object_storage.py",
        "tests/leases tests/bad_input/test_objects.py",
    ),
    Area(
        "the feed",
        ("metastore/feed",),
        6,
        "tests/past/test_consumers.py tests/past/test_hints.py tests/past/test_consumers_fail.py"
        f" {_contract('scope', 'past', 'as_user', 'user_calls')} -k 'not postgres'",
        "tests/past tests/contract tests/concurrency/test_feed.py tests/governance tests/migration/test_put_back.py",
    ),
    Area(
        "the past",
        ("metastore/past",),
        8,
        "tests/past -k 'not postgres'",
        "tests/past tests/contract tests/cli/test_past.py",
    ),
)

AREAS: Final[tuple[Area, ...]] = (*_IN_BACKENDS, *_ABOVE)
