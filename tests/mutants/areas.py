"""The kernel in parts, how many mutants each gets, and the tests that are asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["AREAS", "ASKED", "Area"]

ASKED: Final = (
    *("contract", "past", "operation", "retry", "combine", "leases", "cache", "unit", "transfer", "verify", "secrets"),
    *("concurrency", "migration", "bad_input", "governance", "progress"),
    *("cli/test_past.py", "cli/test_stats.py", "cli/test_cache.py"),
)
"""The tests that may find a mutant: those that call its function are run."""


@dataclass(frozen=True)
class Area:
    """Files of the kernel."""

    name: str
    paths: tuple[str, ...]
    share: int
    """How many of the 200 mutants are here."""

    def files(self, tree: Path) -> list[str]:
        """Return its files, without those of areas that are a part of it."""
        others = [path for area in AREAS if area is not self for path in area.paths]
        inner = tuple(path for path in others if path.startswith(self.paths))
        files = {file.relative_to(tree).as_posix() for path in self.paths for file in _files(tree / path)}
        return sorted(file for file in files if not (inner and file.startswith(inner)))


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [*path.rglob("*.py")]


_PG, _SQL, _MEMORY = (f"metastore/backends/{name}" for name in ("postgres", "sql", "memory"))

_IN_BACKENDS = (
    Area("PostgreSQL", (_PG,), 28),
    Area("batches on PostgreSQL", (f"{_PG}/together",), 12),
    Area("SQLite", ("metastore/backends/sqlite",), 17),
    Area("both SQL databases", (_SQL, "metastore/backends/precondition.py"), 16),
    Area("the memory model", (_MEMORY,), 7),
    Area("the port", ("metastore/port",), 5),
    Area("gc", ("metastore/gc.py", f"{_SQL}/gc.py", f"{_MEMORY}/gc.py"), 6),
)

_ABOVE = (
    Area("operations", ("metastore/operation",), 23),
    Area("requests that travel together", ("metastore/combine",), 13),
    Area("transactions", ("metastore/transaction",), 13),
    Area(
        "managers' attempts",
        ("metastore/managers/attempts", "metastore/managers/mutation.py", "metastore/managers/target.py"),
        8,
    ),
    Area("retries", ("retry",), 5),
    Area("caches", ("metastore/cache",), 17),
    Area("leases", ("metastore/leases",), 12),
    Area("leases in object storage", ("metastore/leases/objects",), 4),
    Area("the feed", ("metastore/feed",), 6),
    Area("the past", ("metastore/past",), 8),
)

AREAS: Final[tuple[Area, ...]] = (*_IN_BACKENDS, *_ABOVE)
