"""``python -m tests.of FOLDER`` (``make test-of FOLDER=past``): run the tests of one folder of the library.

What is left out belongs to the whole: benchmarks, planted faults, mutants, joints, soaks, and the tools of tests.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["OF_THE_WHOLE", "TESTS", "paths_of"]

ROOT: Final = Path(__file__).resolve().parents[1]
_KERNEL: Final = ("contract", "operation", "progress", "concurrency", "lost", "unit")

TESTS: Final[Mapping[str, Sequence[str]]] = {
    "aio": ("aio",),
    "backends": (*_KERNEL, "statements", "interleaving", "property"),
    "bridge": ("bridge",),
    "cache": ("cache",),
    "charts": ("loadtest", "console"),
    "checker": ("checker", "traces"),
    "cli": ("cli",),
    "columns": ("unit", "spark", "crawl"),
    "combine": ("combine", "interrupts", "interleaving", "concurrency"),
    "crawl": ("crawl", "sample"),
    "exports": ("exports",),
    "feed": ("contract", "past", "transfer"),
    "governance": ("governance", "contract"),
    "http": ("http", "service_example"),
    "imports": ("imports",),
    "jobs": ("jobs", "gravitino"),
    "kinds": ("contract", "unit", "bad_input", "property"),
    "leases": ("leases",),
    "loadtest": ("loadtest",),
    "managers": ("contract", "bad_input", "progress"),
    "migrations": ("migration",),
    "operation": (*_KERNEL, "interleaving", "interrupts"),
    "past": ("past", "contract"),
    "plain": ("unit", "http", "servers"),
    "port": ("contract", "unit"),
    "pyiceberg": ("iceberg",),
    "replicas": ("cache", "contract"),
    "retry": ("retry",),
    "secrets": ("secrets", "contract"),
    "serve": ("iceberg", "gravitino", "console", "oidc", "servers"),
    "spark": ("spark",),
    "store": ("contract", "cli", "unit"),
    "telemetry": ("telemetry",),
    "transaction": ("contract", "interleaving", "progress", "interrupts"),
    "transfer": ("transfer",),
    "verify": ("verify",),
}
"""The folders of tests for each folder of the library, the nearest first."""

OF_THE_WHOLE: Final = frozenset(
    {"bench", "docs", "drills", "faults", "grow", "joints", "load", "mutants", "packaging", "setup", "soak"}
)


def paths_of(folder: str) -> list[str]:
    """Return the folders of tests for ``past``, ``metastore/past`` or ``metastore/past/consumers.py``."""
    parts = Path(folder).parts
    name = next((part for part in parts if part in TESTS), None)
    if name is None:
        raise SystemExit(f"no folder of the library is called {folder}; expected one of {', '.join(TESTS)}")
    return [f"tests/{one}" for one in TESTS[name]]


def main() -> int:
    """Run them, with the arguments that follow the folder."""
    if len(sys.argv) < 2 or not sys.argv[1]:
        raise SystemExit(f"which folder? One of {', '.join(TESTS)}")
    command = [sys.executable, "-m", "pytest", *paths_of(sys.argv[1]), *sys.argv[2:]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
