"""The kernel in parts: how many mutants each gets, and which tests run for those that the nearest tests miss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["AREAS", "Area"]


@dataclass(frozen=True)
class Area:
    """Files of the kernel. First run the tests that are nearest to a mutant's file (``near.py``)."""

    name: str
    paths: tuple[str, ...]
    share: int
    """How many of the 200 mutants are here."""
    then: str
    """What pytest gets if those tests find nothing."""

    def files(self, tree: Path) -> list[str]:
        """Return its files, without those of areas that are a part of it."""
        others = [path for area in AREAS if area is not self for path in area.paths]
        inner = tuple(path for path in others if path.startswith(self.paths))
        files = {file.relative_to(tree).as_posix() for path in self.paths for file in _files(tree / path)}
        return sorted(file for file in files if not (inner and file.startswith(inner)))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [*path.rglob("*.py")]


_PG, _SQL, _MEMORY = (f"metastore/backends/{name}" for name in ("postgres", "sql", "memory"))
_NO_SERVER = "'not postgres'"

_IN_BACKENDS = (
    Area("PostgreSQL", (_PG,), 28, "tests/contract tests/past tests/concurrency/test_relations.py -k postgres"),
    Area(
        "batches on PostgreSQL",
        (f"{_PG}/together",),
        12,
        "tests/combine tests/contract -k 'combine or (combined and (alter or writes or moving or exactly_once))'"
        " -m 'long or not long'",
    ),
    Area("SQLite", ("metastore/backends/sqlite",), 17, "tests/contract tests/past tests/concurrency -k sqlite"),
    Area(
        "both SQL databases",
        (_SQL, "metastore/backends/precondition.py"),
        16,
        "tests/contract tests/past tests/verify tests/governance -k sqlite",
    ),
    Area("the memory model", (_MEMORY,), 7, "tests/contract tests/past -k memory"),
    Area("the port", ("metastore/port",), 5, "tests/contract tests/combine -k 'sqlite or combine'"),
    Area(
        "gc",
        ("metastore/gc.py", f"{_SQL}/gc.py", f"{_MEMORY}/gc.py"),
        6,
        f"tests/past tests/verify -k {_NO_SERVER}",
    ),
)

_ABOVE = (
    Area(
        "operations", ("metastore/operation",), 23, "tests/contract tests/progress tests/interleaving -k 'not postgres'"
    ),
    Area("requests that travel together", ("metastore/combine",), 13, "tests/combine tests/interleaving tests/aio"),
    Area(
        "transactions",
        ("metastore/transaction",),
        13,
        "tests/contract tests/interleaving tests/progress -k 'not postgres'",
    ),
    Area(
        "managers' attempts",
        ("metastore/managers/attempts", "metastore/managers/mutation.py", "metastore/managers/target.py"),
        8,
        "tests/contract tests/interleaving -k 'not postgres'",
    ),
    Area("retries", ("retry",), 5, "tests/contract/test_lost_answers_contract.py tests/progress/test_hooks_tell.py"),
    Area("caches", ("metastore/cache",), 17, "tests/cache/test_lease_ends.py tests/cache/test_lease_processes.py"),
    Area("leases", ("metastore/leases",), 12, "tests/leases -k 'not s3 and not hudi and not azure'"),
    Area("leases in object storage", ("metastore/leases/objects",), 4, "tests/leases tests/bad_input/test_objects.py"),
    Area("the feed", ("metastore/feed",), 6, "tests/past tests/contract tests/cli/test_past.py -k 'not postgres'"),
    Area("the past", ("metastore/past",), 8, "tests/contract tests/cli/test_past.py -k 'not postgres'"),
)

AREAS: Final[tuple[Area, ...]] = (*_IN_BACKENDS, *_ABOVE)
